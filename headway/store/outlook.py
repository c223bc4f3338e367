"""The outlook of a pool: written by its leader, read by every other server."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from headway.core.outlook import Outlook
from headway.store.database import Database
from headway.store.statements import statements

_SQL = statements("outlook")
_encode = msgspec.json.Encoder().encode
_outlook = msgspec.json.Decoder(Outlook).decode


class Published(msgspec.Struct, frozen=True):
    """An outlook, and when it was so."""

    epoch: int
    as_of: datetime
    outlook: Outlook


class OutlookStore:
    """The outlook of one pool."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def write(self, epoch: int, outlook: Outlook | None) -> None:
        """Publishes an outlook; None: the last one is still so. Does nothing once the epoch is over."""
        body = None if outlook is None else _encode(outlook).decode()
        await self._database.execute(_SQL["write_outlook"], self._pool, epoch, body)

    async def read(self, known: Published | None = None) -> Published | Literal["nobody leads"] | None:
        """The outlook of whoever leads now; None before it has been told. What is `known` is not sent again."""
        at, epoch = (known.as_of, known.epoch) if known is not None else (None, None)
        row = await self._database.fetchrow(_SQL["read_outlook"], self._pool, at, epoch)
        if row is None or row["leading"] is None:
            return "nobody leads"
        if row["epoch"] != row["leading"]:
            return None
        return known if row["body"] is None else Published(row["epoch"], row["written_at"], _outlook(row["body"]))
