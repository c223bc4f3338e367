"""What agents ask of blobs: those of the tenants they work for, and room for what an attempt leaves.

A small blob goes with the answer; for any other, and for all that is stored, the agent gets a signed address of this
server. So an agent holds neither a tenant's key nor any of the storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headway.files.signing import GRANT_SECONDS, Grant, Signer
from headway.scheduler.books import Books
from headway.store.artifacts import ArtifactStore
from headway.store.blobs import BlobStore
from headway.wire import Blob, Ending, Fetch, Granted, Key, Offer


class Files:
    """Answers agents. `signer` is there once the server has read its secret."""

    def __init__(
        self,
        blobs: BlobStore,
        artifacts: ArtifactStore,
        signer: Callable[[], Signer],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._blobs = blobs
        self._artifacts = artifacts
        self._signer = signer
        self._now = now

    async def fetch(self, books: Books, node: int, asked: Fetch) -> Blob | Granted:
        """A blob for a node, if it works for the tenant."""
        blob = await self._blobs.find(asked.tenant, asked.digest) if books.works_for(node, asked.tenant) else None
        if blob is None:
            return Blob(asked.tenant, asked.digest, None)
        if blob.body is not None:
            return Blob(asked.tenant, asked.digest, blob.body)
        grant = Grant("GET", asked.tenant, asked.digest, blob.size, self._until())
        return Granted("GET", asked.tenant, asked.digest, blob.size, self._signer().path(grant))

    def store(self, books: Books, node: int, offer: Offer) -> Granted:
        """Where a node may put what an attempt leaves, if the attempt is its own."""
        path = ""
        if books.holding(node, offer.tenant, offer.task, offer.attempt) is not None:
            grant = Grant("PUT", offer.tenant, offer.digest, offer.size, self._until())
            path = self._signer().path(grant)
        return Granted("PUT", offer.tenant, offer.digest, offer.size, path, offer.task, offer.attempt)

    async def keep_artifacts(self, books: Books, node: int, endings: Sequence[Ending]) -> None:
        """Notes what attempts left, before their ends are told."""
        for ending in endings:
            key = Key(ending.tenant, ending.task, ending.attempt)
            if ending.artifacts is not None and books.holding(node, *key) is not None:
                await self._artifacts.keep(key, ending.artifacts)

    def _until(self) -> int:
        return int(self._now()) + GRANT_SECONDS
