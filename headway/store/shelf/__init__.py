"""Where the bytes of blobs are: a directory by default, or a bucket. Nothing here knows what a blob is.

The promise of every shelf: an object is there whole or not at all; what `write` was told to give up leaves nothing that
`read` could find; `remove` may be repeated, also for what never was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

PIECE_BYTES = 1024 * 1024


class ShelfFault(Exception):
    """The shelf cannot do what was asked; the message says why. Nothing was changed."""


class NoRoom(ShelfFault):
    """The disk or the bucket is full."""


class NotThere(ShelfFault):
    """There is no such object on this shelf."""


class Shelf(Protocol):
    """Objects by their place: a relative path that is used once and never again."""

    async def write(self, place: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores what comes, durably; nothing, when the pieces end with an exception."""
        ...

    def read(self, place: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `end`, piece by piece."""
        ...

    async def remove(self, place: str) -> None:
        """Takes an object away, and what an interrupted `write` left of it."""
        ...


def open_shelf(where: str) -> Shelf:
    """The shelf at a directory, or at an address such as s3://bucket/prefix. Raises ShelfFault."""
    if "://" not in where:
        from headway.store.shelf.directory import DirectoryShelf

        return DirectoryShelf(Path(where))
    try:
        from headway.store.shelf.bucket import BucketShelf
    except ImportError:
        raise ShelfFault(
            f"{where} needs the package obstore: install headway[s3], or name a directory instead"
        ) from None
    return BucketShelf.at(where)
