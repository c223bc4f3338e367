"""A real server in the test's own loop: gateway and leader on a loopback port and a fresh database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from headway.app import ServerSettings
from headway.app.server import serve

CLIENT_KEY = "hw_testtest_0123456789012345678901234567890123456789012"
NODE_KEY = "hw_nodenode_0123456789012345678901234567890123456789012"
TRUE = {"command": ["/bin/true"]}


@dataclass(frozen=True)
class Serving:
    """A server that serves, and a client with its key."""

    url: str
    http: httpx2.AsyncClient
    task: asyncio.Task[None]

    def stop(self) -> None:
        """Stops the server before its test ends."""
        self.task.cancel()


@asynccontextmanager
async def a_server(database_url: str, directory: Path) -> AsyncIterator[Serving]:
    """Runs a server for the length of a test."""
    keys, ready = directory / "keys.json", directory / "ready.json"
    keys.write_text(json.dumps({"client": CLIENT_KEY, "node": NODE_KEY}))
    settings = ServerSettings(
        database_url=database_url, port=0, ready_file=ready, bootstrap_keys=keys, blobs=str(directory / "blobs")
    )
    task = asyncio.create_task(serve(settings))
    try:
        async with asyncio.timeout(20):
            while not ready.exists():
                assert not task.done(), task.exception()
                await asyncio.sleep(0)
        url = json.loads(ready.read_text())["url"]
        headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
            yield Serving(url, http, task)
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=15)
        ready.unlink(missing_ok=True)
