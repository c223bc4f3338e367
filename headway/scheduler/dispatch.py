"""Plan, claim, send: the leader's inner loop.

`plan` decides without waiting; the claim makes the decision durable and re-checks it; only then does anything leave for
a node. Two of these loops run side by side, so that one plans while the other waits for the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from headway.core.placement import Nodes, Shape
from headway.core.plan import Placement, plan
from headway.core.queue import LineKey, ReadyQueue
from headway.scheduler.books import Books, Holding
from headway.scheduler.refill import Refill
from headway.scheduler.sessions import Session
from headway.store.queue import QueueStore
from headway.store.rows import Claimed
from headway.store.tasks import TaskStore
from headway.wire import Assignment, Dispatch, Key

CLAIM_MAX = 1000
"""Tasks in one claim: 500 to 1,000 is where the cost per task stops falling."""
LOOPS = 2
_shape = msgspec.json.Decoder(Shape).decode
_log = structlog.get_logger("headway.scheduler")


class Dispatching:
    """Moves tasks from the queue to nodes."""

    def __init__(
        self,
        *,
        queue_store: QueueStore,
        task_store: TaskStore,
        queue: ReadyQueue,
        nodes: Nodes,
        books: Books,
        refill: Refill,
        session_of: Callable[[int], Session | None],
    ) -> None:
        self._queue_store = queue_store
        self._task_store = task_store
        self._queue = queue
        self._nodes = nodes
        self._books = books
        self._refill = refill
        self._session_of = session_of
        self.epoch = 0
        self.dispatched = 0
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
            await self.wake.wait()
            self.wake.clear()
            while await self.run_once():
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
        placed = plan(self._queue, self._nodes, most=CLAIM_MAX)
        if self._refill.wanting:
            self.low.set()
        if not placed:
            return 0
        await self._claim_and_send(placed)
        return sum(len(placement.tasks) for placement in placed)

    async def _learn_shapes(self) -> None:
        """Reads the shapes of lines that were never planned before."""
        missing = [line.key for line in self._queue.fresh_lines() if not self._nodes.knows(line.key.shape)]
        if missing:
            await self.learn([(key.tenant, key.shape) for key in missing])

    async def learn(self, wanted: list[tuple[int, int]]) -> None:
        """Reads (tenant, shape) from the database."""
        for number, body in (await self._task_store.read_shapes(wanted)).items():
            self._nodes.learn(number, _shape(body))

    async def _claim_and_send(self, placed: list[Placement]) -> None:
        wanted = [(p.key.tenant, task.id, p.node) for p in placed for task in p.tasks]
        lines = {(p.key.tenant, task.id): p.key for p in placed for task in p.tasks}
        sessions = {p.node: self._session_of(p.node) for p in placed}
        claimed = await self._queue_store.claim(self.epoch, wanted)
        if len(claimed) < len(wanted):
            self._return_room(placed, {(c.tenant, c.id) for c in claimed})
        orders: dict[int, list[Claimed]] = {}
        for one in claimed:
            orders.setdefault(one.node, []).append(one)
        for node, order in orders.items():
            session = sessions[node]
            if session is not None and session is self._session_of(node):
                self._send(session, order, lines)
            else:
                await self._take_back(order)
        self.dispatched += len(claimed)

    def _send(self, session: Session, order: list[Claimed], lines: dict[tuple[int, int], LineKey]) -> None:
        assignments: list[Assignment] = []
        for one in order:
            line = lines[one.tenant, one.id]
            self._books.enter((one.tenant, one.id), Holding(one.attempt, one.node, line.shape))
            assignments.append(self._assignment(one, line))
        session.send(Dispatch(assignments))

    async def _take_back(self, order: list[Claimed]) -> None:
        """The node left or came back while its claim was being made: nothing was sent, so nothing began."""
        keys = [Key(one.tenant, one.id, one.attempt) for one in order]
        for line, task in await self._queue_store.release(keys):
            self._refill.offer(line, [task])
        self.wake.set()

    def _assignment(self, one: Claimed, key: LineKey) -> Assignment:
        needs = self._nodes.shape(key.shape).needs
        return Assignment(one.tenant, one.id, one.attempt, one.kind, needs, one.cap_ms, one.grace_ms, one.spec)

    def _return_room(self, placed: list[Placement], claimed: set[tuple[int, int]]) -> None:
        for placement in placed:
            lost = sum((placement.key.tenant, task.id) not in claimed for task in placement.tasks)
            if lost:
                self._nodes.vacate(placement.node, placement.key.shape, lost)
