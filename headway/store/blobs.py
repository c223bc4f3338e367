"""Blobs: content known by its digest, each of one tenant. Small ones are rows, the others objects on a shelf.

The promises: a blob is what its digest says, for it is checked while it comes in; it never is in memory as a whole; no
crash leaves an object that no row names (`blob_garbage` in the schema), and none goes that a task still needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator

import structlog

from headway.core.ids import first_id_at
from headway.store.database import GONE, Database
from headway.store.migrate import SLICE_MS
from headway.store.shelf import PIECE_BYTES, NotThere, Shelf, ShelfFault
from headway.store.statements import statements

INLINE_BYTES_MAX = 64 * 1024
"""What is no larger is a row: 4 ms to store and 0.2 ms to read on a busy disk, against 31 and 0.4 of a synced file."""
BLOB_BYTES_MAX = 8 * 1024**3
GRACE_SECONDS = 24 * 3600.0
"""How long a blob is kept that no task needs."""
UPLOAD_SECONDS = 24 * 3600.0
"""How long an upload may take; what is left of it is removed afterwards."""
COLLECT_MAX = 1000
COLLECT_SECONDS = 600.0

_SQL = statements("blobs")
_log = structlog.get_logger("headway.blobs")


class WrongContent(Exception):
    """What came is not what the digest or the size says."""


class OverQuota(Exception):
    """The tenant's blobs would be more than it may store."""


class BlobStore:
    """The blobs of one pool."""

    def __init__(self, database: Database, pool: int, shelf: Shelf) -> None:
        self._database = database
        self._pool = pool
        self._shelf = shelf

    # ── in ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def keep(self, tenant: int, digest: str, pieces: AsyncIterator[bytes], *, most: int) -> int:
        """Stores a blob; answers its size. Raises WrongContent, or what its shelf or its pieces raise."""
        incoming = _Incoming(pieces, digest, most)
        first = await incoming.up_to(INLINE_BYTES_MAX + 1)
        if len(first) <= INLINE_BYTES_MAX:
            incoming.check()
            await self.keep_small(tenant, digest, first)
            return len(first)
        place = self._place(tenant, digest)
        await self._database.execute(_SQL["begin_upload"], self._pool, place, UPLOAD_SECONDS)
        try:
            await self._shelf.write(place, incoming.whole(first))
            kept = await self._database.fetchrow(_SQL["end_upload"], self._pool, tenant, digest, incoming.size, place)
        except (WrongContent, ShelfFault):
            await self._database.execute(_SQL["drop_upload"], self._pool, place)
            raise
        if kept is None:
            raise ShelfFault("the upload took longer than a day and is gone; send it again")
        if kept["place"] != place:
            await self._database.execute(_SQL["drop_upload"], self._pool, place)
        return incoming.size

    async def keep_small(self, tenant: int, digest: str, body: bytes) -> None:
        """Stores what is no larger than INLINE_BYTES_MAX, under the digest it has."""
        await self._database.execute(_SQL["keep_small_blob"], self._pool, tenant, digest, body)

    async def total(self, tenant: int) -> int:
        """How many bytes the tenant's blobs have."""
        row = await self._database.fetchrow(_SQL["total"], self._pool, tenant)
        return 0 if row is None else row["bytes"]

    def _place(self, tenant: int, digest: str) -> str:
        """A place of its own for every upload: what removes one never removes another."""
        name = digest.removeprefix("sha256:")
        return f"{self._pool}/{tenant}/{name[:2]}/{name}.{secrets.token_hex(4)}"

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def touch(self, tenant: int, digest: str) -> int | None:
        """The size of a blob that is here, and stays for a grace time; None when there is none."""
        row = await self._database.fetchrow(_SQL["touch_blob"], self._pool, tenant, digest)
        return None if row is None else row["size"]

    async def find(self, tenant: int, digest: str) -> Blob | None:
        """A blob, to be read."""
        row = await self._database.fetchrow(_SQL["find_blob"], self._pool, tenant, digest)
        return None if row is None else Blob(self._shelf, row["size"], row["body"], row["place"])

    # ── what is needed, and what goes ─────────────────────────────────────────────────────────────────────────────

    async def use(self, tenant: int, digests: list[str], task: int) -> set[str]:
        """Notes that a task needs blobs, or any task of a slice (`slice_start`); answers which there are."""
        rows = await self._database.fetch(_SQL["use_blobs"], self._pool, tenant, digests, task)
        return {row["digest"] for row in rows}

    async def release(self, tenant: int, digest: str, task: int) -> None:
        """A task needs a blob no more."""
        await self._database.execute(_SQL["release_blob"], self._pool, tenant, digest, task)

    async def collect(self, grace_seconds: float = GRACE_SECONDS) -> int:
        """Removes what nothing needs; answers how many objects went. A crash anywhere leaves it to the next time."""
        await self._database.execute(_SQL["spare_used"], self._pool, grace_seconds, COLLECT_MAX)
        await self._database.execute(_SQL["drop_unused"], self._pool, grace_seconds, COLLECT_MAX)
        due = [row["place"] for row in await self._database.fetch(_SQL["due_garbage"], self._pool, COLLECT_MAX)]
        gone: list[str] = []
        for place in due:
            try:
                await self._shelf.remove(place)
                gone.append(place)
            except ShelfFault as fault:
                _log.warning("blob_not_removed", place=place, why=str(fault))
        if gone:
            await self._database.execute(_SQL["forget_garbage"], self._pool, gone)
        return len(gone)

    async def signing_secret(self) -> bytes:
        """What all servers of this database sign addresses with."""
        await self._database.execute(_SQL["make_signing_secret"], secrets.token_bytes(32))
        row = await self._database.fetchrow(_SQL["signing_secret"])
        assert row is not None
        return row["secret"]


class Blob:
    """One blob that is here."""

    def __init__(self, shelf: Shelf, size: int, body: bytes | None, place: str | None) -> None:
        self._shelf = shelf
        self._place = place
        self.size = size
        self.body = body
        """All of it, when it is small."""

    async def read(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Its bytes from `start` up to `end`."""
        end = self.size if end is None else end
        if self.body is not None:
            yield self.body[start:end]
            return
        assert self._place is not None
        async for piece in self._shelf.read(self._place, start, end):
            yield piece

    async def check(self) -> None:
        """Raises what reading it would, before an answer has begun."""
        if self._place is None:
            return
        async for _ in self._shelf.read(self._place, 0, 1):
            return
        raise NotThere("the blob is empty on its shelf")


async def collect_for_ever(blobs: BlobStore) -> None:
    """Removes what nothing needs, in small rounds, on every server: one that finds another at it takes other rows."""
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        try:
            while await blobs.collect() == COLLECT_MAX:
                pass
        except GONE as fault:
            _log.warning("blobs_not_collected", why=str(fault))


def slice_start(now: float | None = None) -> int:
    """Stands for all tasks born in the same slice of time: what they need is noted once."""
    now_ms = int((time.time() if now is None else now) * 1000)
    return first_id_at(now_ms // SLICE_MS * SLICE_MS)


async def one_piece(body: bytes) -> AsyncIterator[bytes]:
    """A body that is in memory already, as `keep` takes it."""
    yield body


class _Incoming:
    """Counts and digests what comes in, in large pieces and off the loop's thread."""

    def __init__(self, pieces: AsyncIterator[bytes], digest: str, most: int) -> None:
        self._pieces = pieces
        self._digest = digest
        self._most = most
        self._sha = hashlib.sha256()
        self.size = 0

    async def up_to(self, count: int) -> bytes:
        """The next bytes: `count` of them or a little more, fewer only at the end."""
        held = bytearray()
        while len(held) < count:
            piece = await anext(self._pieces, None)
            if piece is None:
                break
            held += piece
        self.size += len(held)
        if self.size > self._most:
            raise WrongContent(f"it is larger than the {self._most} bytes that were said or are allowed")
        body = bytes(held)
        if len(body) > INLINE_BYTES_MAX:
            await asyncio.to_thread(self._sha.update, body)
        else:
            self._sha.update(body)
        return body

    async def whole(self, first: bytes) -> AsyncIterator[bytes]:
        """Everything, the first piece again; raises at the end when it is not what it should be."""
        yield first
        while piece := await self.up_to(PIECE_BYTES):
            yield piece
        self.check()

    def check(self) -> None:
        """Raises WrongContent when the digest is another one."""
        found = "sha256:" + self._sha.hexdigest()
        if found != self._digest:
            raise WrongContent(f"its digest is {found}, and {self._digest} was said")
