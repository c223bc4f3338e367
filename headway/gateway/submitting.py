"""Group commit: concurrent submissions share a transaction, and each is answered only after it is durable.

A flush starts as soon as one of the two flushers is free and takes everything that has gathered, up to a bound; so a
lone submission waits for nobody and a thousand parallel ones cost about one fsync.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import asyncpg
import structlog

from headway.gateway.problems import Problem
from headway.store.database import GONE
from headway.store.rows import NewTask
from headway.store.tasks import TaskStore

ROWS_MAX = 2000
WAITING_ROWS_MAX = 100_000
FLUSHERS = 2
TRY_SECONDS = 5.0
"""How long a database that was told rows may say nothing; then it is asked again on another connection."""
OUTAGE_SECONDS = 20.0
"""How long a submission waits for a database that is away (a restart takes a second) before it is refused."""

_NOT_KNOWN = "the database does not answer; whether the tasks were stored is not known"

Accepted = Callable[[list[NewTask]], None]
_Group = tuple[list[NewTask], asyncio.Future[None]]
_log = structlog.get_logger("headway.gateway")


class Submitting:
    """Stores rows in groups and tells the leader of what it stored."""

    def __init__(self, tasks: TaskStore, accepted: Accepted) -> None:
        self._tasks = tasks
        self._accepted = accepted
        self._waiting: deque[_Group] = deque()
        self._waiting_rows = 0
        self._arrived = asyncio.Event()

    async def submit(self, rows: list[NewTask]) -> None:
        """Returns when all these rows are durable; they are so together."""
        if self._waiting_rows > WAITING_ROWS_MAX:
            raise Problem("unavailable", "too many submissions are waiting to be stored; try again in a second")
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, stored))
        self._waiting_rows += len(rows)
        self._arrived.set()
        try:
            async with asyncio.timeout(OUTAGE_SECONDS):
                await stored
        except TimeoutError:
            raise Problem("unavailable", _NOT_KNOWN) from None

    async def run(self) -> None:
        """Flushes for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(FLUSHERS):
                group.create_task(self._flush_for_ever())

    async def _flush_for_ever(self) -> None:
        while True:
            await self._arrived.wait()
            await self.run_once()

    async def run_once(self) -> int:
        """Stores what has gathered; answers how many rows."""
        groups = self._gather()
        if groups:
            await self._store_groups(groups)
        return sum(len(rows) for rows, _ in groups)

    async def _store_groups(self, groups: list[_Group]) -> None:
        rows = [row for more, _ in groups for row in more] if len(groups) > 1 else groups[0][0]
        try:
            await self._store(rows)
        except asyncio.CancelledError:
            _answer(
                groups,
                Problem("unavailable", "the server is stopping; whether the tasks were stored is not known"),
            )
            raise
        except Problem as problem:
            _answer(groups, problem)
        except asyncpg.PostgresError as fault:
            await self._store_apart(groups, fault)
        else:
            self._accepted(rows)
            _answer(groups, None)

    async def _store_apart(self, groups: list[_Group], fault: asyncpg.PostgresError) -> None:
        """The database refused a row: its neighbours in the group must not suffer for it."""
        if len(groups) > 1:
            for group in groups:
                await self._store_groups([group])
            return
        _log.error("submission_refused_by_database", why=str(fault), rows=len(groups[0][0]))
        _answer(groups, Problem("internal", f"the database refused the task: {fault}"))

    def _gather(self) -> list[_Group]:
        groups: list[_Group] = []
        count = 0
        while self._waiting and (not groups or count + len(self._waiting[0][0]) <= ROWS_MAX):
            group = self._waiting.popleft()
            self._waiting_rows -= len(group[0])
            if not group[1].done():  # or nobody waits any more
                groups.append(group)
                count += len(group[0])
        if not self._waiting:
            self._arrived.clear()
        return groups

    async def _store(self, rows: list[NewTask]) -> None:
        """Stores rows, also across a restart of the database. Unsure whether a try did it, the next one finds out: its
        ids are then already there."""
        unsure = False
        give_up_at = asyncio.get_running_loop().time() + OUTAGE_SECONDS
        while True:
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    return await self._tasks.submit(rows)
            except asyncpg.UniqueViolationError:
                if unsure:
                    return None
                raise
            except GONE as fault:
                unsure = True
                if asyncio.get_running_loop().time() > give_up_at:
                    raise Problem("unavailable", _NOT_KNOWN) from None
                _log.warning("submission_waits_for_database", rows=len(rows), why=str(fault))
                await asyncio.sleep(0.05)


def _answer(groups: list[_Group], fault: Problem | None) -> None:
    for _, promise in groups:
        if promise.done():
            continue
        if fault is None:
            promise.set_result(None)
        else:
            promise.set_exception(fault)
