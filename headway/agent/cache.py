"""Blobs on this node: fetched once, kept by tenant and digest, the least used gone when the room is full.

By tenant, because the server decides who may read what and we must not answer in its place. A file is complete or not
there; what is lent is never removed; and one that is not what it was when it came is not used again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CACHE_BYTES_MAX = 4 * 1024**3
CHECK_BYTES_MAX = 1024 * 1024
"""What is larger is not digested on the agent's loop: 1 ms."""
READ_BYTES = 1024 * 1024
FILE_MODE = 0o555
"""To be read and executed by whoever a task runs as, in a directory that only the agent may enter."""


class Name(NamedTuple):
    """Whose blob, and which."""

    tenant: int
    digest: str


class _Look(NamedTuple):
    """What the file system says of a file; whoever writes to it changes it."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(slots=True)
class _Kept:
    size: int
    look: _Look | None
    """When its digest was checked last; None: not since the agent began."""
    lent: int = 0


class Cache:
    """The files below `root`, up to `bytes_max` in all; more only while more is lent."""

    def __init__(self, root: Path, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._root = root
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Name, _Kept] = OrderedDict()
        self._parts = 0
        self.bytes = 0
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_stock()

    def lend(self, name: Name) -> Path | None:
        """A file that stays until it is given back. None when it has to be fetched, or, being large, to be checked
        first (`doubtful`)."""
        kept = self._kept.get(name)
        if kept is None:
            return None
        path = self.path(name)
        if kept.look is None or kept.look != _look(path):
            if kept.size > CHECK_BYTES_MAX:
                return None
            self.checked(name, is_right=has_digest(path, name.digest))
            if name not in self._kept:
                return None
        kept.lent += 1
        self._kept.move_to_end(name)
        return path

    def doubtful(self, name: Name) -> bool:
        """Whether it is here and nobody knows whether it is what it was: see `has_digest`, then say `checked`."""
        kept = self._kept.get(name)
        return kept is not None and (kept.look is None or kept.look != _look(self.path(name)))

    def checked(self, name: Name, *, is_right: bool) -> None:
        """What is not right is forgotten."""
        kept = self._kept.get(name)
        if kept is not None and is_right:
            kept.look = _look(self.path(name))
        elif kept is not None:
            self._forget(name)

    def give_back(self, name: Name) -> None:
        """Who borrowed it needs it no more."""
        kept = self._kept.get(name)
        if kept is not None:
            kept.lent = max(0, kept.lent - 1)
            self.make_room(0)

    def part(self, name: Name) -> Path:
        """Where to write what is on its way."""
        self._parts += 1
        path = self.path(name).with_suffix(f".{self._parts}.part")
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return path

    def keep(self, name: Name, part: Path) -> None:
        """Takes in what was written and has the digest."""
        size = part.stat().st_size
        self.make_room(size)
        self._forget(name)
        part.chmod(FILE_MODE)
        path = self.path(name)
        os.replace(part, path)
        self._kept[name] = _Kept(size, _look(path))
        self.bytes += size

    def make_room(self, size: int) -> None:
        """Removes what was used least lately until so many bytes more fit, or nothing is left that may go."""
        for name in [name for name, kept in self._kept.items() if not kept.lent]:
            if self.bytes + size <= self._bytes_max:
                return
            self._forget(name)

    def path(self, name: Name) -> Path:
        """Where a blob is, or would be."""
        return self._root / str(name.tenant) / name.digest.removeprefix("sha256:")

    def _forget(self, name: Name) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self.bytes -= kept.size
            self.path(name).unlink(missing_ok=True)

    def _take_stock(self) -> None:
        """What an earlier agent left, oldest first; checked when it is used."""
        found: list[tuple[int, Name, int]] = []
        for path in self._root.glob("*/*"):
            seen = path.lstat()
            if path.suffix or not stat.S_ISREG(seen.st_mode) or not path.parent.name.isdigit():
                path.unlink(missing_ok=True)
                continue
            found.append((seen.st_mtime_ns, Name(int(path.parent.name), f"sha256:{path.name}"), seen.st_size))
        for _, name, size in sorted(found):
            self._kept[name] = _Kept(size, None)
            self.bytes += size
        self.make_room(0)


def _look(path: Path) -> _Look | None:
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    return _Look(seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def has_digest(path: Path, digest: str) -> bool:
    """Whether the file is what the digest says."""
    sha = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(READ_BYTES):
                sha.update(piece)
    except OSError:
        return False
    return "sha256:" + sha.hexdigest() == digest
