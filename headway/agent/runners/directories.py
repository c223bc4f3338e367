"""A private, empty working directory for every attempt, and beside it one for what it leaves.

Making them costs journal entries (about 1 ms where it was measured), so what an attempt left empty and
unchanged serves the next; what was used is removed, in a thread because it may be large. Whatever happens in a
directory or to it changes its time of change, so where that is as it was, nobody has to look.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

from headway.files.removing import remove

POOL_MAX = 256
WORK, ARTIFACTS = "work", "artifacts"
TICK_NS = 50_000_000
"""Two changes that are further apart than this have different times, whatever the kernel's clock ticks by."""
COARSE_NS = 10_000_000
"""A time that is a multiple of this may be of a file system that counts whole seconds."""

Sight = tuple[tuple[int, int, int], ...]


class Directories:
    """The working directories under `root`; what an earlier agent left there is removed first."""

    def __init__(self, root: Path, mode: int = 0o700) -> None:
        remove(root)
        root.mkdir(parents=True)
        root.chmod(mode)
        self._root = root
        self._made = 0
        self._empty: list[str] = []
        self._seen: dict[str, Sight] = {}
        """How directories looked when they were last found as good as new."""
        self._removals: set[asyncio.Future[None]] = set()

    @property
    def root(self) -> str:
        """Where they are."""
        return str(self._root)

    def take(self) -> str:
        """An empty directory to work in, and beside it one for artifacts."""
        if self._empty:
            return self._empty.pop()
        self._made += 1
        path = f"{self._root}/{self._made}"
        os.mkdir(path)
        os.chmod(path, 0o711)  # to go through, not to change
        for one in (WORK, ARTIFACTS):
            os.mkdir(f"{path}/{one}", 0o700)
        return f"{path}/{WORK}"

    def give(self, path: str) -> None:
        """An attempt is over and so is everything it started."""
        if len(self._empty) < POOL_MAX and self._is_fresh(path):
            self._empty.append(path)
            return
        self._seen.pop(path, None)
        removal = asyncio.get_running_loop().run_in_executor(None, remove, os.path.dirname(path))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def knows(self, path: str) -> bool:
        """Whether it is as good as new and was known to be, so that nobody has to look into it."""
        sight = _sight(path)
        return sight is not None and self._seen.get(path) == sight

    def _is_fresh(self, path: str) -> bool:
        if self.knows(path):
            return True
        sight = _sight(path)
        if not _is_fresh(path):
            return False
        if sight is not None:
            self._seen[path] = sight
        return True


def artifacts_of(directory: str) -> str:
    """Where the attempt that works in a directory leaves what is to be kept."""
    return f"{os.path.dirname(directory)}/{ARTIFACTS}"


def _sight(path: str) -> Sight | None:
    """How a directory and those in it look; None when it is not sure that the next change would show."""
    try:
        seen = [os.lstat(one) for one in (os.path.dirname(path), path, artifacts_of(path))]
    except OSError:
        return None
    young = time.time_ns() - TICK_NS
    if any(one.st_ctime_ns > young or one.st_ctime_ns % COARSE_NS == 0 for one in seen):
        return None
    return tuple((one.st_dev, one.st_ino, one.st_ctime_ns) for one in seen)


def _is_fresh(path: str) -> bool:
    try:
        return _holds(os.path.dirname(path), 0o711, {WORK, ARTIFACTS}) and all(
            _holds(one, 0o700, set()) for one in (path, artifacts_of(path))
        )
    except OSError:
        return False


def _holds(path: str, mode: int, names: set[str]) -> bool:
    seen = os.lstat(path)
    is_plain = stat.S_ISDIR(seen.st_mode) and stat.S_IMODE(seen.st_mode) == mode and not os.listxattr(path)
    return is_plain and set(os.listdir(path)) == names
