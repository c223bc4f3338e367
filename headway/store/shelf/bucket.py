"""A shelf in an object store: S3 and what speaks like it, by obstore. GCS and Azure by the same addresses.

Credentials, region and endpoint come from the server's environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on). A
large object is sent in parts, and an upload that is given up is aborted; a bucket should still have a rule that removes
incomplete uploads after a day, for those whose server was killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from headway.store.shelf import PIECE_BYTES, NotThere, ShelfFault

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 4


class BucketShelf:
    """Objects in a bucket, below a prefix."""

    def __init__(self, store: ObjectStore, where: str) -> None:
        self._store = store
        self._where = where

    @classmethod
    def at(cls, where: str) -> BucketShelf:
        """The shelf at an address."""
        try:
            return cls(from_url(where), where)
        except (BaseError, ValueError) as fault:
            raise ShelfFault(f"{where} is no place for blobs: {fault}") from None

    async def write(self, place: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores what comes."""
        watched = _Watched(pieces)
        try:
            await obstore.put_async(
                self._store, place, watched.pieces(), chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )
        except BaseException as fault:
            if watched.fault is not None:  # obstore wraps what the pieces ended with
                raise watched.fault from None
            if isinstance(fault, (BaseError, OSError)):
                raise ShelfFault(f"{self._where} does not take the blob: {fault}") from None
            raise

    async def read(self, place: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `end`."""
        if start >= end:
            return
        try:
            answer = await obstore.get_async(self._store, place, options={"range": (start, end)})
            async for piece in answer.stream(min_chunk_size=PIECE_BYTES):
                yield bytes(piece)
        except FileNotFoundError:
            raise NotThere(f"{place} is not in {self._where}") from None
        except (BaseError, OSError) as fault:
            raise ShelfFault(f"{self._where} does not give the blob: {fault}") from None

    async def remove(self, place: str) -> None:
        """Takes an object away."""
        try:
            await obstore.delete_async(self._store, place)
        except FileNotFoundError:
            pass
        except (BaseError, OSError) as fault:
            raise ShelfFault(f"{self._where} does not remove the blob: {fault}") from None


class _Watched:
    """Pieces, and what they ended with when it was an exception."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.fault: BaseException | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces:
                yield piece
        except BaseException as fault:
            self.fault = fault
            raise
