"""Which nodes take no more tasks: cordoned or drained by an operator, or shut out because they fail what ends well
elsewhere.

The promise: what the database says of a node holds within a second, whoever leads; what runs there goes on, until the
deadline of a drain, and then leaves without having lost an attempt's worth of retries.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import structlog

from headway.core.plan import Planner
from headway.core.quarantine import OWN_FAULTS, Quarantine
from headway.scheduler.books import Books, Holding
from headway.scheduler.sessions import Session
from headway.store.nodes import NodeStore
from headway.wire import Ending, Leave, Outcome

LOOK_SECONDS = 1.0
DRAINED = "its node was drained, and it had not left by the deadline"
_log = structlog.get_logger("headway.scheduler")


class Upkeep:
    """Closes nodes and opens them again."""

    def __init__(
        self,
        *,
        store: NodeStore,
        planner: Planner,
        books: Books,
        session_of: Callable[[int], Session | None],
        wake: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._planner = planner
        self._books = books
        self._session_of = session_of
        self._wake = wake
        self._now = now
        self._news = asyncio.Event()
        self._suspicion = Quarantine()
        self._leaving: set[int] = set()
        self.closed: set[int] = set()
        """The nodes that take no more."""
        self.quarantined = 0
        """How many of them because they fail tasks."""

    def clear(self) -> None:
        """Forgets all: the leadership begins anew."""
        self._suspicion = Quarantine()
        self._leaving.clear()
        self.closed.clear()
        self.quarantined = 0

    def soon(self) -> None:
        """An operator of this process wants something."""
        self._news.set()

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            await self.run_once()

    async def run_once(self) -> None:
        """Judges, reads who is closed, and sees to it."""
        await self._store.end_quarantines()
        now = self._now()
        there = [room.node for room in self._planner.nodes.all() if room.node not in self.closed]
        for node, why in self._suspicion.judge(there, now, closed=len(self.closed)):
            _log.warning("node_quarantined", node=node, why=why)
            await self._store.quarantine(node, why)
        closed = await self._store.closed()
        self.quarantined = sum(one.is_quarantined for one in closed.values())
        self._leaving = {node for node, one in closed.items() if one.must_leave}
        for node in self.closed - closed.keys():
            self._suspicion.forget(node)
        self.closed = set(closed)
        self.heed()
        for node in self._leaving:
            self._have_leave(node)

    def heed(self) -> None:
        """Closes and opens rooms as was read; also for a node that has just come back."""
        now, wakes = self._now(), False
        for room in list(self._planner.nodes.all()):
            closed = room.node in self.closed
            wakes |= room.is_closed and not closed
            self._planner.close(room.node, now, closed=closed)
        if wakes:
            self._wake()

    def note(self, node: int, endings: Sequence[Ending], mine: Sequence[Holding | None]) -> None:
        """What became of attempts on a node."""
        now = self._now()
        well: Counter[int] = Counter()
        for ending, holding in zip(endings, mine, strict=True):
            if holding is None:
                continue
            if ending.outcome == Outcome.DONE:
                well[holding.line.shape] += 1
            elif ending.outcome == Outcome.FAILED or ending.code in OWN_FAULTS:
                is_own = ending.outcome == Outcome.LOST or ending.code == "agent_fault"
                self._suspicion.failed(node, holding.line.shape, now, own_fault=is_own)
        if well:
            self._suspicion.ended_well(node, well, now)

    def retold(self, node: int, endings: list[Ending]) -> list[Ending]:
        """Endings as they are to be told: what was made to leave says why."""
        if node not in self._leaving:
            return endings
        return [
            msgspec.structs.replace(ending, code="drained", message=DRAINED)
            if ending.code == "agent_stopped"
            else ending
            for ending in endings
        ]

    def _have_leave(self, node: int) -> None:
        session, keys = self._session_of(node), self._books.keys(node)
        if session is not None and keys:
            session.send(Leave(keys, must=True))
