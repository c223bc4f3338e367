"""Procrastinate: PostgreSQL by psycopg."""

from __future__ import annotations

from typing import Any

from procrastinate import App, PsycopgConnector  # pyright: ignore[reportMissingImports]

from bench import tally
from bench.peers import side

app = App(connector=PsycopgConnector(conninfo=side.BROKER))


@app.task(name="noop")
async def noop(number: int) -> int:
    """Next to nothing."""
    tally.tick()
    return number


@app.task(name="stamp")
async def stamp(number: int) -> int:
    """Writes down when it began."""
    tally.stamp(number)
    return number


TASKS: dict[str, Any] = {"noop": noop, "stamp": stamp}


class ProcrastinateSide(side.Side):
    """Its own App does everything."""

    async def open(self, connections: int) -> None:
        await app.open_async()

    async def install(self) -> None:
        await app.schema_manager.apply_schema_async()

    async def submit(self, job: side.Job, number: int) -> None:
        await TASKS[job].defer_async(number=number)

    async def submit_many(self, numbers: range) -> None:
        await TASKS["noop"].batch_defer_async(*({"number": number} for number in numbers))

    async def work(self) -> None:
        await app.run_worker_async(concurrency=10, install_signal_handlers=True)

    async def close(self) -> None:
        await app.close_async()


SIDE = ProcrastinateSide()
