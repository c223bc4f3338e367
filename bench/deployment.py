"""A fresh `headway dev`, as a user starts it, and what is put beside it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from bench import proc
from bench.contest import Unmeasurable
from bench.programs import Process, environment, last_words, running, until
from bench.tally import VARIABLE, Tally

APP = "bench.jobs:app"
WORKERS = 2
READY_SECONDS = 60.0
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
_ENDED = re.compile(r"^headway_tasks_ended_total ([0-9.e+]+)$", re.MULTILINE)


class Dev(NamedTuple):
    """A running `headway dev`."""

    process: Process
    data: Path
    url: str
    key: str
    node_key: str
    ready_seconds: float
    """From the command to its ready file."""

    @property
    def client_env(self) -> dict[str, str]:
        """What a client needs to find it."""
        return environment(HEADWAY_URL=self.url, HEADWAY_KEY=self.key)

    def child(self, command: str) -> int:
        """The pid of its server or agent."""
        for pid in proc.family(self.process.pid)[1:]:
            if command in proc.words(pid):
                return pid
        raise Unmeasurable(f"headway dev has no {command}")

    def ended(self) -> int:
        """How many tasks have ended durably, by its own metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            found = _ENDED.search(answer.read().decode())
        assert found, "the metrics do not say how many tasks ended"
        return int(float(found[1]))

    def count(self, status: str) -> int:
        """How many tasks have a status, of no more than a page of them."""
        return len(self.some(status, 500))

    def some(self, status: str, limit: int = 5) -> list[dict[str, object]]:
        """A few tasks of a status."""
        request = urllib.request.Request(f"{self.url}/v1/tasks?status={status}&limit={limit}")
        request.add_header("Authorization", f"Bearer {self.key}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["items"]

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Its agent stands still for the block, which must be shorter than a node's lease."""
        agent = self.child("agent")
        os.kill(agent, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(agent, signal.SIGCONT)


@contextmanager
def dev(directory: Path, tally: Tally, *, functions: bool) -> Generator[Dev]:
    """`headway dev` on an empty data directory; with `functions`, two workers of the bench's app."""
    data, ready = directory / "data", directory / "ready.json"
    words = [sys.executable, "-m", "headway.cli", "dev", "--data", str(data), "--port", "0"]
    words += ["--ready-file", str(ready)]
    words += ["--app", APP, "--workers", str(WORKERS)] if functions else []
    log = directory / "dev.log"
    env = environment(**{VARIABLE: str(tally.path), "HOME": str(directory)})
    began = time.monotonic()
    with running(words, log, env) as process:
        at = until("headway dev is ready", lambda: ready.exists() or process.poll() is not None, READY_SECONDS)
        if not ready.exists():
            raise Unmeasurable(f"headway dev ended: {last_words(log.read_text())}")
        said = json.loads(ready.read_text())
        node_key = json.loads((data / "keys.json").read_text())["node"]
        started = Dev(process, data, said["url"], said["key"], node_key, at - began)
        asyncio.run(_insist_on_durability(data))
        yield started


@contextmanager
def worker(one: Dev, directory: Path, tally: Tally, name: str = "bench") -> Generator[Process]:
    """`headway worker` beside it: a node that runs only functions, with two worker processes."""
    env = environment(**{
        VARIABLE: str(tally.path), "HOME": str(directory), "HEADWAY_URL": one.url, "HEADWAY_KEY": one.node_key,
    })  # fmt: skip
    words = [sys.executable, "-m", "headway.cli", "worker", APP, "--workers", str(WORKERS)]
    words += ["--node", name, "--data", str(directory / f"agent-{name}")]
    with running(words, directory / f"worker-{name}.log", env) as process:
        yield process


async def _insist_on_durability(data: Path) -> None:
    """Asks the database itself: a figure without fsync would be worth nothing."""
    import asyncpg

    moved = data / "socket_dir"
    host = moved.read_text() if moved.exists() else str(data / "run")
    password = quote((data / "postgres.password").read_text().strip())
    dsn = f"postgresql://headway:{password}@/headway?{urlencode({'host': host, 'port': '5432'})}"
    connection = await asyncpg.connect(dsn)
    try:
        found = {name: await connection.fetchval(f"show {name}") for name in DURABLE}
    finally:
        await connection.close()
    if found != DURABLE:
        raise Unmeasurable(f"the database of headway dev is not durable: {found}")
