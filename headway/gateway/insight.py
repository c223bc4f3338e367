"""What is known here of the pool's leader and what it sees: by a call when it is in this process, by its row in the
database when it is not. Servers never ask each other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

import asyncpg
import structlog

from headway.core.explain import Explanation
from headway.core.forecast import Waits
from headway.core.outlook import Look, Outlook
from headway.core.queue import LineKey, ReadyTask
from headway.store.database import GONE
from headway.store.outlook import OutlookStore, Published

READ_SECONDS = 1.0
"""How long what was read of another server's outlook is good enough."""
ANSWER_SECONDS = 2.0
NO_LEADER = Explanation(
    code="no_leader",
    message="no server leads the pool",
    helps=("start one: headway server; one that stands by takes over within seconds",),
)
_log = structlog.get_logger("headway.gateway")


class Live(Protocol):
    """A leader in this process, if it leads."""

    @property
    def published(self) -> Published | None:
        """How it saw its pool last; None while another server leads."""
        ...

    def task(self, key: LineKey, task: ReadyTask) -> Look | None:
        """All that can be said of a ready task at this moment."""
        ...


class Elsewhere:
    """For a process without a leader of its own."""

    published: Published | None = None

    def task(self, key: LineKey, task: ReadyTask) -> Look | None:
        """Only the leader knows."""
        del key, task
        return None


class Known(NamedTuple):
    """An outlook, made ready to be asked."""

    as_of: datetime
    outlook: Outlook
    why: Mapping[LineKey, Explanation]
    waits: Waits


class Insight:
    """The outlook as last heard of."""

    def __init__(self, live: Live, store: OutlookStore) -> None:
        self._live = live
        self._store = store
        self._read: Published | None = None
        self._read_until = 0.0
        self._published: Published | None = None
        self._known: Known | None = None
        self.is_led = True
        """Whether some server led the pool when last looked."""

    async def known(self) -> Known | None:
        """What the leader sees; None where none has told anything yet."""
        published = self._live.published
        if published is not None:
            self.is_led = True
        else:
            published = await self._from_another()
        if published is not self._published:
            self._published, self._known = published, None if published is None else _known(published)
        return self._known

    def task(self, key: LineKey, task: ReadyTask) -> Look | None:
        """All that can be said of a ready task at this moment; None where the leader is another server."""
        return self._live.task(key, task)

    async def _from_another(self) -> Published | None:
        """Reads what the leader wrote, one caller at a time; the others go on with what was read before."""
        now = time.monotonic()
        if now < self._read_until:
            return self._read
        self._read_until = now + READ_SECONDS
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._store.read(self._read)
        except (*GONE, asyncpg.PostgresError) as fault:
            _log.warning("outlook_not_read", why=str(fault))
            return self._read
        self.is_led = found != "nobody leads"
        self._read = None if isinstance(found, str) else found
        return self._read


def _known(published: Published) -> Known:
    outlook = published.outlook
    return Known(published.as_of, outlook, outlook.why(), outlook.waits())
