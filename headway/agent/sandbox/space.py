"""What a task takes of a disk: files with all their names, files that have none any more, and directories.

The folder is the task's, who may change it meanwhile: nothing is followed out of it, nothing opened but directories,
and it is left as soon as the task has more than it may have. What was removed but is still open, or mapped, is found
with the processes that hold it. What is on its way between two processes (a descriptor in a message that nobody has
received) is not seen.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headway.files.tree import entered

DEPTH_MAX = 256
"""Directories within directories: one descriptor is held for each while they are looked through."""
BLOCK_BYTES = 512
"""In which stat(2) counts, on every filesystem."""
_REMOVED = b" (deleted)\n"


class TooDeep(Exception):
    """Directories are nested deeper than they can be looked through."""


@dataclass(slots=True)
class Space:
    """What was found so far. Each file counts once, however many names it has and whoever holds it open."""

    size_max: int
    files_max: int
    size: int = 0
    files: int = 0
    devices: set[int] = field(default_factory=set[int])
    """Where what counts is: what is removed on others, such as /tmp, is memory."""
    _known: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    @property
    def is_too_much(self) -> bool:
        """Whether more need not be looked at."""
        return self.size > self.size_max or self.files > self.files_max

    def add_folder(self, path: str) -> None:
        """Everything below a path. Raises TooDeep."""
        fd = entered(path, None)
        if fd < 0:
            return
        self.devices.add(os.fstat(fd).st_dev)
        self._walk(fd)

    def add_removed(self, pids: Iterable[int]) -> None:
        """What has no name any more and is held by these processes."""
        for pid in pids:
            self.devices |= _overlays(pid)
            for found in (*_open_files(pid), *_mapped_files(pid)):
                is_here = found.st_dev in self.devices and stat.S_ISREG(found.st_mode)
                if is_here and not found.st_nlink:
                    self._add(found)
                if self.is_too_much:
                    return

    def _walk(self, fd: int) -> None:
        held = [fd]
        try:
            names = [self._looked_at(fd)]
            while held and not self.is_too_much:
                if not names[-1]:
                    names.pop()
                    os.close(held.pop())
                elif (below := entered(names[-1].pop(), held[-1])) >= 0:
                    held.append(below)
                    if len(held) > DEPTH_MAX:
                        raise TooDeep
                    names.append(self._looked_at(below))
        finally:
            for each in held:
                os.close(each)

    def _looked_at(self, fd: int) -> list[str]:
        """Counts what is in an open directory; the names of those in it."""
        directories: list[str] = []
        with contextlib.suppress(OSError), os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    self._add(found)
                    if stat.S_ISDIR(found.st_mode):
                        directories.append(entry.name)
                if self.is_too_much:
                    break
        return directories

    def _add(self, found: os.stat_result) -> None:
        if found.st_nlink != 1 and not stat.S_ISDIR(found.st_mode):
            identity = (found.st_dev, found.st_ino)
            if identity in self._known:
                return
            self._known.add(identity)
        self.size += found.st_blocks * BLOCK_BYTES
        self.files += 1


def _overlays(pid: int) -> set[int]:
    """The devices of roots that a process can change."""
    found: set[int] = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/mountinfo", "rb") as mounts:
        for line in mounts:
            if b" - overlay " in line:
                major, minor = line.split(b" ", 3)[2].split(b":")
                found.add(os.makedev(int(major), int(minor)))
    return found


def _open_files(pid: int) -> Iterator[os.stat_result]:
    place = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            with contextlib.suppress(OSError):
                yield os.stat(f"{place}/{name}")


def _mapped_files(pid: int) -> Iterator[os.stat_result]:
    """Of what is mapped, what was removed."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            if line.endswith(_REMOVED):
                with contextlib.suppress(OSError):  # the agent has to be root
                    yield os.stat(f"/proc/{pid}/map_files/{line.split(b' ', 1)[0].decode()}")
