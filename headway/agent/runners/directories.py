"""A private, empty working directory for every attempt.

Making one costs a journal entry (about 1 ms where it was measured), so a directory that an attempt left empty
and unchanged serves the next; one that was used is removed, in a thread because it may be large.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path

POOL_MAX = 256


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
        """An empty directory."""
        if self._empty:
            return self._empty.pop()
        self._made += 1
        path = f"{self._root}/{self._made}"
        os.mkdir(path, 0o700)
        return path

    def give(self, path: str) -> None:
        """An attempt is over and so is everything it started."""
        if len(self._empty) < POOL_MAX and _is_fresh(path):
            self._empty.append(path)
            return
        removal = asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, path, True)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)


def _is_fresh(path: str) -> bool:
    try:
        is_private = stat.S_IMODE(os.lstat(path).st_mode) == 0o700
        return is_private and not os.listdir(path) and not os.listxattr(path)
    except OSError:
        return False
