"""The leader's queue: the ready tasks kept in memory, in lines that the planner reads from the front.

A line holds the tasks of one tenant, lane and shape, earliest `start_by` first. Only a prefix of what is ready is here;
the rest waits in the database. What is here may be stale: the claim re-checks every row.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple

from headway.core.lifecycle import Lane


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

    __slots__ = ("_head", "_tasks", "key")

    def __init__(self, key: LineKey) -> None:
        self.key = key
        self._tasks: list[ReadyTask] = []
        self._head = 0

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

    def drop(self, ids: frozenset[int]) -> None:
        """Removes tasks that are no longer ready."""
        self._tasks = [task for task in self._tasks[self._head :] if task.id not in ids]
        self._head = 0


class ReadyQueue:
    """All lines, and by lane the order in which their heads are due."""

    def __init__(self) -> None:
        self._lines: dict[LineKey, Line] = {}
        self._held: set[int] = set()
        self._due: dict[int, list[tuple[float, LineKey]]] = {lane.value: [] for lane in Lane}
        self._fresh: list[Line] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, task: int) -> bool:
        return task in self._held

    def line(self, key: LineKey) -> Line | None:
        """A line that was ever used."""
        return self._lines.get(key)

    def offer(self, key: LineKey, tasks: Iterable[ReadyTask]) -> int:
        """Takes ready tasks in; those already held change nothing. Answers how many were new."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key)
            self._fresh.append(line)
        before, known = self._head_of(line), len(line)
        for task in tasks:
            if task.id not in self._held:
                self._held.add(task.id)
                line.add(task)
        if line and self._head_of(line) < before:
            heapq.heappush(self._due[key.lane], (line.first.start_by, key))
        return len(line) - known

    def next_line(self, lane: int) -> Line | None:
        """Takes the line whose head is due first off the lane's order; give it back by `put_back`."""
        due = self._due[lane]
        while due:
            start_by, key = heapq.heappop(due)
            line = self._lines.get(key)
            if line and line.first.start_by == start_by:
                return line
        return None

    def due_next(self, lane: int) -> float:
        """When the head of the line now first in the lane is due; infinity when there is none."""
        due = self._due[lane]
        while due:
            start_by, key = due[0]
            line = self._lines.get(key)
            if line and line.first.start_by == start_by:
                return start_by
            heapq.heappop(due)
        return float("inf")

    def take(self, line: Line, count: int) -> list[ReadyTask]:
        """Removes the first `count` tasks of a line."""
        taken = line.take(count)
        self._held.difference_update([task.id for task in taken])
        return taken

    def put_back(self, line: Line) -> None:
        """Returns a line taken by `next_line` to its lane's order; an empty one is forgotten."""
        if line:
            heapq.heappush(self._due[line.key.lane], (line.first.start_by, line.key))
        else:
            self._lines.pop(line.key, None)

    def drop(self, ids: Iterable[int]) -> None:
        """Forgets tasks that were cancelled."""
        gone = frozenset(ids) & self._held
        if not gone:
            return
        self._held -= gone
        for line in self._lines.values():
            if line:
                head = line.first.start_by
                line.drop(gone)
                if line and line.first.start_by != head:
                    heapq.heappush(self._due[line.key.lane], (line.first.start_by, line.key))

    def clear(self) -> None:
        """Forgets everything: the leadership is lost or begins anew."""
        self.__init__()

    def fresh_lines(self) -> list[Line]:
        """The lines that appeared since this was last asked."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def lines(self) -> Iterable[Line]:
        """Every line that holds something."""
        return [line for line in self._lines.values() if line]

    @staticmethod
    def _head_of(line: Line) -> float:
        return line.first.start_by if line else float("inf")
