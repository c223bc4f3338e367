"""What clients must be told: written by the statements that make it so, read here in a lasting order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from headway.store.database import Database
from headway.store.statements import statements

_SQL = statements("events")


class Place(NamedTuple):
    """Where a reader is: the transaction and the number in it of the last event seen."""

    tx: int = 0
    seq: int = 0


class EventRow(NamedTuple):
    """Something that happened to a task."""

    place: Place
    at: datetime
    task: int
    kind: str
    status: int | None
    attempt: int
    code: str
    message: str


class EventStore:
    """The events of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def now(self) -> Place:
        """Where a reader begins that wants what happens from now on."""
        row = await self._database.fetchrow(_SQL["now"])
        assert row is not None
        return Place(int(row["tx"]))

    async def why(self, tenant: int, task: int, kinds: Sequence[str]) -> str | None:
        """What was said the last time that one of these happened to a task."""
        row = await self._database.fetchrow(_SQL["last"], self._pool, tenant, task, kinds)
        return None if row is None else row["message"]

    async def after(
        self, tenant: int, place: Place, *, task: int | None, kinds: Sequence[str] | None, most: int
    ) -> list[EventRow]:
        """Up to `most` of a tenant's events behind a place, oldest first."""
        rows = await self._database.fetch(
            _SQL["after"], self._pool, tenant, str(place.tx), place.seq, task, kinds, most
        )
        return [
            EventRow(
                Place(int(r["tx"]), r["seq"]), r["at"], r["id"], r["kind"], r["status"], r["attempt"], r["code"],
                r["message"],
            )
            for r in rows
        ]  # fmt: skip
