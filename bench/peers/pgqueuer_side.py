"""PgQueuer: PostgreSQL by asyncpg, its worker started from Python."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries  # pyright: ignore[reportMissingImports]
from pgqueuer.db import AsyncpgDriver  # pyright: ignore[reportMissingImports]

from bench import tally
from bench.peers import side

CONNECTIONS_MAX = 16


class PgQueuerSide(side.Side):
    """One connection for a client alone, a pool for many."""

    run = staticmethod(uvloop.run)

    async def open(self, connections: int) -> None:
        if connections > 1:
            most = min(connections, CONNECTIONS_MAX)
            self.pool = await asyncpg.create_pool(side.BROKER, min_size=most, max_size=most)
            self.driver = AsyncpgPoolDriver(self.pool)
        else:
            self.connection = await asyncpg.connect(side.BROKER)
            self.driver = AsyncpgDriver(self.connection)
        self.queries = Queries(self.driver)

    async def install(self) -> None:
        await self.queries.install()

    async def submit(self, job: side.Job, number: int) -> None:
        await self.queries.enqueue(job, b"%d" % number)

    async def submit_many(self, numbers: range) -> None:
        count = len(numbers)
        await self.queries.enqueue(["noop"] * count, [b"%d" % number for number in numbers], [0] * count)

    async def analyze(self) -> None:
        await self.connection.execute("analyze")

    async def work(self) -> None:
        queue = PgQueuer(self.driver)

        @queue.entrypoint("noop")
        async def noop(job):  # pyright: ignore[reportUnusedFunction]
            tally.tick()
            return int(job.payload)

        @queue.entrypoint("stamp")
        async def stamp(job):  # pyright: ignore[reportUnusedFunction]
            tally.stamp(int(job.payload))
            return int(job.payload)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
        await queue.run(dequeue_timeout=timedelta(seconds=30), batch_size=side.BATCH)


SIDE = PgQueuerSide()
