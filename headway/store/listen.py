"""Hears of new work that gateways in other processes announce. A hint: polling finds what is missed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import structlog

from headway.store.database import GONE

CHANNEL = "headway_ready"
RETRY_SECONDS = 1.0
_log = structlog.get_logger("headway.store")


async def listen_for_ready(url: str, heard: Callable[[], None]) -> None:
    """Calls `heard` at every announcement; connects again when the connection is lost."""

    def on_notification(_connection: object, _pid: int, _channel: str, _payload: str) -> None:
        heard()

    while True:
        try:
            await _listen_once(url, on_notification, heard)
        except GONE as fault:
            _log.info("not_listening", why=str(fault))
        await asyncio.sleep(RETRY_SECONDS)


async def _listen_once(url: str, on_notification: Callable[..., None], heard: Callable[[], None]) -> None:
    """Listens on one connection until it is lost. What was announced before it began is looked for once."""
    connection = await asyncpg.connect(url)
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    try:
        await connection.add_listener(CHANNEL, on_notification)
        heard()
        await lost.wait()
    finally:
        await connection.close(timeout=1)
