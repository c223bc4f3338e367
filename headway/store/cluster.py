"""Who may do what: leadership, issuer numbers, nodes and keys."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headway.store.database import Database, Row
from headway.store.statements import statements

_SQL = statements("cluster")


class ApiKey(msgspec.Struct, frozen=True):
    """A key as stored: its secret only as a digest."""

    key_id: str
    tenant: int
    role: str
    digest: bytes


class NodeRow(msgspec.Struct, frozen=True):
    """What the database knows of a node of some name."""

    node: int
    incarnation: str
    home: str
    lease_seconds: float
    """How long its lease still lasts; negative when it ran out."""


class ClusterStore:
    """The registry of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def elect(self, server: str, lease_seconds: float) -> int | None:
        """Takes the leadership if it is to be had; answers the epoch."""
        row = await self._database.fetchrow(_SQL["elect"], self._pool, server, lease_seconds)
        return None if row is None else row["epoch"]

    async def renew(self, epoch: int, lease_seconds: float) -> bool:
        """Keeps the leadership; False when the epoch is over."""
        return await self._database.fetchrow(_SQL["renew"], self._pool, epoch, lease_seconds) is not None

    async def resign(self, epoch: int) -> None:
        """Gives the leadership up, so that a successor need not wait for the lease."""
        await self._database.execute(_SQL["resign"], self._pool, epoch)

    async def take_issuer(self, holder: str, lease_seconds: float, margin_ms: int) -> tuple[int, int] | None:
        """A number to issue ids under, and the first millisecond it may stamp."""
        row = await self._database.fetchrow(_SQL["take_issuer"], self._pool, holder, lease_seconds, margin_ms)
        return None if row is None else (row["issuer"], row["used_until_ms"])

    async def renew_issuer(self, issuer: int, holder: str, lease_seconds: float, used_until_ms: int) -> bool:
        """Keeps a number; False when its lease had run out."""
        row = await self._database.fetchrow(_SQL["renew_issuer"], issuer, holder, lease_seconds, used_until_ms)
        return row is not None

    async def find_node(self, name: str) -> NodeRow | None:
        """A node by name."""
        row = await self._database.fetchrow(_SQL["find_node"], self._pool, name)
        return None if row is None else NodeRow(*row)

    async def join_node(
        self, name: str, incarnation: str, capacity: str, labels: str, functions: str, lease_seconds: float, home: str,
        profiles: str = "[]", degraded: str = "{}",
    ) -> int:  # fmt: skip
        """Begins a node's session; answers its number."""
        row = await self._database.fetchrow(
            _SQL["join_node"], self._pool, name, incarnation, capacity, labels, functions, lease_seconds, home,
            profiles, degraded,
        )  # fmt: skip
        assert row is not None
        return row["node"]

    async def renew_nodes(self, nodes: list[int], lease_seconds: float) -> None:
        """Keeps the leases of nodes that were heard of."""
        await self._database.execute(_SQL["renew_nodes"], self._pool, nodes, lease_seconds)

    async def leave_node(self, node: int, incarnation: str) -> None:
        """Notes that a node's session ended; its lease goes on, for what it runs goes on."""
        await self._database.execute(_SQL["leave_node"], self._pool, node, incarnation)

    async def lapsed_nodes(self, connected: list[int]) -> list[tuple[int, str]]:
        """Nodes that own attempts, are not connected, and whose lease ran out."""
        rows = await self._database.fetch(_SQL["lapsed_nodes"], self._pool, connected)
        return [(row["node"], row["name"]) for row in rows]

    async def owned_by(self, nodes: list[int]) -> list[Row]:
        """The attempts that these nodes own."""
        return await self._database.fetch(_SQL["owned_by"], self._pool, nodes)

    async def nodes(self) -> list[Row]:
        """All nodes by name."""
        return await self._database.fetch(_SQL["nodes"], self._pool)

    async def known_capacities(self) -> dict[str, dict[str, int]]:
        """What the nodes have by name: those seen within a day."""
        rows = await self._database.fetch(_SQL["known_capacities"], self._pool)
        return {row["name"]: msgspec.json.decode(row["capacity"], type=dict[str, int]) for row in rows}

    async def tenants(self) -> dict[int, str]:
        """Tenants' names by number."""
        return {row["tenant"]: row["name"] for row in await self._database.fetch(_SQL["tenants"])}

    async def key(self, key_id: str) -> ApiKey | None:
        """A key in force by its public part."""
        row = await self._database.fetchrow(_SQL["key"], key_id)
        return None if row is None else ApiKey(*row)

    async def keep_key(self, key: ApiKey) -> bool:
        """Makes a key valid; False when it was revoked before."""
        row = await self._database.fetchrow(_SQL["keep_key"], key.key_id, key.tenant, key.role, key.digest)
        return row is not None and row["valid"]

    async def hour(self) -> datetime:
        """The database's clock."""
        row = await self._database.fetchrow(_SQL["hour"])
        assert row is not None
        return row["now"]
