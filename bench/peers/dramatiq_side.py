"""Dramatiq on Redis."""

from __future__ import annotations

from typing import Any

import dramatiq  # pyright: ignore[reportMissingImports]
from dramatiq.brokers.redis import RedisBroker  # pyright: ignore[reportMissingImports]

from bench import tally
from bench.peers import side

broker = RedisBroker(url=side.BROKER)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(number: int) -> int:
    """Next to nothing."""
    tally.tick()
    return number


@dramatiq.actor
def stamp(number: int) -> int:
    """Writes down when it began."""
    tally.stamp(number)
    return number


ACTORS: dict[str, Any] = {"noop": noop, "stamp": stamp}


class DramatiqSide(side.Side):
    """Its workers are started by its own program."""

    async def submit(self, job: side.Job, number: int) -> None:
        ACTORS[job].send(number)


SIDE = DramatiqSide()
