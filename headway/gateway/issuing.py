"""Leases a number from the database and makes task ids under it.

The lease row also says how far the number's time stamps may have been used, so that the next holder never repeats an
id, whatever its clock says. Ids are only made while the lease is known to last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from headway.core.ids import Issuer
from headway.gateway.problems import Problem
from headway.store.cluster import ClusterStore
from headway.store.database import GONE

LEASE_SECONDS = 60.0
MARGIN_MS = 120_000
"""How far ahead of the clock the number's stamps are reserved; more than a lease, so that no renewal comes too late."""
_log = structlog.get_logger("headway.gateway")


class Issuing:
    """The issuer of one gateway."""

    def __init__(self, cluster: ClusterStore, holder: str, *, now: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._holder = holder
        self._now = now
        self._issuer: Issuer | None = None
        self._reserved_until_ms = 0
        self._ahead_ms = 0
        """How far the database's clock is ahead of ours: ids are stamped by it, our own may be wrong."""

    async def start(self) -> None:
        """Leases a number; waits for one if all are taken."""
        while not await self._lease():
            _log.warning("no_issuer_number_free", why="all 1,024 are leased; waiting for one")
            await asyncio.sleep(1)

    async def run(self) -> None:
        """Keeps the lease; takes another number when it was lost."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 4 if self._issuer is not None else 1)
            try:
                await self._renew()
            except GONE as fault:
                _log.warning("issuer_not_renewed", why=str(fault))

    def take(self, count: int) -> list[int]:
        """New ids."""
        now_ms = int(self._now() * 1000) + self._ahead_ms
        if self._issuer is None or self._issuer.used_until_ms >= self._reserved_until_ms:
            raise Problem(
                "unavailable", "ids are not to be had for the moment: the database does not answer; try again"
            )
        if now_ms >= self._reserved_until_ms:
            raise Problem("unavailable", "the lease on an id range ran out; try again in a second")
        return self._issuer.take(count, now_ms=now_ms)

    async def _lease(self) -> bool:
        taken = await self._cluster.take_issuer(self._holder, LEASE_SECONDS, MARGIN_MS)
        if taken is None:
            return False
        number, used_until_ms = taken
        now_ms = await self._database_now_ms()
        self._issuer = Issuer(number, not_before_ms=max(used_until_ms, 0))
        self._reserved_until_ms = max(used_until_ms, now_ms) + MARGIN_MS
        return True

    async def _renew(self) -> None:
        if self._issuer is None:
            await self._lease()
            return
        until = max(await self._database_now_ms(), self._issuer.used_until_ms) + MARGIN_MS
        if await self._cluster.renew_issuer(self._issuer.number, self._holder, LEASE_SECONDS, until):
            self._reserved_until_ms = until
        else:
            self._issuer = None
            await self._lease()

    async def _database_now_ms(self) -> int:
        now_ms = int((await self._cluster.hour()).timestamp() * 1000)
        self._ahead_ms = now_ms - int(self._now() * 1000)
        return now_ms
