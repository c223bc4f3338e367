"""The leases of nodes: renewed in the database first, and only then said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.scheduler.sessions import Session
from headway.store.cluster import ClusterStore
from headway.wire import Renewed

NODE_LEASE_SECONDS = 15.0


class NodeLeases:
    """Who asked for its lease to be renewed."""

    def __init__(self, cluster: ClusterStore, session_of: Callable[[int], Session | None]) -> None:
        self._cluster = cluster
        self._session_of = session_of
        self._beats: dict[int, int] = {}
        self._beat = asyncio.Event()

    def clear(self) -> None:
        """Forgets all: the leadership begins anew."""
        self._beats.clear()

    def beat(self, node: int, sequence: int) -> None:
        """A node asks for it."""
        self._beats[node] = sequence
        self._beat.set()

    async def run(self) -> None:
        """Renews for ever, all that asked at a time."""
        while True:
            await self._beat.wait()
            self._beat.clear()
            beats, self._beats = self._beats, {}
            await self._cluster.renew_nodes(list(beats), NODE_LEASE_SECONDS)
            for node, sequence in beats.items():
                session = self._session_of(node)
                if session is not None:
                    session.send(Renewed(sequence))
