"""What a function worker is held to and works in: a control group with its share of memory, a directory for its files.

The promise: a worker that needs more memory than its share dies alone and the agent knows why; when it is gone, so is
everything it started, in whichever session, and everything it left in its directory.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import structlog

from headway.agent.runners.directories import Directories
from headway.agent.sandbox.groups import Groups, Held

_PAGE = os.sysconf("SC_PAGE_SIZE")

_log = structlog.get_logger("headway.agent.functions")


@dataclass(slots=True)
class Room:
    """One worker's."""

    directory: str
    held: Held | None
    memory_bytes: int | None
    is_overfull: bool = False
    """Whether it needed more memory than it has."""

    def looks(self, pid: int) -> bool:
        """Whether the worker is too large by its own account; for nodes whose control groups do not limit it."""
        if self.memory_bytes is None or (self.held is not None and "memory" in self.held.group.places):
            return False
        if self.is_overfull:  # it is being killed, and has nothing any more
            return True
        with contextlib.suppress(OSError, IndexError, ValueError):
            self.is_overfull = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE > self.memory_bytes
        return self.is_overfull

    def kill(self) -> None:
        """SIGKILL to everything in it."""
        if self.held is not None:
            self.held.group.kill()


class Rooms:
    """The rooms of a node's workers."""

    def __init__(self, groups: Groups, root: Path, memory_bytes: int | None = None) -> None:
        self._groups = groups
        self._directories = Directories(root)
        self.memory_bytes = memory_bytes

    def take(self) -> Room:
        """A fresh one. Raises OSError."""
        held = self._groups.take({} if self.memory_bytes is None else {"memory": self.memory_bytes})
        return Room(self._directories.take(), held, self.memory_bytes)

    def join(self, room: Room, pid: int) -> None:
        """Puts the worker in."""
        if room.held is not None:
            self._groups.join(room.held, pid)

    def give(self, room: Room) -> None:
        """The worker is dead: whatever else is in its room goes."""
        held, room.held = room.held, None
        if held is not None:
            room.is_overfull = room.is_overfull or self._groups.give(held).oom_kills > 0
        try:
            self._directories.give(room.directory)
        except OSError:
            _log.exception("could not tidy up after a worker", directory=room.directory)
