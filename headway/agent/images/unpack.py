"""Layers become a root file system: one tar after the other, each changing what the ones before it made.

The promise: nothing is written outside of the root, however names, links and whiteouts are chosen; no device, no
set-user-id bit, no capability comes in; and neither a small archive that unpacks into a huge one nor millions of
names fill the node. A root has one owner, the agent, so everybody may read what an owner could, and nobody may write.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from headway.agent.images.inside import Inside

PIECE_BYTES = 1024 * 1024
ENTRIES_MAX = 2_000_000
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
AUFS = ".wh..wh."
_READ_ALL = 0o444
_LATEST = 2**32
_DIRECTORY_MODE = 0o755
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31  # zlib: a gzip header is expected
EXTENSION_BYTES_MAX = 1024 * 1024
"""No name, and no set of attributes, is longer."""
_EXTENSIONS = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)
OVERHEAD_BYTES = 1024 * 1024 * 1024
"""How much longer a tar may be than what is in it."""
_NODES_FAULT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS})

Parts = tuple[str, ...]


class BadImage(Exception):
    """The image is not what it says, or cannot be used here; the message says why and what to do."""


@dataclass(slots=True)
class Budget:
    """What unpacking may still take from the node, over all layers of an image."""

    bytes_left: int
    entries_left: int = ENTRIES_MAX

    def spend(self, size: int) -> None:
        """Takes room for a file of this size."""
        self.bytes_left -= size
        self.entries_left -= 1
        if self.bytes_left < 0 or self.entries_left < 0:
            raise BadImage("unpacked it is larger than this node allows; use a smaller image or raise --image-cache")


def apply_layer(root: str, layer: BinaryIO, budget: Budget, diff_id: str = "") -> None:
    """Unpacks one layer (tar, plain or gzip) over what is in `root`. `diff_id`: the digest its tar must have."""
    source = _Digested(_inflated(layer), budget.bytes_left + OVERHEAD_BYTES)
    with Inside(root) as inside:
        applied = _Layer(inside, budget)
        try:
            # The stream mode of tarfile goes forwards only, as a layer must be readable.
            with tarfile.open(fileobj=cast("BinaryIO", source), mode="r|", bufsize=PIECE_BYTES, tarinfo=_Header) as tar:
                while (member := tar.next()) is not None:
                    applied.add(member, lambda member=member, tar=tar: tar.extractfile(member))
                    vars(tar)["members"] = []  # it would keep them all
            source.drain()
        except (tarfile.TarError, zlib.error, EOFError, UnicodeError, ValueError, OverflowError) as error:
            raise BadImage(f"a layer is no tar archive: {error}; build or copy the image again") from error
    if diff_id and f"sha256:{source.digest()}" != diff_id:
        raise BadImage("a layer is not what the image's configuration says; build or copy the image again")


class _Layer:
    """One layer on its way in. It remembers what it made itself, for whiteouts are about what was there before."""

    def __init__(self, inside: Inside, budget: Budget) -> None:
        self._inside = inside
        self._budget = budget
        self._made: set[Parts] = set()

    def add(self, member: tarfile.TarInfo, opened: Callable[[], object]) -> None:
        """Takes in one entry."""
        parts = _parts(member.name)
        if not parts:
            return  # the root itself
        self._budget.spend(member.size if member.isreg() else 0)
        try:
            if parts[-1].startswith(WHITEOUT):
                self._white_out(parts)
            else:
                self._make(parts, member, opened)
        except OSError as error:
            if error.errno in _NODES_FAULT:
                raise
            raise BadImage(f"a layer has {member.name!r} where it cannot be: {error}") from error

    def _white_out(self, parts: Parts) -> None:
        above, name = parts[:-1], parts[-1]
        if name == OPAQUE:
            with contextlib.suppress(FileNotFoundError):
                there = os.listdir(self._inside.parent(parts))
                for entry in there:
                    self._remove_older((*above, entry))
        elif not name.startswith(AUFS):  # other marks of aufs mean nothing here
            hidden = name.removeprefix(WHITEOUT)
            if hidden in ("", ".", ".."):
                raise BadImage(f"a layer hides {'/'.join(parts)!r}, which is no name")
            with contextlib.suppress(FileNotFoundError):
                self._remove_older((*above, hidden))

    def _remove_older(self, parts: Parts) -> None:
        """Removes what lower layers made there, and leaves what this one did."""
        if parts not in self._made:
            self._inside.remove(parts)
            return
        parent = self._inside.parent(parts)
        if stat.S_ISDIR(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
            for entry in os.listdir(self._inside.parent((*parts, ""))):
                self._remove_older((*parts, entry))

    def _make(self, parts: Parts, member: tarfile.TarInfo, opened: Callable[[], object]) -> None:
        inside, name = self._inside, parts[-1]
        parent = inside.parent(parts, make=True)
        there = _mode(parent, name)
        if there is not None and not (member.isdir() and stat.S_ISDIR(there)):
            inside.remove(parts)
            parent = inside.parent(parts, make=True)
            there = None
        if member.isdir():
            if there is None:
                os.mkdir(name, dir_fd=parent)
                _open_to_all(parent, name)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            self._link(_parts(member.linkname), parent, name)
        elif member.isreg():
            _write(parent, name, member, opened())
        elif not (member.ischr() or member.isblk() or member.isfifo()):
            raise BadImage(f"a layer has {member.name!r} of an unknown type {member.type!r}")
        else:
            return  # devices are made by whoever runs it
        self._remember(parts)

    def _link(self, target: Parts, parent: int, name: str) -> None:
        """A second name of a file that is there: links above it are followed inside, and it itself never is."""
        if not target:
            raise BadImage(f"a layer links {name!r} to the root")
        above = os.dup(parent)
        try:
            source = self._inside.parent(target)
            if stat.S_ISDIR(_mode(source, target[-1]) or 0):
                raise BadImage(f"a layer links {name!r} to a directory")
            os.link(target[-1], name, src_dir_fd=source, dst_dir_fd=above, follow_symlinks=False)
        finally:
            os.close(above)

    def _remember(self, parts: Parts) -> None:
        while parts and parts not in self._made:
            self._made.add(parts)
            parts = parts[:-1]


def _parts(name: str) -> Parts:
    """A name of an archive as parts below the root. One that would go up is no mistake of a tool: it is refused."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise BadImage(f"a layer has the name {name!r}, which leads up; nothing of it is used")
    return parts


def _write(parent: int, name: str, member: tarfile.TarInfo, source: object) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    owner = member.mode >> 6 & 0o7
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
        reading = cast("BinaryIO", source)
        while piece := reading.read(PIECE_BYTES):
            file.write(piece)
        os.fchmod(file.fileno(), _READ_ALL | (owner & 0o5) * 0o111 | (owner & 0o2) << 6)
        when = min(max(int(member.mtime), 0), _LATEST)
        os.utime(file.fileno(), (when, when))


def _open_to_all(parent: int, name: str) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fchmod(fd, _DIRECTORY_MODE)
    finally:
        os.close(fd)


def _mode(parent: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


class _Header(tarfile.TarInfo):
    """A header whose extensions are of a sane size: tarfile reads those into memory, whatever they say."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """One block of 512 bytes as a header."""
        found = super().frombuf(buf, encoding, errors)
        if found.size < 0 or (found.type in _EXTENSIONS and found.size > EXTENSION_BYTES_MAX):
            raise BadImage(f"a layer has an entry {found.name!r} of an impossible size")
        return found


class _Digested:
    """A stream that is hashed as it is read, and bounded."""

    def __init__(self, pieces: Iterator[bytes], bytes_max: int) -> None:
        self._pieces = pieces
        self._left = bytes_max
        self._held = b""
        self._at = 0
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Some bytes, fewer only at the end."""
        found: list[bytes] = []
        while size:
            if self._at == len(self._held):
                self._held, self._at = self._next(), 0
                if not self._held:
                    break
            piece = self._held[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            found.append(piece)
        return b"".join(found)

    def drain(self) -> None:
        """Reads on to the end: what stands behind the archive is hashed, too."""
        while self._next():
            pass

    def digest(self) -> str:
        """The SHA-256 of all that was read."""
        return self._hash.hexdigest()

    def _next(self) -> bytes:
        piece = next(self._pieces, b"")
        self._left -= len(piece)
        if self._left < 0:
            raise BadImage("a layer is much larger than its files; build or copy the image again")
        self._hash.update(piece)
        return piece


def _inflated(layer: BinaryIO) -> Iterator[bytes]:
    """The bytes of a tar, in pieces of bounded size however well they were compressed; none is empty."""
    held = layer.read(PIECE_BYTES)
    if held[:4] == _ZSTD:
        raise BadImage("a layer is compressed by zstd; copy the image with `skopeo copy --dest-compress-format gzip`")
    if held[:2] != _GZIP:
        while held:
            yield held
            held = layer.read(PIECE_BYTES)
        return
    inflate = zlib.decompressobj(_GZIP_WINDOW)
    while True:
        held = held or layer.read(PIECE_BYTES)
        if inflate.eof:  # files may be put one behind the other, and zeros behind the last are padding
            held = held.lstrip(b"\0")
            if held:
                inflate = zlib.decompressobj(_GZIP_WINDOW)
        ends = not held
        piece = inflate.decompress(held, PIECE_BYTES)
        held = inflate.unconsumed_tail or inflate.unused_data
        if piece:
            yield piece
        elif ends:
            break
    if not inflate.eof:
        raise EOFError("it ends too early")
