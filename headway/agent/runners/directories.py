"""A private, empty working directory for every attempt, and beside it one for what it leaves.

Making them costs journal entries (about 1 ms where it was measured), so what an attempt left empty and
unchanged serves the next; what was used is removed, in a thread because it may be large.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from pathlib import Path

POOL_MAX = 256
WORK, ARTIFACTS = "work", "artifacts"


class Directories:
    """The working directories under `root`; what an earlier agent left there is removed first."""

    def __init__(self, root: Path, mode: int = 0o700) -> None:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        root.chmod(mode)
        self._root = root
        self._made = 0
        self._empty: list[str] = []
        self._removals: set[asyncio.Future[None]] = set()

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
        if len(self._empty) < POOL_MAX and _is_fresh(path):
            self._empty.append(path)
            return
        removal = asyncio.get_running_loop().run_in_executor(None, remove, os.path.dirname(path))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)


def artifacts_of(directory: str) -> str:
    """Where the attempt that works in a directory leaves what is to be kept."""
    return f"{os.path.dirname(directory)}/{ARTIFACTS}"


def remove(path: str) -> None:
    """Removes a directory with all there is in it; also, where the agent is not root, what its owner shut."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.chmod(path, 0o700)
        for directory, names, _ in os.walk(path):
            for name in names:
                if not os.path.islink(f"{directory}/{name}"):
                    os.chmod(f"{directory}/{name}", 0o700)
        shutil.rmtree(path, ignore_errors=True)


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
