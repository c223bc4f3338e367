"""Waiting for tasks to end: told at once by a leader in this process, and by polling where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headway.store.tasks import TaskStore

POLL_FIRST_SECONDS = 0.25
POLL_LONGEST_SECONDS = 2.0


class Waiting:
    """Who waits for which task."""

    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks
        self._asleep: dict[tuple[int, int], list[asyncio.Event]] = {}
        self.stopping = False
        """The server stops: nobody waits any more, and what is asked is answered as things are."""

    def stop(self) -> None:
        """Wakes everybody for good."""
        self.stopping = True
        for events in self._asleep.values():
            for event in events:
                event.set()

    def ended(self, tasks: Iterable[tuple[int, int]]) -> None:
        """Wakes those who wait for one of these (tenant, id)."""
        if not self._asleep:
            return
        for task in tasks:
            for event in self._asleep.get(task, ()):
                event.set()

    async def any_of(self, tenant: int, ids: list[int], seconds: float) -> set[int]:
        """The ids that are over, as soon as one is; empty when none is after `seconds`, or when the server stops."""
        woken = asyncio.Event()
        for task in ids:
            self._asleep.setdefault((tenant, task), []).append(woken)
        try:
            return await self._until_one(tenant, ids, seconds, woken)
        finally:
            for task in ids:
                self._leave((tenant, task), woken)

    async def _until_one(self, tenant: int, ids: list[int], seconds: float, woken: asyncio.Event) -> set[int]:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + seconds, POLL_FIRST_SECONDS
        while True:
            woken.clear()
            if over := await self._tasks.finished(tenant, ids):
                return over
            left = end - loop.time()
            if left <= 0 or self.stopping:
                return set()
            try:
                async with asyncio.timeout(min(pause, left)):
                    await woken.wait()
            except TimeoutError:
                pause = min(pause * 2, POLL_LONGEST_SECONDS)

    def _leave(self, task: tuple[int, int], event: asyncio.Event) -> None:
        sleepers = self._asleep.get(task, [])
        if event in sleepers:
            sleepers.remove(event)
        if not sleepers:
            self._asleep.pop(task, None)
