"""What is done to a task between its submission and its end: change, pause, resume, freeze, thaw, give way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.core.amend import Amended
from headway.core.lifecycle import Lane, State
from headway.core.queue import LineKey, ReadyTask
from headway.core.task import URGENT_TOLERANCE_MS
from headway.store.database import Database
from headway.store.rows import End
from headway.store.statements import statements
from headway.wire import Key

_SQL = statements("steering")
CHANGES_MAX = 1000
ORDERED_MAX = 5000


class Changed(NamedTuple):
    """A task whose bounds were changed, and where it is."""

    key: Key
    state: State
    node: int | None
    line: LineKey
    task: ReadyTask
    left_ms: int
    """What its cap leaves to the attempt."""
    grace_ms: int


class Ordered(NamedTuple):
    """An attempt that is, or shall be, stopped or standing still."""

    key: Key
    node: int
    state: State
    leaves: bool
    """Whether it is to leave its node, not to stand still there."""


class SteeringStore:
    """Steers the tasks of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def change(self, tenant: int, task: int, change: Amended) -> bool:
        """Gives an unfinished task other bounds; False when it is over."""
        row = await self._database.fetchrow(
            _SQL["change"], self._pool, tenant, task, change.execution_cap_ms, change.delay_tolerance_ms,
            URGENT_TOLERANCE_MS, Lane.NORMAL.value, change.cap_grace_ms,
            None if change.lane is None else change.lane.value,
        )  # fmt: skip
        return row is not None

    async def changes(self) -> list[Changed]:
        """What was changed and not taken in by the leader."""
        rows = await self._database.fetch(_SQL["changes"], self._pool, CHANGES_MAX)
        return [
            Changed(
                Key(r["tenant"], r["id"], r["attempt"]),
                State(r["state"]),
                r["node"],
                LineKey(r["tenant"], r["lane"], r["shape"]),
                ReadyTask(r["start_by"], r["execution_cap_ms"], r["id"]),
                max(r["execution_cap_ms"] - r["used_ms"], 1),
                r["cap_grace_ms"],
            )
            for r in rows
        ]

    async def taken_in(self, changes: Sequence[Changed]) -> None:
        """The leader has taken these in."""
        await self._database.execute(
            _SQL["taken_in"],
            self._pool,
            [change.key.tenant for change in changes],
            [change.key.task for change in changes],
            [change.task.cap_ms for change in changes],
            [change.task.start_by for change in changes],
        )

    async def pause(self, tenant: int, task: int, why: str, *, leaves: bool = False) -> State | None:
        """Pauses a task, on its node or so that it leaves it; None when there is nothing to pause."""
        row = await self._database.fetchrow(_SQL["pause"], self._pool, tenant, task, why, leaves)
        return None if row is None else State(row["state"])

    async def resume(self, tenant: int, task: int, why: str) -> State | None:
        """Resumes a paused task; None when it is not paused."""
        row = await self._database.fetchrow(_SQL["resume"], self._pool, tenant, task, why)
        return None if row is None else State(row["state"])

    async def freeze(self, said: Sequence[tuple[Key, str]]) -> dict[Key, State]:
        """Notes that attempts stand still, and why; answers those that do now."""
        keys = [key for key, _ in said]
        rows = await self._database.fetch(_SQL["freeze"], self._pool, *_columns(keys), [why for _, why in said])
        return {Key(row["tenant"], row["id"], row["attempt"]): State(row["state"]) for row in rows}

    async def thaw(self, keys: Sequence[Key]) -> dict[Key, State]:
        """Notes that attempts go on; answers those that do."""
        rows = await self._database.fetch(_SQL["thaw"], self._pool, *_columns(keys))
        return {Key(row["tenant"], row["id"], row["attempt"]): State(row["state"]) for row in rows}

    async def give_way(self, ends: Sequence[End]) -> list[tuple[int, int]]:
        """Ends attempts that left with a checkpoint; answers those that were being cancelled and so are over."""
        rows = await self._database.fetch(
            _SQL["give_way"],
            self._pool,
            [end.tenant for end in ends],
            [end.id for end in ends],
            [end.attempt for end in ends],
            [end.ran_ms for end in ends],
            [end.exit_code for end in ends],
            [end.log_bytes for end in ends],
            [end.code for end in ends],
            [end.message for end in ends],
            [end.usage for end in ends],
            [end.tail for end in ends],
            [end.node for end in ends],
        )
        return [(row["tenant"], row["id"]) for row in rows if row["status"] is not None]

    async def keep_checkpoint(self, key: Key, checkpoint: str) -> bool:
        """Notes what the next attempt begins from; False when the attempt does not own the task any more."""
        row = await self._database.fetchrow(_SQL["keep_checkpoint"], self._pool, *key, checkpoint)
        return row is not None

    async def stays(self, key: Key) -> bool:
        """Notes that an attempt that was to leave its node does not; False when it was not to."""
        return await self._database.fetchrow(_SQL["stays"], self._pool, *key) is not None

    async def ordered(self) -> list[Ordered]:
        """What is being cancelled, and what stands still or shall."""
        rows = await self._database.fetch(_SQL["ordered"], self._pool, ORDERED_MAX)
        return [
            Ordered(Key(r["tenant"], r["id"], r["attempt"]), r["node"], State(r["state"]), r["leaves"]) for r in rows
        ]


def _columns(keys: Sequence[Key]) -> tuple[list[int], list[int], list[int]]:
    return [key.tenant for key in keys], [key.task for key in keys], [key.attempt for key in keys]
