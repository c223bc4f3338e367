"""Images made by hand: layers of any entries, honest or not, as OCI layouts or as `docker save` writes them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

Entry = tuple[tarfile.TarInfo, bytes]


def a_file(name: str, body: bytes | str = b"", mode: int = 0o644) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    raw = body.encode() if isinstance(body, str) else body
    entry.size = len(raw)
    return entry, raw


def a_directory(name: str, mode: int = 0o755) -> Entry:
    return _typed(name, tarfile.DIRTYPE, mode=mode)


def a_link(name: str, target: str) -> Entry:
    return _typed(name, tarfile.SYMTYPE, target)


def a_hardlink(name: str, target: str) -> Entry:
    return _typed(name, tarfile.LNKTYPE, target)


def a_device(name: str) -> Entry:
    return _typed(name, tarfile.CHRTYPE)


def _typed(name: str, kind: bytes, target: str = "", mode: int = 0o777) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, target, mode
    return entry, b""


def a_layer(*entries: Entry) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, content in entries:
            tar.addfile(entry, io.BytesIO(content))
    return body.getvalue()


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def a_config(layers: Iterable[bytes], run: Mapping[str, object], **more: object) -> bytes:
    said = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        **more,
    }
    return json.dumps(said).encode()


def a_layout(
    place: Path, *layers: bytes, name: str = "", zipped: bool = True, run: Mapping[str, object] | None = None
) -> str:
    """Writes an OCI layout directory; answers the manifest's digest."""
    config = a_config(layers, run or {})
    blobs = [gzip.compress(layer, 1) if zipped else layer for layer in layers]
    kind = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if zipped else "")
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)
            },
            "layers": [{"mediaType": kind, "digest": digest(blob), "size": len(blob)} for blob in blobs],
        }
    ).encode()  # fmt: skip
    (place / "blobs" / "sha256").mkdir(parents=True)
    for blob in (config, manifest, *blobs):
        (place / "blobs" / "sha256" / digest(blob).removeprefix("sha256:")).write_bytes(blob)
    one = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(manifest), "size": len(manifest),
        "annotations": {"org.opencontainers.image.ref.name": name} if name else {},
    }  # fmt: skip
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [one]}))
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return digest(manifest)


def an_archive(place: Path, layout: Path) -> None:
    """A tar of an OCI layout."""
    with tarfile.open(place, "w") as tar:
        tar.add(layout, ".")


def saved(place: Path, *layers: bytes, tags: Iterable[str] = (), run: Mapping[str, object] | None = None) -> None:
    """What `docker save` writes."""
    config = a_config(layers, run or {})
    files = {f"{digest(config)[7:]}.json": config}
    files |= {f"{number}/layer.tar": layer for number, layer in enumerate(layers)}
    entry = {"Config": next(iter(files)), "RepoTags": list(tags), "Layers": list(files)[1:]}
    files["manifest.json"] = json.dumps([entry]).encode()
    place.write_bytes(a_layer(*(a_file(name, body) for name, body in files.items())))


def a_root(*programs: str) -> list[Entry]:
    """The entries of a root in which programs of this machine run, each with the libraries it needs, as a small image
    of a distribution would have them: /bin is a link."""
    found = {str(Path(shutil.which(program) or program).resolve()) for program in programs}
    needed: set[str] = set()
    for path in found:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        needed |= set(re.findall(r"(/\S+) \(0x", listed))
    entries = [a_directory("usr"), a_directory("usr/bin"), a_link("bin", "usr/bin"), a_directory("tmp", 0o1777)]
    entries += [a_directory("etc"), a_file("etc/passwd", PASSWD), a_file("etc/group", "root:x:0:\nstaff:x:50:app\n")]
    entries += [a_file(f"usr/bin/{program}", _bytes(shutil.which(program) or program), 0o755) for program in programs]
    return entries + [a_file(path.lstrip("/"), _bytes(path), 0o755) for path in sorted(needed)]


PASSWD = "root:x:0:0::/root:/bin/sh\napp:x:1234:50::/home/app:/bin/sh\n"


def _bytes(path: str) -> bytes:
    return Path(path).resolve().read_bytes()
