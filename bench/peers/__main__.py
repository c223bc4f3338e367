"""Drives a peer's side, with the peer's own interpreter; prints what it measured as JSON.

python -m bench.peers NAME_side install | bulk N | many N CLIENTS | alone N | latency N | work
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path

from bench import one_by_one
from bench.peers.side import ANALYZE, Side
from bench.tally import VARIABLE, Tally

BULK_SIZE = 1_000


async def serve(side: Side, command: str, numbers: list[int]) -> object:
    """Does what the command says, between connecting and disconnecting."""
    await side.open(numbers[1] if command == "many" else 1)
    try:
        return await _obey(side, command, numbers)
    finally:
        await side.close()


async def _obey(side: Side, command: str, numbers: list[int]) -> object:
    match command:
        case "install":
            return await side.install()
        case "work":
            return await side.work()
        case "bulk":
            return await _bulk(side, *numbers)
        case "many":
            return await _many(side, *numbers)
        case "alone":
            return await one_by_one.calls(lambda number: side.submit("noop", number), *numbers)
        case "latency":
            tally = Tally(Path(os.environ[VARIABLE]))
            return await one_by_one.starts(lambda number: side.submit("stamp", number), tally, *numbers)
        case _:
            raise SystemExit(f"no such command: {command}")


async def _bulk(side: Side, count: int) -> float:
    """Tasks a second, the ANALYZE included where there is one."""
    began = time.perf_counter()
    for low in range(0, count, BULK_SIZE):
        await side.submit_many(range(low, min(low + BULK_SIZE, count)))
    if ANALYZE:
        await side.analyze()
    return count / (time.perf_counter() - began)


async def _many(side: Side, count: int, clients: int) -> dict[str, object]:
    """Tasks a second and the milliseconds of each call, with this many calls in flight."""
    numbers = iter(range(count))
    took: list[float] = []

    async def client() -> None:
        for number in numbers:
            before = time.perf_counter()
            await side.submit("noop", number)
            took.append(1000 * (time.perf_counter() - before))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return {"per_second": count / (time.perf_counter() - began), "calls": took}


if __name__ == "__main__":
    found: Side = importlib.import_module(f"bench.peers.{sys.argv[1]}").SIDE
    print(json.dumps(found.run(serve(found, sys.argv[2], [int(word) for word in sys.argv[3:]]))))
