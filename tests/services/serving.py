"""A real server in the test's own loop: gateway and leader on a loopback port and a fresh database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from headway.app import ServerSettings
from headway.app.server import serve

CLIENT_KEY = "hw_testtest_0123456789012345678901234567890123456789012"
NODE_KEY = "hw_nodenode_0123456789012345678901234567890123456789012"
TRUE = {"command": ["/bin/true"]}
SECONDS = 20


@dataclass(frozen=True)
class Serving:
    """A server that serves, and a client with its key."""

    url: str
    http: httpx2.AsyncClient
    task: asyncio.Task[None]

    async def submitted(self, **said: object) -> str:
        """The id of a task that does nothing, unless it is said what."""
        body = said if "function" in said else {**TRUE, **said}
        answer = await self.http.post("/v1/tasks", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def until(self, task: str, code: str) -> dict[str, Any]:
        """The task, as soon as it is what it is for this reason."""
        async with asyncio.timeout(SECONDS):
            while (found := (await self.http.get(f"/v1/tasks/{task}")).json())["reason"]["code"] != code:
                await asyncio.sleep(0.02)
        return found

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
        async with asyncio.timeout(SECONDS):
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
