"""What the leader knows that others ask: it looks at its pool once a second, tells the servers in other processes by
one row of the database, and answers at once who asks in this one.

A look costs what there are lines, not what there are tasks; when it is dear it is taken less often, so that it never
takes more than a hundredth of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from headway.core.lifecycle import Lane
from headway.core.outlook import Look, Outlook, Surveyor
from headway.core.plan import Planner
from headway.core.queue import LineKey, ReadyTask
from headway.scheduler.books import Books
from headway.scheduler.dispatch import Dispatching
from headway.scheduler.refill import Refill
from headway.store.outlook import OutlookStore, Published

LOOK_SECONDS = 1.0
LOOK_SHARE = 0.01
TELL_SECONDS = 5.0
"""How long what others read may be old while nothing changes."""
MEASURE_SECONDS = 10.0
"""How often the depth of what is not in memory is counted anew."""
_log = structlog.get_logger("headway.scheduler")


class Insight:
    """The leader's view of its pool, for whoever asks."""

    def __init__(
        self,
        *,
        planner: Planner,
        books: Books,
        refill: Refill,
        dispatching: Dispatching,
        store: OutlookStore,
        now: Callable[[], float],
    ) -> None:
        self._planner = planner
        self._books = books
        self._refill = refill
        self._dispatching = dispatching
        self._store = store
        self._now = now
        self._surveyor = Surveyor(planner, books.flow, behind=refill.behind, running_on=books.running_on)
        self._told: Outlook | None = None
        self._told_at = 0.0
        self.published: Published | None = None
        """The last look; None while another server leads."""

    async def run(self, epoch: int) -> None:
        """Looks and tells for as long as the epoch lasts."""
        loop = asyncio.get_running_loop()
        measured, self._told = loop.time() - MEASURE_SECONDS, None
        try:
            while True:
                if loop.time() - measured >= MEASURE_SECONDS:
                    measured = loop.time()
                    await self._refill.measure()
                took = await self._look_surely(epoch)
                await self._tell(epoch)
                await asyncio.sleep(max(LOOK_SECONDS, took / LOOK_SHARE))
        finally:
            self.published = None

    async def _look_surely(self, epoch: int) -> float:
        """A fault in what is told of the pool must not end its leadership."""
        try:
            return await self.look(epoch)
        except Exception:  # noqa: BLE001
            self.published = None
            _log.exception("look_failed")
            return LOOK_SECONDS * LOOK_SHARE

    async def look(self, epoch: int) -> float:
        """Takes a look, a piece at a time so that nobody waits for it; answers how many seconds it took."""
        loop, took = asyncio.get_running_loop(), 0.0
        pieces = self._surveyor.survey_in_pieces(self._now())
        while True:
            begun = loop.time()
            try:
                next(pieces)
            except StopIteration as end:
                self._keep(epoch, end.value)
                return took + loop.time() - begun
            took += loop.time() - begun
            await asyncio.sleep(0)

    def _keep(self, epoch: int, outlook: Outlook) -> None:
        self.published = Published(epoch, datetime.fromtimestamp(self._now(), UTC), outlook)
        before = self._dispatching.deferred
        deferred = {
            line.key: len(line) if self._planner.deferral.is_put_off(line) else min(len(line), before.get(line.key, 0))
            for line in self._planner.lines()
            if line.key.lane == Lane.OFFPEAK
        }
        self._dispatching.deferred = {key: count for key, count in deferred.items() if count}

    async def _tell(self, epoch: int) -> None:
        if self.published is None:
            return
        outlook, now = self.published.outlook, asyncio.get_running_loop().time()
        changed = outlook != self._told
        if changed or now - self._told_at >= TELL_SECONDS:
            await self._store.write(epoch, outlook if changed else None)
            self._told, self._told_at = outlook, now

    def task(self, key: LineKey, task: ReadyTask) -> Look | None:
        """All that can be said of a ready task at this moment; None while another server leads."""
        if self.published is None:
            return None
        return self._surveyor.look(key, task, now=self._now(), holders=self._holders)

    def _holders(self, tenant: int, key: str) -> list[int]:
        return self._books.holders(tenant, key, self._planner.nodes.shape)
