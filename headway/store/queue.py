"""The hot table: claims, ends, hand-backs, and the reads that keep the leader's memory filled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core.queue import LineKey, ReadyTask
from headway.store.database import Database, Row
from headway.store.rows import Claimed, End, Named, Owned, Tries
from headway.store.statements import statements
from headway.wire import Key

_SQL = statements("queue")

Horizon = tuple[float, int, int]
"""The last (start_by, cap_ms, id) known of a line; everything ready before it has been read."""
BEGINNING: Horizon = (-1.0, 0, 0)


class QueueStore:
    """The queue of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def claim(self, epoch: int, wanted: Sequence[tuple[int, int, int]]) -> list[Claimed]:
        """Gives (tenant, id, node) to nodes; what does not come back was not to be had, or the epoch is over."""
        tenants, ids, nodes = zip(*wanted, strict=True)
        rows = await self._database.fetch(_SQL["claim"], self._pool, epoch, tenants, ids, nodes)
        return [Claimed(*row) for row in rows]

    async def start(self, keys: Sequence[Key]) -> None:
        """Notes that claimed attempts really began."""
        await self._database.execute(_SQL["start"], self._pool, *_columns(keys))

    async def release(self, claims: Sequence[tuple[int, int, int]]) -> list[tuple[LineKey, ReadyTask]]:
        """Takes back (tenant, id, claims) that never began; answers what is ready again."""
        tenants, ids, counts = zip(*claims, strict=True)
        rows = await self._database.fetch(_SQL["release"], self._pool, tenants, ids, counts)
        return _ready_again(rows)

    async def finish(self, ends: Sequence[End]) -> list[tuple[int, int]]:
        """Ends attempts for good; answers (tenant, id) of those that still held their lease."""
        rows = await self._database.fetch(
            _SQL["finish"],
            self._pool,
            [end.tenant for end in ends],
            [end.id for end in ends],
            [end.attempt for end in ends],
            [end.outcome for end in ends],
            [end.status for end in ends],
            [end.ran_ms for end in ends],
            [end.exit_code for end in ends],
            [end.log_bytes for end in ends],
            [end.code for end in ends],
            [end.message for end in ends],
            [end.result for end in ends],
            [end.usage for end in ends],
            [end.tail for end in ends],
        )
        return [(row[0], row[1]) for row in rows]

    async def try_again(self, ends: Sequence[End]) -> list[tuple[int, int]]:
        """Ends attempts whose task waits for another; answers those that were being cancelled and so are over."""
        rows = await self._database.fetch(
            _SQL["try_again"],
            self._pool,
            [end.tenant for end in ends],
            [end.id for end in ends],
            [end.attempt for end in ends],
            [end.outcome for end in ends],
            [end.ran_ms for end in ends],
            [end.exit_code for end in ends],
            [end.log_bytes for end in ends],
            [end.code for end in ends],
            [end.message for end in ends],
            [end.usage for end in ends],
            [end.tail for end in ends],
            [end.delay_ms for end in ends],
            [int(end.counts) for end in ends],
            [end.node for end in ends],
        )
        return [(row[0], row[1]) for row in rows if row[3] is not None]

    async def cancel(self, tenant: int, ids: Sequence[int]) -> dict[int, tuple[Key, int] | None]:
        """Cancels what waits and marks what runs; by id the attempt and node to stop, or None when it is over."""
        rows = await self._database.fetch(_SQL["cancel"], self._pool, tenant, ids)
        return {
            row["id"]: None if row["node"] is None else (Key(tenant, row["id"], row["attempt"]), row["node"])
            for row in rows
        }

    async def promote_due(self, most: int) -> list[tuple[LineKey, ReadyTask]]:
        """Makes ready what is due; answers it."""
        return _ready_again(await self._database.fetch(_SQL["promote_due"], self._pool, most))

    async def next_due_seconds(self) -> float | None:
        """How long until the next scheduled task is due."""
        row = await self._database.fetchrow(_SQL["next_due"], self._pool)
        return None if row is None else row["seconds"]

    async def ready_keys(self) -> list[LineKey]:
        """Every line that has ready tasks."""
        return [LineKey(*row) for row in await self._database.fetch(_SQL["ready_keys"], self._pool)]

    async def ready_after(self, lines: dict[LineKey, Horizon], most: int) -> list[tuple[LineKey, ReadyTask]]:
        """Up to `most` ready tasks of each line behind its horizon, in order."""
        rows = await self._database.fetch(_SQL["ready_after"], self._pool, *_lines(lines), most)
        return [(LineKey(t, lane, shape), ReadyTask(start, cap, i)) for t, lane, shape, i, start, cap in rows]

    async def ready_depths(self, lines: dict[LineKey, Horizon], most: int) -> dict[LineKey, int]:
        """How many ready tasks of each line wait behind its horizon, counted up to `most`."""
        rows = await self._database.fetch(_SQL["ready_depths"], self._pool, *_lines(lines), most)
        return {LineKey(row["tenant"], row["lane"], row["shape"]): row["tasks"] for row in rows}

    async def owned(self) -> list[Owned]:
        """All attempts that nodes own."""
        rows = await self._database.fetch(_SQL["owned"], self._pool)
        return [Owned(r["tenant"], r["id"], r["attempt"], r["node"], r["state"], r["shape"]) for r in rows]

    async def named(
        self, tenant: int, exact: Sequence[str], prefixes: Sequence[str], after: int, most: int
    ) -> tuple[list[Named], int | None]:
        """Looks through the next `most` unfinished tasks behind `after` for names; also answers how far that was."""
        rows = await self._database.fetch(_SQL["named"], self._pool, tenant, after, exact, prefixes, most)
        found = [Named(row["id"], row["shape"], row["name"]) for row in rows if row["id"] is not None]
        return found, rows[0]["last"]

    async def reshape(self, tenant: int, ids: Sequence[int], shapes: Sequence[int]) -> list[tuple[LineKey, ReadyTask]]:
        """Gives unfinished tasks other shapes; answers those that are ready."""
        return _ready_again(await self._database.fetch(_SQL["reshape"], self._pool, tenant, ids, shapes))

    async def tries(self, tasks: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tries]:
        """What decides about another attempt, by (tenant, id)."""
        tenants, ids = zip(*tasks, strict=True)
        rows = await self._database.fetch(_SQL["tries"], self._pool, tenants, ids)
        return {(r["tenant"], r["id"]): Tries(r["failures"], r["losses"], r["max_attempts"], r["spec"]) for r in rows}


def _columns(keys: Iterable[Key]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    tenants, ids, attempts = zip(*keys, strict=True)
    return tenants, ids, attempts


def _lines(lines: dict[LineKey, Horizon]) -> tuple[list[object], ...]:
    """Lines with their horizons, as columns."""
    keys, horizons = list(lines), list(lines.values())
    return (
        [key.tenant for key in keys],
        [key.lane for key in keys],
        [key.shape for key in keys],
        [horizon[0] for horizon in horizons],
        [horizon[1] for horizon in horizons],
        [horizon[2] for horizon in horizons],
    )


def _ready_again(rows: list[Row]) -> list[tuple[LineKey, ReadyTask]]:
    return [
        (
            LineKey(r["tenant"], r["lane"], r["shape"]),
            ReadyTask(r["start_by"], r["execution_cap_ms"], r["id"]),
        )
        for r in rows
    ]
