"""What attempts left: an archive each, and what is in it."""

from __future__ import annotations

import msgspec

from headway.store.database import Database
from headway.store.statements import statements
from headway.wire import Artifacts, Key

_SQL = statements("artifacts")


class Kept(msgspec.Struct, frozen=True):
    """What one attempt left."""

    digest: str
    bytes: int
    files: int
    manifest: msgspec.Raw
    """JSON of wire.Manifest."""


class ArtifactStore:
    """The artifacts of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def keep(self, key: Key, left: Artifacts) -> None:
        """Notes what an attempt left."""
        manifest = msgspec.json.encode(left.manifest).decode()
        await self._database.execute(
            _SQL["keep_artifacts"], self._pool, *key, left.digest, left.bytes, len(left.manifest.files), manifest
        )

    async def find(self, tenant: int, task: int, attempt: int) -> Kept | None:
        """What an attempt left; None when that is nothing."""
        row = await self._database.fetchrow(_SQL["artifacts"], self._pool, tenant, task, attempt)
        if row is None:
            return None
        return Kept(row["digest"], row["bytes"], row["files"], msgspec.Raw(row["manifest"].encode()))
