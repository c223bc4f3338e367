"""Keeps the leader's lines filled from the database: the prefix of each, however deep the backlog behind it.

A line is `open` while the database may hold ready tasks behind the last one read. A closed line is known entirely, so a
task accepted in this process goes straight into it; on an open one a task beyond the horizon stays in the database,
where reading on will find it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from headway.core.plan import Planner
from headway.core.queue import LineKey, ReadyTask
from headway.store.queue import BEGINNING, Horizon, QueueStore

LINE_TASKS = 4000
"""How many tasks of a line are held at most, and how many one read asks for; fewer when there are many lines."""
LINE_TASKS_LEAST = 64
HELD_TASKS = 64_000
LINES_PER_READ = 256
GLANCE_TASKS = 64
"""How many of a line are looked at that is known: if they are, so is what is behind them, as far as its horizon."""
GLANCES = 10
"""After how many such looks everything is read, for what another server put farther back unheard."""
DEPTH_LINES = 16
DEPTH_MAX = 20_000
"""How many lines are counted at a time, and how far: 20,000 entries of the index are a few milliseconds."""


class Refill:
    """Knows for each line how far it was read."""

    def __init__(self, store: QueueStore, queue: Planner) -> None:
        self._store = store
        self._queue = queue
        self._horizons: dict[LineKey, Horizon] = {}
        self._open: set[LineKey] = set()
        self._missed: set[LineKey] = set()
        self._behind: dict[LineKey, int] = {}
        self._measured: LineKey | None = None
        self._glances = 0

    def clear(self) -> None:
        """Forgets all horizons; the next `discover` reads everything anew."""
        self._horizons.clear()
        self._open.clear()
        self._missed.clear()
        self._behind.clear()

    async def discover(self, *, everything: bool = True) -> int:
        """Reads the prefix of every line that has ready tasks, whoever put them there; answers how many were new. Where
        nobody said that there is anything, a glance at those that are known will do: with many lines, to read them all
        took a tenth of the server's time."""
        keys = await self._store.ready_keys()
        for key in self._horizons.keys() - set(keys):
            if key not in self._missed and self._queue.line(key) is None:
                self._forget(key)
        self._glances = 0 if everything else self._glances + 1
        known = {key for key in keys if key in self._horizons} if self._glances % GLANCES else set[LineKey]()
        new, deeper = await self._glance(sorted(known))
        return new + await self._read(dict.fromkeys([*(key for key in keys if key not in known), *deeper], BEGINNING))

    async def _glance(self, known: list[LineKey]) -> tuple[int, list[LineKey]]:
        """Takes in the first tasks of lines; answers how many were new, and where there may be more that are: where the
        last one was. The first may only just have been claimed."""
        new, deeper = 0, list[LineKey]()
        for part in _parts(known):
            for key, tasks in (await self._first(dict.fromkeys(part, BEGINNING), GLANCE_TASKS)).items():
                new += self._queue.offer(key, tasks[:-1])
                if tasks and self._queue.offer(key, tasks[-1:]):
                    new += 1
                    deeper.append(key)
        return new, deeper

    async def _first(self, lines: dict[LineKey, Horizon], most: int) -> dict[LineKey, list[ReadyTask]]:
        """Up to so many tasks of each line behind its horizon."""
        read: dict[LineKey, list[ReadyTask]] = {key: [] for key in lines}
        for key, task in await self._store.ready_after(lines, most):
            read[key].append(task)
        return read

    async def top_up(self) -> int:
        """Reads on where a line that has more in the database runs low; answers how many were new."""
        low = self._line_tasks() // 2
        wanting = {
            key: self._horizons.get(key, BEGINNING)
            for key in self._open
            if (line := self._queue.line(key)) is None or len(line) < low
        }
        return await self._read(wanting)

    async def measure(self) -> None:
        """Counts what waits in the database behind the horizons, up to a bound: it drifts with what other servers
        accept."""
        lines = sorted(self._open & self._horizons.keys())
        start = bisect_right(lines, self._measured) if self._measured is not None else 0
        some = (lines[start:] + lines[:start])[:DEPTH_LINES]
        if some:
            self._measured = some[-1]
            self._behind.update(await self._store.ready_depths({key: self._horizons[key] for key in some}, DEPTH_MAX))

    def behind(self, key: LineKey) -> int:
        """How many tasks of a line wait in the database and are not held here, as far as known."""
        return self._behind.get(key, 0) if key in self._open else 0

    @property
    def wanting(self) -> bool:
        """Whether some open line runs low."""
        low = self._line_tasks() // 2
        return any((line := self._queue.line(key)) is None or len(line) < low for key in self._open)

    def offer(self, key: LineKey, tasks: Iterable[ReadyTask]) -> int:
        """Takes in tasks that just became ready in this process; answers how many were taken."""
        fresh = sorted(tasks)
        horizon = self._horizons.get(key, BEGINNING)
        if key in self._open:
            within = [task for task in fresh if task <= horizon]
            if len(within) < len(fresh):
                self._missed.add(key)
                self._behind[key] = self._behind.get(key, 0) + len(fresh) - len(within)
            return self._queue.offer(key, within)
        line = self._queue.line(key)
        room = self._line_tasks() - (len(line) if line is not None else 0)
        inner = [task for task in fresh if task <= horizon]
        outer = [task for task in fresh if task > horizon]
        if len(outer) > room:
            self._behind[key] = len(outer) - max(room, 0)
            outer = outer[: max(room, 0)]
            self._open.add(key)
            self._missed.add(key)
        if outer:
            self._horizons[key] = outer[-1]
        return self._queue.offer(key, inner + outer)

    async def _read(self, lines: dict[LineKey, Horizon]) -> int:
        most = self._line_tasks()
        new = 0
        for keys in _parts(list(lines)):
            self._missed.difference_update(keys)
            new += self._take_in(await self._first({key: lines[key] for key in keys}, most), most)
        return new

    def _take_in(self, read: dict[LineKey, list[ReadyTask]], most: int) -> int:
        new = 0
        for key, tasks in read.items():
            taken = self._queue.offer(key, tasks)
            new += taken
            if key in self._behind:
                self._behind[key] = max(self._behind[key] - taken, 0)
            if len(tasks) >= most:
                self._horizons[key] = tasks[-1]
                self._open.add(key)
            elif key not in self._missed:
                self._horizons[key] = max(self._horizons.get(key, BEGINNING), tasks[-1] if tasks else BEGINNING)
                self._open.discard(key)
        return new

    def _line_tasks(self) -> int:
        return min(LINE_TASKS, max(HELD_TASKS // max(len(self._horizons), 1), LINE_TASKS_LEAST))

    def _forget(self, key: LineKey) -> None:
        self._behind.pop(key, None)
        self._horizons.pop(key, None)
        self._open.discard(key)


def _parts(keys: list[LineKey]) -> Iterator[list[LineKey]]:
    return (keys[low : low + LINES_PER_READ] for low in range(0, len(keys), LINES_PER_READ))
