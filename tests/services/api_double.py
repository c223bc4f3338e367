"""The other side of the protocol for the tests of the SDK and the command line: the HTTP API over a dict, in
a thread.

It is no second implementation of the server: tasks change only when a test says so.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

KEY = "hw_abcd2345_" + "s" * 43


class Api:
    """What was sent, and what is answered."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.tasks: dict[str, dict[str, Any]] = {}
        self.scripts: dict[str, bytes] = {}
        self.log = b"one\ntwo\n"
        self.tail = "ZeroDivisionError"
        self.requests: list[str] = []
        self.finish: dict[str, Any] | None = None
        """What becomes of every task the moment it is submitted; None leaves it waiting."""
        self.refuse_next: tuple[int, dict[str, Any]] | None = None

    def forget(self) -> None:
        """Begins anew, under the same address."""
        self.__init__(self.url)

    def add(self, said: dict[str, Any]) -> dict[str, Any]:
        task_id = str(1000 + len(self.tasks))
        task: dict[str, Any] = {"id": task_id, "name": "t", "tier": "basic", "status": "waiting"}
        task |= {"reason": None, "tags": {}, "node": None, "result": None, "said": said}
        task["submitted_at"] = "2026-11-18T20:00:00Z"
        self.tasks[task_id] = task | (self.finish or {})
        return self.tasks[task_id]

    async def answer(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return _problem(401, "unauthorized", "this key is not known")
        if self.refuse_next is not None:
            (status, problem), self.refuse_next = self.refuse_next, None
            return JSONResponse(problem, status)
        body = await request.body()
        match request.method, request.url.path.removeprefix("/v1/").split("/"):
            case "POST", ["tasks"]:
                return JSONResponse(self.add(json.loads(body)), 201)
            case "POST", ["tasks:batch"]:
                return JSONResponse(self._batch(request, body))
            case "POST", ["tasks:wait"]:
                ids = json.loads(body)["ids"]
                return JSONResponse({"items": [self.tasks[i] for i in ids if self._final(i)]})
            case "POST", ["scripts"]:
                digest = f"sha256:{len(self.scripts):064x}"
                self.scripts[digest] = body
                return JSONResponse({"digest": digest, "size": len(body)}, 201)
            case "POST", ["tasks", told] if told.removesuffix(":cancel") in self.tasks:
                return self._cancel(told.removesuffix(":cancel"))
            case "GET", ["tasks"]:
                newest = sorted(self.tasks.values(), key=lambda task: -int(task["id"]))
                return JSONResponse({"items": newest, "next_cursor": None})
            case "GET", ["tasks", task_id, *rest] if task_id in self.tasks:
                return await self._about(task_id, rest)
            case _:
                return _problem(404, "not_found", "there is no such task")

    async def _about(self, task_id: str, rest: list[str]) -> Response:
        match rest:
            case ["logs"]:
                return PlainTextResponse(self.log)
            case ["attempts"]:
                return JSONResponse({"items": [{"attempt": 1, "outcome": "failed", "tail": self.tail}]})
            case ["result"]:
                return JSONResponse(self.tasks[task_id], 200 if self._final(task_id) else 202)
            case _:
                return JSONResponse(self.tasks[task_id])

    def _batch(self, request: Request, body: bytes) -> dict[str, Any]:
        lines = request.headers["content-type"] == "application/x-ndjson"
        said = [json.loads(line) for line in body.splitlines() if line.strip()] if lines else json.loads(body)
        items: list[dict[str, Any]] = []
        for index, one in enumerate(said):
            if one.get("tier") == "nope":
                problem = {"code": "invalid", "detail": "there is no tier 'nope'", "errors": []}
                items.append({"index": index, "error": problem})
            else:
                items.append({"index": index, "id": self.add(one)["id"]})
        accepted = sum("id" in item for item in items)
        return {"accepted": accepted, "rejected": len(items) - accepted, "items": items}

    def _cancel(self, task_id: str) -> Response:
        if self._final(task_id):
            return _problem(409, "already_finished", f"task {task_id} has finished")
        self.tasks[task_id] |= {"status": "cancelled", "reason": {"code": "cancelled", "message": "by you"}}
        return JSONResponse(self.tasks[task_id])

    def _final(self, task_id: str) -> bool:
        return self.tasks[task_id]["status"] in {"done", "failed", "cancelled"}


@contextmanager
def serving(api: Api) -> Iterator[Api]:
    """`api` on a free port of the loopback address."""
    methods = ["GET", "POST"]
    app = Starlette(routes=[Route("/{path:path}", api.answer, methods=methods)])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    with config.bind_socket() as listening:
        listening.listen(64)
        api.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            yield api
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def _problem(status: int, code: str, detail: str) -> Response:
    return JSONResponse({"status": status, "code": code, "detail": detail, "errors": []}, status)
