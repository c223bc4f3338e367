"""Which nodes take no more tasks, and what operators are told of nodes."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from headway.core.quarantine import SECONDS_FIRST, SECONDS_MAX
from headway.store.database import Database, Row
from headway.store.events import Place
from headway.store.statements import statements

_SQL = statements("nodes")


class Closed(NamedTuple):
    """A node that takes no more."""

    must_leave: bool
    """Whether the deadline of its drain is over."""
    is_quarantined: bool


class NodeEventRow(NamedTuple):
    """Something that happened to a node."""

    place: Place
    at: datetime
    name: str
    kind: str
    message: str


class NodeStore:
    """The nodes of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def cordon(self, name: str, by: str) -> bool:
        """Keeps tasks from a node; False when there is none of that name."""
        return await self._database.fetchrow(_SQL["cordon"], self._pool, name, by) is not None

    async def drain(self, name: str, by: str, seconds: float | None) -> bool:
        """Keeps tasks from a node, and has what runs there leave by the deadline."""
        return await self._database.fetchrow(_SQL["drain"], self._pool, name, by, seconds) is not None

    async def uncordon(self, name: str, by: str) -> bool:
        """Lets a node take tasks again."""
        return await self._database.fetchrow(_SQL["uncordon"], self._pool, name, by) is not None

    async def quarantine(self, node: int, why: str) -> None:
        """Keeps tasks from a node for a while, longer each time."""
        await self._database.execute(_SQL["quarantine"], self._pool, node, why, SECONDS_FIRST, SECONDS_MAX)

    async def end_quarantines(self) -> None:
        """Lets those take tasks again whose time is over."""
        await self._database.execute(_SQL["end_quarantines"], self._pool)

    async def closed(self) -> dict[int, Closed]:
        """The nodes that take no more."""
        rows = await self._database.fetch(_SQL["closed"], self._pool)
        return {row["node"]: Closed(bool(row["must_leave"]), row["is_quarantined"]) for row in rows}

    async def all(self, name: str | None = None, *, seen_by: int | None) -> list[Row]:
        """All nodes by name, or the one of a name; with how many attempts of a tenant each has, or of everybody."""
        return await self._database.fetch(_SQL["nodes"], self._pool, name, seen_by)

    async def events(self, place: Place, *, name: str | None, most: int) -> list[NodeEventRow]:
        """What happened to nodes, or to one, behind a place, oldest first."""
        rows = await self._database.fetch(_SQL["events"], self._pool, str(place.tx), place.seq, name, most)
        return [NodeEventRow(Place(int(r["tx"]), r["seq"]), r["at"], r["name"], r["kind"], r["message"]) for r in rows]
