"""Huey on Redis, without results."""

from __future__ import annotations

from huey import RedisHuey  # pyright: ignore[reportMissingImports]

from bench import tally
from bench.peers import side

huey = RedisHuey("bench", url=side.BROKER, results=False)


@huey.task()
def noop(number: int) -> int:
    """Next to nothing."""
    tally.tick()
    return number


@huey.task()
def stamp(number: int) -> int:
    """Writes down when it began."""
    tally.stamp(number)
    return number


class HueySide(side.Side):
    """Its workers are started by its own program."""

    async def submit(self, job: side.Job, number: int) -> None:
        {"noop": noop, "stamp": stamp}[job](number)


SIDE = HueySide()
