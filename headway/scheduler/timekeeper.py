"""Makes ready what was scheduled for an hour that has come: sleeps until the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.scheduler.refill import Refill
from headway.store.queue import QueueStore

DUE_POLL_SECONDS = 5.0
"""How late a task is at most that another process scheduled while this one slept."""
DUE_MAX = 2000


class Timekeeper:
    """Knows when the next scheduled task is due."""

    def __init__(self, store: QueueStore, refill: Refill, *, retried: asyncio.Event, wake: Callable[[], None]) -> None:
        self._store = store
        self._refill = refill
        self._retried = retried
        self._wake = wake
        self._due_soon = asyncio.Event()

    def expect_due(self) -> None:
        """Something was scheduled that may be due before what is waited for."""
        self._due_soon.set()

    async def run(self) -> None:
        """Promotes for ever."""
        while True:
            self._due_soon.clear()
            self._retried.clear()
            due = await self._store.promote_due(DUE_MAX)
            for key, task in due:
                self._refill.offer(key, [task])
            if due:
                self._wake()
                continue
            await self._until_next_due(await self._store.next_due_seconds())

    async def _until_next_due(self, seconds: float | None) -> None:
        waiters = [asyncio.create_task(event.wait()) for event in (self._due_soon, self._retried)]
        try:
            longest = DUE_POLL_SECONDS if seconds is None else min(max(seconds, 0.0), DUE_POLL_SECONDS)
            await asyncio.wait(waiters, timeout=longest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
