"""Taskiq on a Redis stream, without results."""

from __future__ import annotations

from typing import Any

from taskiq_redis import RedisStreamBroker  # pyright: ignore[reportMissingImports]

from bench import tally
from bench.peers import side

broker = RedisStreamBroker(side.BROKER)


@broker.task(task_name="noop")
async def noop(number: int) -> int:
    """Next to nothing."""
    tally.tick()
    return number


@broker.task(task_name="stamp")
async def stamp(number: int) -> int:
    """Writes down when it began."""
    tally.stamp(number)
    return number


TASKS: dict[str, Any] = {"noop": noop, "stamp": stamp}


class TaskiqSide(side.Side):
    """Its workers are started by its own program."""

    async def open(self, connections: int) -> None:
        await broker.startup()

    async def submit(self, job: side.Job, number: int) -> None:
        await TASKS[job].kiq(number)

    async def close(self) -> None:
        await broker.shutdown()


SIDE = TaskiqSide()
