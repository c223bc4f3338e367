"""The table of routes, and the ASGI application that serves it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version

import structlog
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headway.gateway.api import Api
from headway.gateway.openapi import Operation, document
from headway.gateway.problems import Problem
from headway.store.database import GONE

Endpoint = Callable[[Request], Awaitable[Response]]
Ready = Callable[[], str | None]
"""Why the server is not ready, or None."""
_log = structlog.get_logger("headway.gateway")


class _IdConvertor(Convertor[str]):
    """What stands where an id belongs: anything up to a slash or the colon of a verb."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _IdConvertor())

_BODY = ("malformed_json", "invalid", "too_large", "unsupported_media_type")


def _table(api: Api) -> list[tuple[Operation, Endpoint]]:
    listed = ("status", "name", "tag", "limit", "cursor")
    return [
        (
            Operation(
                "POST",
                "/v1/tasks",
                "submitTask",
                "Accepts a task; it is durable when this answers",
                201,
                "Task",
                "Submission",
                problems=_BODY,
            ),
            api.submit,
        ),
        (
            Operation(
                "POST",
                "/v1/tasks:batch",
                "submitBatch",
                "Accepts many tasks, each answered for itself",
                200,
                "BatchAnswer",
                "batch",
                problems=(*_BODY, "too_many_items"),
            ),
            api.submit_batch,
        ),
        (
            Operation(
                "POST",
                "/v1/tasks:wait",
                "waitForTasks",
                "Those of many tasks that are over, as soon as one is",
                200,
                "list:Task",
                "WaitFor",
                problems=_BODY,
            ),
            api.wait,
        ),
        (
            Operation(
                "GET",
                "/v1/tasks",
                "listTasks",
                "Lists tasks, newest first",
                200,
                "list:Task",
                query=listed,
                problems=("invalid",),
            ),
            api.list,
        ),
        (
            Operation(
                "POST",
                "/v1/tasks/{id}:cancel",
                "cancelTask",
                "Cancels a task",
                200,
                "Task",
                problems=("not_found", "already_finished"),
            ),
            api.cancel,
        ),
        (
            Operation(
                "GET",
                "/v1/tasks/{id}/attempts",
                "listAttempts",
                "Lists the tries of a task",
                200,
                "list:Attempt",
                problems=("not_found",),
            ),
            api.attempts,
        ),
        (
            Operation(
                "GET",
                "/v1/tasks/{id}/logs",
                "readLog",
                "The log of an attempt",
                query=("attempt", "follow"),
                problems=("not_found", "invalid"),
            ),
            api.logs,
        ),
        (
            Operation(
                "GET",
                "/v1/tasks/{id}/result",
                "readResult",
                "The task once it is over (200) or as it is (202)",
                200,
                "Task",
                query=("wait",),
                problems=("not_found", "invalid"),
            ),
            api.result,
        ),
        (
            Operation("GET", "/v1/tasks/{id}", "getTask", "Shows a task", 200, "Task", problems=("not_found",)),
            api.get,
        ),
        (
            Operation(
                "POST",
                "/v1/scripts",
                "uploadScript",
                "Keeps a script by its digest",
                201,
                "object",
                "binary",
                problems=("too_large", "invalid"),
            ),
            api.upload_script,
        ),
        (
            Operation("GET", "/v1/nodes", "listNodes", "Lists the nodes", 200, "list:object"),
            api.nodes,
        ),
        (
            Operation("GET", "/v1/me", "whoAmI", "Who the key stands for", 200, "object"),
            api.me,
        ),
    ]


def application(api: Api, *, ready: Ready, metrics: Callable[[], bytes], more: Sequence[BaseRoute] = ()) -> Starlette:
    """The whole HTTP face; `more` are routes of other services in this process (the agents' sessions)."""
    table = _table(api)
    described = document([operation for operation, _ in table] + _open_operations(), version("headway"))

    async def livez(_: Request) -> Response:
        return Response("ok", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        why = ready()
        return Response(why or "ok", 503 if why else 200, media_type="text/plain")

    async def show_metrics(_: Request) -> Response:
        return Response(metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(_: Request) -> Response:
        return Response(described, media_type="application/json")

    open_routes = (
        ("/livez", livez),
        ("/readyz", readyz),
        ("/metrics", show_metrics),
        ("/openapi.json", openapi),
    )
    routes: list[BaseRoute] = [Route(_pattern(o.path), endpoint, methods=[o.method]) for o, endpoint in table]
    routes += [Route(path, endpoint) for path, endpoint in open_routes]
    return Starlette(routes=[*routes, *more], exception_handlers=_HANDLERS)


def _open_operations() -> list[Operation]:
    said = (
        ("/livez", "isAlive", "Whether the process answers"),
        ("/readyz", "isReady", "Whether it accepts work"),
        ("/metrics", "metrics", "Prometheus metrics"),
        ("/openapi.json", "describe", "This document"),
    )
    return [Operation("GET", path, name, summary, secured=False) for path, name, summary in said]


def _pattern(path: str) -> str:
    """An id runs to the colon of the verb behind it, not over it."""
    return re.sub(r"{id}", "{id:id}", path)


async def _problem(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, Problem)
    return fault.response()


async def _http(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    if fault.status_code == 405:
        return Problem("method_not_allowed", "this method is not served here; see /openapi.json").response()
    return Problem("not_found", "there is no such path; see /openapi.json").response()


async def _database_away(request: Request, fault: Exception) -> Response:
    _log.warning("request_failed_without_database", path=request.url.path, why=str(fault))
    return Problem("unavailable", "the database does not answer; nothing is lost; try again in a second").response()


async def _bug(request: Request, fault: Exception) -> Response:
    _log.error("request_failed", path=request.url.path, exc_info=fault)
    return Problem("internal", "this is a fault in Headway, written to the server's log").response()


_HANDLERS = {Problem: _problem, HTTPException: _http, Exception: _bug} | dict.fromkeys(GONE, _database_away)
