"""The ready tasks kept in memory, in lines that the planner reads from the front.

A line holds the tasks of one tenant, lane and shape, earliest `start_by` first. Only a prefix of what is ready is here;
the rest waits in the database. What is here may be stale: the claim re-checks every row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

from headway.core.limits import Blocker


class ReadyTask(NamedTuple):
    """A ready task; the fields are the order to start in: earliest `start_by`, then shortest cap, then oldest."""

    start_by: float
    cap_ms: int
    id: int


class LineKey(NamedTuple):
    """Tasks that compete alike: same tenant, same lane, same shape."""

    tenant: int
    lane: int
    shape: int


_COMPACT_AT = 1024


class Line:
    """The ready tasks of one key, in order. Taking is from the front, arrival mostly at the end."""

    __slots__ = ("_head", "_tasks", "key", "parked", "parked_at", "placed_then")

    def __init__(self, key: LineKey) -> None:
        self.key = key
        self._tasks: list[ReadyTask] = []
        self._head = 0
        self.parked: Blocker | None = None
        """What it waits for, out of everybody's way; None while it takes part."""
        self.parked_at = 0.0
        self.placed_then = 0

    def __len__(self) -> int:
        return len(self._tasks) - self._head

    @property
    def first(self) -> ReadyTask:
        """The next one to start."""
        return self._tasks[self._head]

    @property
    def last(self) -> ReadyTask:
        """The last one held."""
        return self._tasks[-1]

    def add(self, task: ReadyTask) -> None:
        """Puts a task where it belongs."""
        if not self or task > self._tasks[-1]:
            self._tasks.append(task)
        else:
            insort(self._tasks, task, lo=self._head)

    def run_until(self, start_by: float, most: int) -> int:
        """How many from the front are due no later than `start_by` (at least one), up to `most`."""
        most = min(most, len(self))
        if self._tasks[self._head + most - 1].start_by <= start_by:
            return most
        border = bisect_right(self._tasks, (start_by, 1 << 62, 1 << 63), self._head, self._head + most)
        return max(border - self._head, 1)

    def take(self, count: int) -> list[ReadyTask]:
        """Removes the first `count`."""
        taken = self._tasks[self._head : self._head + count]
        self._head += count
        if self._head > _COMPACT_AT and self._head * 2 > len(self._tasks):
            del self._tasks[: self._head]
            self._head = 0
        return taken

    def position(self, task: ReadyTask) -> int:
        """How many of the line start before a task."""
        return bisect_left(self._tasks, task, lo=self._head) - self._head

    def drop(self, ids: frozenset[int]) -> None:
        """Removes tasks that are no longer ready."""
        self._tasks = [task for task in self._tasks[self._head :] if task.id not in ids]
        self._head = 0
