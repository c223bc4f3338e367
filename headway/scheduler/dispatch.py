"""Plan, claim, send: the leader's inner loop.

`plan` decides without waiting; the claim makes the decision durable and re-checks it; only then does anything leave for
a node. Two of these loops run side by side, so that one plans while the other waits for the database.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
import structlog

from headway.core.place import Placement
from headway.core.placement import Shape
from headway.core.plan import Planner
from headway.core.queue import LineKey
from headway.scheduler.books import Books, Holding
from headway.scheduler.names import Names
from headway.scheduler.refill import Refill
from headway.scheduler.sessions import Session
from headway.store.queue import QueueStore
from headway.store.rows import Claimed, Named
from headway.store.tasks import TaskStore
from headway.wire import Assignment, Dispatch

CLAIM_MAX = 1000
"""Tasks in one claim: 500 to 1,000 is where the cost per task stops falling."""
LOOPS = 2
GONE_NODE = -1
"""Stands for a node whose room is gone."""
_shape = msgspec.json.Decoder(Shape).decode
_log = structlog.get_logger("headway.scheduler")


class Dispatching:
    """Moves tasks from the queue to nodes."""

    def __init__(
        self,
        *,
        queue_store: QueueStore,
        task_store: TaskStore,
        planner: Planner,
        books: Books,
        refill: Refill,
        names: Names,
        session_of: Callable[[int], Session | None],
        now: Callable[[], float],
    ) -> None:
        self._queue_store = queue_store
        self._task_store = task_store
        self._planner = planner
        self._books = books
        self._refill = refill
        self._names = names
        self._session_of = session_of
        self._now = now
        self.epoch = 0
        self.dispatched = 0
        self._claiming: Counter[int] = Counter()
        self.deferred: dict[LineKey, int] = {}
        """How many tasks of each line wait for off-peak hours, as of the last look."""
        self.released = 0
        """How many of such have started since."""
        self.wake = asyncio.Event()
        self.low = asyncio.Event()

    async def run(self) -> None:
        """Dispatches for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(LOOPS):
                group.create_task(self._dispatch_for_ever())
            group.create_task(self._top_up_for_ever())

    async def _dispatch_for_ever(self) -> None:
        while True:
            await self._until_woken()
            self.wake.clear()
            while await self.run_once():
                pass

    async def _until_woken(self) -> None:
        """Until something happened, or a dispatch rate lets the next one through."""
        opening = self._planner.limits.next_opening()
        seconds = None if opening is None else max(opening - self._now(), 0.0)
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            pass

    async def _top_up_for_ever(self) -> None:
        while True:
            await self.low.wait()
            self.low.clear()
            if await self._refill.top_up():
                self.wake.set()

    async def run_once(self) -> int:
        """One round; answers how many tasks it placed."""
        await self._learn_shapes()
        placed = self._planner.plan(self._now(), most=CLAIM_MAX)
        if self._refill.wanting:
            self.low.set()
        if not placed:
            return 0
        if self.deferred:
            self._count_released(placed)
        shapes = [placement.key.shape for placement in placed]
        self._claiming.update(shapes)
        try:
            await self._claim_and_send(placed)
        finally:
            self._claiming.subtract(shapes)
        return sum(len(placement.tasks) for placement in placed)

    def shapes(self) -> set[int]:
        """The shapes of what is being claimed: in no line any more, and in no book yet."""
        self._claiming = +self._claiming
        return set(self._claiming)

    def _count_released(self, placed: list[Placement]) -> None:
        for placement in placed:
            waited = min(self.deferred.get(placement.key, 0), len(placement.tasks))
            if waited:
                self.deferred[placement.key] -= waited
                self.released += waited

    async def _learn_shapes(self) -> None:
        """Reads the shapes of lines that were never planned before."""
        missing = [line.key for line in self._planner.fresh_lines() if not self._planner.nodes.knows(line.key.shape)]
        if missing:
            await self.learn([(key.tenant, key.shape) for key in missing])

    async def learn(self, wanted: list[tuple[int, int]]) -> None:
        """Reads (tenant, shape) from the database."""
        for number, body in (await self._task_store.read_shapes(wanted)).items():
            self._planner.nodes.learn(number, _shape(body))
            self._planner.learned(number)

    async def _claim_and_send(self, placed: list[Placement]) -> None:
        wanted = [(p.key.tenant, task.id, p.node) for p in placed for task in p.tasks]
        placements = {(p.key.tenant, task.id): p for p in placed for task in p.tasks}
        sessions = {p.node: self._session_of(p.node) for p in placed}
        claimed = await self._queue_store.claim(self.epoch, wanted)
        if len(claimed) < len(wanted):
            self._return_room(placed, {(c.tenant, c.id) for c in claimed}, sessions)
        claimed = await self._without_held(claimed, placements, sessions)
        orders: dict[int, list[Claimed]] = {}
        for one in claimed:
            orders.setdefault(one.node, []).append(one)
        for node, order in orders.items():
            session = sessions[node]
            if session is not None and session is self._session_of(node):
                self._send(session, order, placements)
            else:
                await self._take_back(order, placements)
        self.dispatched += len(claimed)

    def _send(self, session: Session, order: list[Claimed], placements: dict[tuple[int, int], Placement]) -> None:
        now = self._now()
        assignments: list[Assignment] = []
        for one in order:
            placement = placements[one.tenant, one.id]
            holding = Holding(one.attempt, one.claims, placement.key, placement.express, now + one.cap_ms / 1000)
            self._books.enter(one.node, (one.tenant, one.id), holding)
            shape = self._planner.nodes.shape(placement.key.shape)
            assignments.append(
                Assignment(
                    one.tenant,
                    one.id,
                    one.attempt,
                    one.kind,
                    shape.needs,
                    one.cap_ms,
                    one.grace_ms,
                    one.spec,
                    shape.profile,
                    shape.checkpoints,
                    one.checkpoint,
                )
            )
        session.send(Dispatch(assignments))

    async def _without_held(
        self,
        claimed: list[Claimed],
        placements: dict[tuple[int, int], Placement],
        sessions: dict[int, Session | None],
    ) -> list[Claimed]:
        """What may be sent. The others are of a name that was paused a moment ago: they go back, to where it holds."""
        held = [one for one in claimed if self._names.holds(placements[one.tenant, one.id].key, one.name)]
        if not held:
            return claimed
        now = self._now()
        for one in held:
            placement = placements[one.tenant, one.id]
            there = sessions[one.node] is self._session_of(one.node)
            node = one.node if there else GONE_NODE
            self._planner.ended(node, placement.key, 1, now, express=placement.express)
        await self._queue_store.release([(one.tenant, one.id, one.claims) for one in held])
        for tenant in {one.tenant for one in held}:
            mine = [one for one in held if one.tenant == tenant]
            await self._names.move(tenant, [Named(o.id, placements[tenant, o.id].key.shape, o.name) for o in mine])
        kept = {(one.tenant, one.id) for one in held}
        return [one for one in claimed if (one.tenant, one.id) not in kept]

    async def _take_back(self, order: list[Claimed], placements: dict[tuple[int, int], Placement]) -> None:
        """The node left or came back while its claim was being made: nothing was sent, so nothing began. Its room went
        with it; what the tenant holds and the limits are given back."""
        now = self._now()
        for one in order:
            placement = placements[one.tenant, one.id]
            self._planner.ended(GONE_NODE, placement.key, 1, now, express=placement.express)
        for line, task in await self._queue_store.release([(one.tenant, one.id, one.claims) for one in order]):
            self._refill.offer(line, [task])
        self.wake.set()

    def _return_room(
        self, placed: list[Placement], claimed: set[tuple[int, int]], sessions: dict[int, Session | None]
    ) -> None:
        """What was not ready any more occupies nothing."""
        now = self._now()
        for placement in placed:
            lost = sum((placement.key.tenant, task.id) not in claimed for task in placement.tasks)
            if lost:
                there = sessions[placement.node] is self._session_of(placement.node)
                node = placement.node if there else GONE_NODE
                self._planner.ended(node, placement.key, lost, now, express=placement.express)
