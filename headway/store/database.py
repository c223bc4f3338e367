"""Connections to PostgreSQL: pooled, pinned against the planner's moods, and patient with passing faults.

The hot tables change so fast that their statistics lie: a batch statement that was index look-ups turned into a
sequential scan under a nested loop (2.6 s a batch). So plans may not depend on statistics here: sequential scans, hash
and merge joins are off, and each statement is planned once for any batch size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
import structlog

PINNED = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "application_name": "headway",
}
TRIES_MAX = 8
PASSING = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
GONE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # "cannot switch to state 12": it was killed in the middle of an answer
    asyncpg.InsufficientResourcesError,  # no disk, memory or connection left: passes, or an operator sees to it
    asyncpg.ReadOnlySQLTransactionError,  # connected to what is a standby by now
)
"""What a statement raises when the database went away under it; the caller may not assume that it did nothing."""

T = TypeVar("T")
Row = asyncpg.Record
_log = structlog.get_logger("headway.store")


async def _leave_as_it_is(_: asyncpg.Connection) -> None:
    """No statement here changes its session, so none is reset: that would be one more round trip each."""


class Database:
    """A pool of connections and the one way to run a statement on it."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(
        cls, url: str, *, size: int = 8, statement_seconds: float | None = None, answer_seconds: float = 60.0
    ) -> Database:
        """Connects; raises what asyncpg raises when nobody answers. Connections beyond the first are made when they are
        needed: each is a process of some megabytes. A statement that takes longer than `statement_seconds` is ended by
        the server with QueryCanceledError; one not answered within `answer_seconds` is given up with TimeoutError."""
        bound = {} if statement_seconds is None else {"statement_timeout": str(round(statement_seconds * 1000))}
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=size,
            server_settings=PINNED | bound,
            command_timeout=answer_seconds,
            max_inactive_connection_lifetime=0,
            max_queries=0x7FFFFFFF,
            max_cached_statement_lifetime=0,
            reset=_leave_as_it_is,
        )
        return cls(pool)

    async def close(self) -> None:
        """Ends all connections, within seconds also when a statement hangs."""
        try:
            async with asyncio.timeout(3):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def fetch(self, sql: str, *args: object) -> list[Row]:
        """All rows of one statement, which is its own transaction."""
        return await self._run(lambda connection: connection.fetch(sql, *args))

    async def fetchrow(self, sql: str, *args: object) -> Row | None:
        """The first row of one statement, or None."""
        return await self._run(lambda connection: connection.fetchrow(sql, *args))

    async def execute(self, sql: str, *args: object) -> str:
        """Runs one statement; answers its command tag."""
        return await self._run(lambda connection: connection.execute(sql, *args))

    async def together(self, *steps: tuple[str, Sequence[object]]) -> list[list[Row]]:
        """Several statements in one transaction."""

        async def once(connection: asyncpg.Connection) -> list[list[Row]]:
            transaction = connection.transaction()
            await transaction.start()
            try:
                rows = [await connection.fetch(sql, *args) for sql, args in steps]
            except asyncpg.PostgresError:
                await transaction.rollback()
                raise
            await transaction.commit()
            return rows

        return await self._run(once)

    async def _run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Runs a transaction on a connection. One that was given up in the middle takes its connection with it: to wait
        until the server agrees, as the driver does, is to wait for ever for one that is frozen."""

        async def once() -> T:
            async with self._pool.acquire() as connection:
                try:
                    return await work(connection)
                except asyncpg.PostgresError:
                    raise
                except BaseException:
                    connection.terminate()
                    raise

        return await patiently(once)


async def patiently(run: Callable[[], Awaitable[T]]) -> T:
    """Runs a transaction, again when the database asks for it (40001, 40P01): it did nothing then."""
    for attempt in range(TRIES_MAX - 1):
        try:
            return await run()
        except PASSING as fault:
            _log.info("transaction_retried", attempt=attempt, why=str(fault))
            await asyncio.sleep(0.005 * 2**attempt)
    return await run()
