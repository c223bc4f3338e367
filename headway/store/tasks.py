"""The lasting record: submissions, look-ups, lists, logs and shapes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headway.core.ids import ID_MAX
from headway.core.log import CHUNK_BYTES, FIRST_BYTES, ROLLING_BYTES
from headway.store.database import Database, Row
from headway.store.rows import NewTask, Template
from headway.store.statements import statements
from headway.wire import LogChunk

_SQL = statements("tasks")
_LISTS = {
    None: "ids_newest", "waiting": "ids_waiting", "running": "ids_running",
    "done": "ids_ended", "failed": "ids_ended", "cancelled": "ids_ended",
}  # fmt: skip
_ENDED = {"done": 2, "failed": 3, "cancelled": 4}


class Filter(msgspec.Struct, frozen=True):
    """Which tasks a list shows: newest first, behind the id `before`."""

    status: str | None = None
    name: str | None = None
    tags: dict[str, str] = {}
    """All of them must be there."""
    before: int = ID_MAX
    limit: int = 100


class TaskStore:
    """The tasks of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def submit(self, tasks: Sequence[NewTask]) -> None:
        """Accepts tasks, all or none; they are durable when this returns."""
        templates: dict[int, tuple[int, Template]] = {}
        for (
            task
        ) in tasks:  # by identity: to compare a hundred thousand of them a second takes longer than to send a few twice
            if id(task.template) not in templates:
                templates[id(task.template)] = (len(templates) + 1, task.template)
        which = [templates[id(task.template)][0] for task in tasks]
        await self._database.execute(
            _SQL["submit"],
            self._pool,
            [task.id for task in tasks],
            [task.name for task in tasks],
            [task.spec for task in tasks],
            which,
            *zip(*(template for _, template in templates.values()), strict=True),
        )

    async def announce(self) -> None:
        """Hints to leaders in other processes that there is new work."""
        await self._database.execute(_SQL["announce"], str(self._pool))

    async def get(self, tenant: int, ids: list[int]) -> list[Row]:
        """The tasks that there are, newest first, each with where it is."""
        return await self._database.fetch(_SQL["get"], self._pool, tenant, ids)

    async def list_ids(self, tenant: int, asked: Filter) -> list[int]:
        """The ids that a filter finds, newest first."""
        statement = _LISTS[asked.status]
        if asked.status is None and asked.name is not None:
            statement = "ids_by_name"
        tags = msgspec.json.encode(asked.tags).decode() if asked.tags else None
        arguments: list[object] = [self._pool, tenant, asked.before, asked.limit, tags]
        if statement != "ids_newest":
            arguments.append(asked.name)
        if statement == "ids_ended":
            arguments.append(_ENDED[asked.status or ""])
        return [row[0] for row in await self._database.fetch(_SQL[statement], *arguments)]

    async def attempts(self, tenant: int, task: int) -> list[Row]:
        """The tries of a task, oldest first."""
        return await self._database.fetch(_SQL["attempts"], self._pool, tenant, task)

    async def finished(self, tenant: int, ids: list[int]) -> set[int]:
        """Which of these tasks are over."""
        return {row[0] for row in await self._database.fetch(_SQL["finished"], self._pool, tenant, ids)}

    async def counts(self) -> dict[int, int]:
        """Unfinished tasks by state."""
        return {row["state"]: row["tasks"] for row in await self._database.fetch(_SQL["counts"], self._pool)}

    async def keep_logs(self, chunks: list[LogChunk]) -> None:
        """Stores log pieces; repeated ones are the same ones. Of long logs, old pieces make room for new ones."""
        await self._database.execute(
            _SQL["keep_logs"],
            self._pool,
            [chunk.tenant for chunk in chunks],
            [chunk.task for chunk in chunks],
            [chunk.attempt for chunk in chunks],
            [chunk.at for chunk in chunks],
            [chunk.body for chunk in chunks],
        )
        until = {(c.tenant, c.task, c.attempt): c.at - ROLLING_BYTES for c in chunks}
        old = [(*key, at) for key, at in until.items() if at > FIRST_BYTES]
        if old:
            tenants, tasks, attempts, places = zip(*old, strict=True)
            await self._database.execute(_SQL["roll_logs"], self._pool, tenants, tasks, attempts, FIRST_BYTES, places)

    async def read_log(
        self, tenant: int, task: int, attempt: int, place: int, most: int = 16
    ) -> list[tuple[int, bytes]]:
        """Pieces of an attempt's log that reach behind a byte, each with where it begins."""
        rows = await self._database.fetch(_SQL["read_log"], self._pool, tenant, task, attempt, place, CHUNK_BYTES, most)
        return [(row["at"], row["body"]) for row in rows]

    async def keep_shapes(self, shapes: list[tuple[int, int, str]]) -> None:
        """Stores (tenant, shape, body); what is there already stays."""
        tenants, numbers, bodies = zip(*shapes, strict=True)
        await self._database.execute(_SQL["keep_shapes"], self._pool, tenants, numbers, bodies)

    async def read_shapes(self, wanted: list[tuple[int, int]]) -> dict[int, str]:
        """The bodies of (tenant, shape) by shape."""
        tenants, numbers = zip(*wanted, strict=True)
        rows = await self._database.fetch(_SQL["read_shapes"], self._pool, tenants, numbers)
        return {row["shape"]: row["body"] for row in rows}
