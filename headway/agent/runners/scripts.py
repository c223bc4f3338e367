"""Uploaded scripts, fetched once and kept by tenant and digest.

By tenant, because the server decides who may run which text and we must not answer in its place.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

KEPT_MAX = 1000


class Scripts:
    """The cache in the data directory. A file is complete or not there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prune()

    def argv(self, tenant: int, digest: str) -> list[str] | None:
        """How to run it; None when it has to be fetched first."""
        path = self._path(tenant, digest)
        try:
            with path.open("rb") as body:
                has_shebang = body.read(2) in (b"#!", b"\x7fE")
        except FileNotFoundError:
            return None
        return [str(path)] if has_shebang else ["/bin/sh", str(path)]

    def store(self, tenant: int, digest: str, body: bytes) -> bool:
        """Keeps it; False when it is not the text that was asked for."""
        if "sha256:" + hashlib.sha256(body).hexdigest() != digest:
            return False
        path = self._path(tenant, digest)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        half = path.with_suffix(".part")
        half.touch(mode=0o700)
        half.write_bytes(body)
        half.chmod(0o700)
        os.replace(half, path)
        return True

    def _path(self, tenant: int, digest: str) -> Path:
        return self._root / str(tenant) / digest.removeprefix("sha256:")

    def _prune(self) -> None:
        """Keeps the newest."""
        files = sorted(self._root.glob("*/*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[KEPT_MAX:]:
            path.unlink(missing_ok=True)
