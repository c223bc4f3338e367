"""Holds the waiting tasks of paused names: moves them to shapes that say so, whose lines the planner parks.

The promise: from when the leader knows of a pause, nothing of that name starts. What waits is moved in parts, however
much it is; whatever is claimed before its turn to be moved has come, or was accepted by a gateway that did not know
yet, is found out by its name and taken back unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headway.core.names import PausedNames, by_tenant
from headway.core.placement import Shape, number_of
from headway.core.plan import Planner
from headway.core.queue import LineKey, ReadyTask
from headway.scheduler.refill import Refill
from headway.store.queue import QueueStore
from headway.store.rows import Named
from headway.store.tasks import TaskStore

PART = 2000
"""Rows looked through in one statement: some 10 ms."""
_shape = msgspec.json.Decoder(Shape).decode


class _Move(NamedTuple):
    task: int
    shape: int


class Names:
    """What is paused by name, and what still has to be moved."""

    def __init__(self, queue_store: QueueStore, task_store: TaskStore, planner: Planner, refill: Refill) -> None:
        self._queue_store = queue_store
        self._task_store = task_store
        self._planner = planner
        self._refill = refill
        self._paused: dict[int, PausedNames] = {}
        self._known: frozenset[tuple[int, str]] = frozenset()
        self._unswept: set[int] = set()
        self._wake = asyncio.Event()

    def clear(self) -> None:
        """Forgets all: the leadership begins anew, and so does the search for what is to be moved."""
        self.heed(frozenset())

    def heed(self, paused: frozenset[tuple[int, str]]) -> None:
        """What is paused was changed."""
        self._unswept |= {tenant for tenant, _ in paused - self._known}
        self._known, self._paused = paused, by_tenant(paused)
        self._unswept &= self._paused.keys()
        if self._unswept:
            self._wake.set()

    async def run(self) -> None:
        """Moves what is held, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unswept:
                await self._sweep(self._unswept.pop())

    def holds(self, line: LineKey, name: str) -> bool:
        """Whether a task is held that the planner could not know of: its shape does not say so."""
        paused = self._paused.get(line.tenant)
        if paused is None or not paused.holds(name):
            return False
        return not set(paused.hold(name)) <= set(self._planner.nodes.shape(line.shape).hold)

    async def move(self, tenant: int, tasks: Iterable[Named]) -> None:
        """Gives tasks the shapes that hold them, and the planner the lines."""
        moves = await self._moves(tenant, list(tasks))
        if not moves:
            return
        moved = await self._queue_store.reshape(tenant, [m.task for m in moves], [m.shape for m in moves])
        self._planner.drop([task.id for _, task in moved])
        lines: dict[LineKey, list[ReadyTask]] = {}
        for line, task in moved:
            lines.setdefault(line, []).append(task)
        for line, ready in lines.items():
            self._refill.offer(line, ready)

    async def _sweep(self, tenant: int) -> None:
        """Looks through all unfinished tasks of a tenant. One that runs may have to wait again."""
        after: int | None = 0
        while after is not None and (paused := self._paused.get(tenant)) is not None:
            found, after = await self._queue_store.named(
                tenant, sorted(paused.exact), list(paused.prefixes), after, PART
            )
            await self.move(tenant, found)

    async def _moves(self, tenant: int, tasks: list[Named]) -> list[_Move]:
        """Where each has to go; not those that are there."""
        paused = self._paused.get(tenant)
        if paused is None or not tasks:
            return []
        bodies = await self._task_store.read_shapes([(tenant, number) for number in {one.shape for one in tasks}])
        fresh: dict[tuple[int, tuple[str, ...]], int] = {}
        new_bodies: dict[int, str] = {}
        moves: list[_Move] = []
        for one in tasks:
            hold = paused.hold(one.name)
            shape = _shape(bodies[one.shape])
            if set(hold) <= set(shape.hold):
                continue
            if (one.shape, hold) not in fresh:
                number, body = number_of(msgspec.structs.replace(shape, hold=hold))
                fresh[one.shape, hold], new_bodies[number] = number, body
            moves.append(_Move(one.task, fresh[one.shape, hold]))
        if new_bodies:
            await self._task_store.keep_shapes([(tenant, number, body) for number, body in new_bodies.items()])
        return moves
