"""The ready tasks kept in memory, in lines that the planner reads from the front.

A line holds the tasks of one tenant, lane and shape, earliest `start_by` first. Only a prefix of what is ready is here;
the rest waits in the database. What is here may be stale: the claim re-checks every row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from headway.core.fairness import Use
from headway.core.limits import Blocker
from headway.core.nodes import Footprint
from headway.core.placement import Shape


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

    __slots__ = (
        "_head", "_tasks", "due", "first", "footprint", "is_known", "key", "parked", "part", "part_of", "presses_at",
        "serial", "shape", "tier", "tier_use", "use",
    )  # fmt: skip
    first: ReadyTask
    """The next one to start. A value, not a question, for it is asked half a dozen times a decision; of an empty line
    it says nothing."""
    shape: Shape
    """The shape of its tasks. This and the next four are there once it `is_known`."""
    footprint: Footprint
    """What its tasks ask of a node."""
    tier: str
    """The tier of its tasks."""
    use: Use
    """What its tenant uses in its tier."""
    tier_use: Use
    """What its tier uses."""

    def __init__(self, key: LineKey, serial: int) -> None:
        self.key = key
        self.serial = serial
        """Unlike that of any other line there was."""
        self._tasks: list[ReadyTask] = []
        self._head = 0
        self.is_known = False
        """Whether its shape was learnt."""
        self.part = 0.0
        """Which part of the pool one of its tasks is, as of the size of the pool that `part_of` numbers."""
        self.part_of = -1
        self.parked: Blocker | None = None
        """What it waits for, out of everybody's way; None while it takes part. See `park`."""
        self.due: float | None = None
        """When the next one must start; None when there is none, or the line does not take part."""
        self.presses_at: float | None = None
        """When the planner will look whether its head presses; None when it has no such appointment."""

    def __len__(self) -> int:
        return len(self._tasks) - self._head

    def __lt__(self, other: Line) -> bool:
        return self.serial < other.serial

    def learn(self, shape: Shape, footprint: Footprint, use: Use, tier_use: Use) -> None:
        """What its number stands for is known, and on whose account it goes."""
        self.shape, self.footprint, self.use, self.tier_use = shape, footprint, use, tier_use
        self.tier, self.is_known = shape.tier, True

    @property
    def last(self) -> ReadyTask:
        """The last one held."""
        return self._tasks[-1]

    def park(self, blocker: Blocker | None) -> None:
        """Takes the line out of everybody's way, or lets it take part again."""
        self.parked = blocker
        self._heed_head()

    def add(self, task: ReadyTask) -> None:
        """Puts a task where it belongs."""
        if not self or task > self._tasks[-1]:
            self._tasks.append(task)
        else:
            insort(self._tasks, task, lo=self._head)
        self._heed_head()

    def run_until(self, start_by: float, most: int) -> int:
        """How many from the front are due no later than `start_by` (at least one), up to `most`."""
        tasks, head = self._tasks, self._head
        if most > len(tasks) - head:
            most = len(tasks) - head
        if most <= 1 or tasks[head + most - 1].start_by <= start_by:
            return most
        border = bisect_right(tasks, (start_by, 1 << 62, 1 << 63), head, head + most)
        return max(border - head, 1)

    def take(self, count: int) -> list[ReadyTask]:
        """Removes the first `count`."""
        head = self._head
        taken = self._tasks[head : head + count]
        self._head = head = head + count
        if head > _COMPACT_AT and head * 2 > len(self._tasks):
            del self._tasks[:head]
            self._head = 0
        self._heed_head()
        return taken

    def position(self, task: ReadyTask) -> int:
        """How many of the line start before a task."""
        return bisect_left(self._tasks, task, lo=self._head) - self._head

    def dues(self, most: int) -> list[float]:
        """When tasks of the line are due: up to `most` of them evenly spaced, the last one among them."""
        count = len(self)
        picks = min(most, count)
        return [self._tasks[self._head + (count * (n + 1)) // picks - 1].start_by for n in range(picks)]

    def parts(self, most: int) -> Iterator[tuple[ReadyTask, ReadyTask, int]]:
        """The line in up to `most` even parts: the first and the last task of each, and how many there are."""
        count, head = len(self), self._head
        picks = min(most, count)
        borders = [count * n // picks for n in range(picks)] + [count]
        for begin, end in pairwise(borders):
            yield self._tasks[head + begin], self._tasks[head + end - 1], end - begin

    def drop(self, ids: set[int]) -> None:
        """Removes tasks that are no longer ready."""
        self._tasks = [task for task in self._tasks[self._head :] if task.id not in ids]
        self._head = 0
        self._heed_head()

    def _heed_head(self) -> None:
        if self._head < len(self._tasks):
            first = self.first = self._tasks[self._head]
            self.due = first.start_by if self.parked is None else None
        else:
            self.due = None
