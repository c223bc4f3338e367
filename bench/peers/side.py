"""What a peer can do for the bench. Runs with the peer's own interpreter; `python -m bench.peers` drives it."""

from __future__ import annotations

import asyncio
import os
from typing import Literal

BROKER = os.environ.get("BENCH_BROKER", "")
BATCH = int(os.environ.get("BENCH_BATCH", "10"))
ANALYZE = os.environ.get("BENCH_ANALYZE") == "1"
Job = Literal["noop", "stamp"]


class Side:
    """A peer overrides what it can."""

    run = staticmethod(asyncio.run)

    async def open(self, connections: int) -> None:
        """Connects."""

    async def install(self) -> None:
        """Makes tables."""

    async def submit(self, job: Job, number: int) -> None:
        """Enqueues one task and waits until that is done."""
        raise NotImplementedError

    async def submit_many(self, numbers: range) -> None:
        """Enqueues no-ops, as many at a time as the peer takes."""
        for number in numbers:
            await self.submit("noop", number)

    async def analyze(self) -> None:
        """Brings the planner's statistics up to date."""

    async def work(self) -> None:
        """Runs tasks until SIGTERM."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnects."""
