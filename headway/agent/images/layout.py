"""Reads images as they lie on disk: an OCI layout (a directory or a tar of one), or what `docker save` writes.

The promise: every blob is checked against the digest it is asked for by, documents are bounded, and of several
platforms the one of this machine is taken. Nothing is unpacked here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tarfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NewType, TypeVar

import msgspec

from headway.agent.images.unpack import BadImage

Digest = NewType("Digest", str)

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
LAYERS_MAX = 512
MANIFESTS_MAX = 512
INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
REF_NAME = "org.opencontainers.image.ref.name"
FULL_NAME = "io.containerd.image.name"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}


class Platform(msgspec.Struct, frozen=True):
    architecture: str = ""
    os: str = ""


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    digest: str
    media_type: str = ""
    platform: Platform | None = None
    annotations: dict[str, str] = {}


class Index(msgspec.Struct, frozen=True):
    manifests: list[Descriptor] = []


class Manifest(msgspec.Struct, frozen=True):
    config: Descriptor
    layers: list[Descriptor] = []


class Run(msgspec.Struct, frozen=True, rename="pascal"):
    """What an image says about how it is run."""

    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    user: str | None = None
    working_dir: str | None = None


class RootFs(msgspec.Struct, frozen=True):
    diff_ids: list[str] = []


class Config(msgspec.Struct, frozen=True):
    """The configuration of an image. Its digest is the image's identity: it names all that is in it."""

    config: Run | None = None
    rootfs: RootFs = RootFs()
    architecture: str = ""
    os: str = ""


class Saved(msgspec.Struct, frozen=True, rename="pascal"):
    """An entry of `manifest.json` of `docker save`."""

    config: str
    layers: list[str] = []
    repo_tags: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can be unpacked: its identity, how it is run, and where its layers are."""

    id: Digest
    digest: Digest
    """Of its manifest, what a reference with `@sha256:` means; of `docker save`, its id."""
    run: Run
    layers: tuple[tuple[str, str], ...]
    """For each layer what `Files.open` knows it by, and the digest of its tar."""


T = TypeVar("T")


class Files:
    """The files of a layout by name: those of a directory, or the members of a tar."""

    def __init__(self, open_file: Callable[[str], BinaryIO | None]) -> None:
        self._open = open_file

    def open(self, name: str) -> BinaryIO:
        """A file; raises BadImage when it is not there."""
        found = self._open(name)
        if found is None:
            raise BadImage(f"{name} is missing; copy the image again")
        return found

    def has(self, name: str) -> bool:
        found = self._open(name)
        if found is not None:
            found.close()
        return found is not None

    def document(self, name: str, kind: type[T], digest: str = "") -> T:
        """A JSON file, checked against its digest."""
        with self.open(name) as file:
            body = file.read(DOCUMENT_BYTES_MAX + 1)
        if len(body) > DOCUMENT_BYTES_MAX:
            raise BadImage(f"{name} is larger than {DOCUMENT_BYTES_MAX >> 20} MiB")
        if digest and f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            raise BadImage(f"{name} is not what its digest says; copy the image again")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise BadImage(f"{name} cannot be read: {error}") from error


@contextmanager
def opened(path: Path) -> Generator[Files]:
    """The files of a layout: a directory, or a tar (not compressed). Links in either are not followed."""
    if path.is_dir():
        yield Files(lambda name: _in_directory(path, name))
        return
    try:
        tar = tarfile.open(path, "r:")  # noqa: SIM115  closed below
    except (tarfile.TarError, OSError) as error:
        raise BadImage(f"{path.name} is no OCI layout and no tar of one: {error}") from error
    with tar:
        try:
            members = {member.name.removeprefix("./"): member for member in tar if member.isreg()}
            links = {m.name.removeprefix("./"): m.linkname for m in tar.getmembers() if m.issym() or m.islnk()}
        except (tarfile.TarError, OSError, ValueError) as error:
            raise BadImage(f"{path.name} cannot be read: {error}") from error

        def member(name: str) -> BinaryIO | None:
            if name in links:  # older `docker save` links equal layers
                name = os.path.normpath(os.path.join(os.path.dirname(name), links[name]))
            found = members.get(name)
            return tar.extractfile(found) if found is not None else None  # pyright: ignore[reportReturnType]

        yield Files(member)


def images(files: Files) -> Iterator[tuple[list[str], Callable[[], Image]]]:
    """What is in a layout: the names each image goes by there, and how to read it."""
    if files.has("index.json"):
        for one in files.document("index.json", Index).manifests[:MANIFESTS_MAX]:
            names = [one.annotations[key] for key in (FULL_NAME, REF_NAME) if key in one.annotations]
            yield names, lambda one=one: _of_descriptor(files, one)
    elif files.has("manifest.json"):
        for saved in files.document("manifest.json", list[Saved])[:MANIFESTS_MAX]:
            yield list(saved.repo_tags or []), lambda saved=saved: _of_saved(files, saved)
    else:
        raise BadImage("there is neither index.json (an OCI layout) nor manifest.json (`docker save`)")


def _of_descriptor(files: Files, one: Descriptor, depth: int = 0) -> Image:
    if one.media_type in INDEX_TYPES:
        if depth > 1:
            raise BadImage("an index points to an index that points to another")
        return _of_descriptor(files, _for_this_machine(files, one), depth + 1)
    manifest = files.document(_blob(one.digest), Manifest, one.digest)
    config = files.document(_blob(manifest.config.digest), Config, manifest.config.digest)
    names = [_blob(layer.digest) for layer in manifest.layers]
    return _image(manifest.config.digest, one.digest, config, names)


def _of_saved(files: Files, saved: Saved) -> Image:
    with files.open(saved.config) as file:
        digest = f"sha256:{hashlib.sha256(file.read(DOCUMENT_BYTES_MAX)).hexdigest()}"
    config = files.document(saved.config, Config)
    return _image(digest, digest, config, saved.layers)


def _image(id: str, digest: str, config: Config, names: list[str]) -> Image:
    diff_ids = config.rootfs.diff_ids
    if len(names) != len(diff_ids) or len(names) > LAYERS_MAX:
        raise BadImage(f"it has {len(names)} layers and its configuration {len(diff_ids)}; at most {LAYERS_MAX} can be")
    if not all(one.startswith("sha256:") for one in diff_ids):
        raise BadImage("its layers are not named by SHA-256")
    if (config.architecture or _here()) != _here() or config.os not in ("", "linux"):
        raise BadImage(f"it is made for {config.os} on {config.architecture}, and this node is linux on {_here()}")
    return Image(Digest(id), Digest(digest), config.config or Run(), tuple(zip(names, diff_ids, strict=True)))


def _for_this_machine(files: Files, index: Descriptor) -> Descriptor:
    there = files.document(_blob(index.digest), Index, index.digest).manifests[:MANIFESTS_MAX]
    for one in there:
        if one.platform is not None and (one.platform.os, one.platform.architecture) == ("linux", _here()):
            return one
    has = ", ".join(f"{one.platform.os}/{one.platform.architecture}" for one in there if one.platform) or "nothing"
    raise BadImage(f"it has no linux/{_here()}; it has {has}")


def _blob(digest: str) -> str:
    kind, _, hexadecimal = digest.partition(":")
    if kind != "sha256" or len(hexadecimal) != 64 or not set(hexadecimal) <= set("0123456789abcdef"):
        raise BadImage(f"{digest[:100]!r} is no SHA-256 digest")
    return f"blobs/sha256/{hexadecimal}"


def _here() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def _in_directory(root: Path, name: str) -> BinaryIO | None:
    parts = name.split("/")
    if ".." in parts or name.startswith("/"):
        raise BadImage(f"{name!r} is no name in a layout")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            above = here
            here = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            os.close(above)
        return os.fdopen(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here), "rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadImage(f"{name!r} cannot be read: {error.strerror}") from error
    finally:
        os.close(here)
