"""The table of routes, and the ASGI application that serves it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version

import structlog
from asyncpg import QueryCanceledError
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from headway.gateway.accounts import AccountsApi
from headway.gateway.api import Api
from headway.gateway.artifacts import ArtifactsApi
from headway.gateway.blobs import BlobsApi
from headway.gateway.bounds import can_be_said_twice
from headway.gateway.decoding import refuse_unknown
from headway.gateway.events import EventsApi
from headway.gateway.following import LogsApi
from headway.gateway.nodes import NodesApi
from headway.gateway.openapi import document
from headway.gateway.operations import OPEN_OPERATIONS, OPERATIONS, Operation
from headway.gateway.problems import Problem
from headway.gateway.steering import SteeringApi
from headway.store.database import GONE

Endpoint = Callable[[Request], Awaitable[Response]]
Ready = Callable[[], Awaitable[str | None]]
"""Why the server is not ready, or None."""
_log = structlog.get_logger("headway.gateway")


class _IdConvertor(Convertor[str]):
    """What stands where an id belongs: anything up to a slash or the colon of a verb."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _NameConvertor(Convertor[str]):
    """The name of tasks, which may have slashes and colons: all up to the verb."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _DigestConvertor(Convertor[str]):
    """A digest, which has a colon in it and no verb behind it."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _IdConvertor())
register_url_convertor("digest", _DigestConvertor())
register_url_convertor("task_name", _NameConvertor())


def _endpoints(
    api: Api,
    accounts: AccountsApi,
    steering: SteeringApi,
    events: EventsApi,
    blobs: BlobsApi,
    artifacts: ArtifactsApi,
    nodes: NodesApi,
    logs: LogsApi,
) -> dict[str, Endpoint]:
    """Who answers which operation."""
    return {
        "submitTask": api.submit,
        "submitBatch": api.submit_batch,
        "waitForTasks": api.wait,
        "listTasks": api.list,
        "cancelTask": api.cancel,
        "changeTask": steering.change,
        "pauseTask": steering.pause,
        "resumeTask": steering.resume,
        "readEvents": events.events,
        "explainTask": api.explain,
        "stats": api.stats,
        "listAttempts": api.attempts,
        "readLog": logs.logs,
        "readResult": api.result,
        "getTask": api.get,
        "uploadScript": api.upload_script,
        "keepBlob": blobs.put,
        "readBlob": blobs.get,
        "listArtifacts": artifacts.list,
        "readArtifact": artifacts.read,
        "readArtifacts": artifacts.archive,
        "listNodes": nodes.list,
        "getNode": nodes.show,
        "cordonNode": nodes.cordon,
        "uncordonNode": nodes.uncordon,
        "drainNode": nodes.drain,
        "readNodeEvents": nodes.events,
        "whoAmI": accounts.me,
        "createTenant": accounts.create_tenant,
        "listTenants": accounts.tenants,
        "getTenant": accounts.tenant,
        "changeTenant": accounts.change_tenant,
        "createPlan": accounts.create_plan,
        "listPlans": accounts.plans,
        "getPlan": accounts.plan,
        "changePlan": accounts.change_plan,
        "listTiers": accounts.tiers,
        "getTier": accounts.tier,
        "keepTier": accounts.keep_tier,
        "listPools": accounts.pools,
        "getPool": accounts.pool,
        "changePool": accounts.change_pool,
        "pausePool": accounts.pause_pool,
        "resumePool": accounts.resume_pool,
        "listNames": accounts.names,
        "pauseName": accounts.pause_name,
        "resumeName": accounts.resume_name,
        "createKey": accounts.create_key,
        "listKeys": accounts.keys,
        "revokeKey": accounts.revoke_key,
    }


def application(
    api: Api,
    accounts: AccountsApi,
    steering: SteeringApi,
    events: EventsApi,
    blobs: BlobsApi,
    artifacts: ArtifactsApi,
    nodes: NodesApi,
    logs: LogsApi,
    *,
    ready: Ready,
    metrics: Callable[[], bytes],
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """The whole HTTP face; `more` are routes of other services in this process (the agents' sessions)."""
    described = document([*OPERATIONS, *OPEN_OPERATIONS], version("headway"))
    endpoints = _endpoints(api, accounts, steering, events, blobs, artifacts, nodes, logs)

    async def livez(_: Request) -> Response:
        return Response("ok", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        why = await ready()
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
    routes: list[BaseRoute] = [
        Route(_pattern(o.path), _strict(o, endpoints[o.name]), methods=[o.method]) for o in OPERATIONS
    ]
    routes += [Route(path, endpoint) for path, endpoint in open_routes]
    served = Starlette(routes=[*routes, *more], exception_handlers=_HANDLERS)
    served.router.redirect_slashes = False  # a redirect would go wherever the Host header says
    return served


def _strict(operation: Operation, endpoint: Endpoint) -> Endpoint:
    """An endpoint that is asked nothing it does not know."""
    known = frozenset(operation.query)
    many = frozenset(name for name in known if can_be_said_twice(operation.name, name))

    async def strict(request: Request) -> Response:
        if request.scope["query_string"]:
            refuse_unknown(request, known, many=many)
        return await endpoint(request)

    return strict


def _pattern(path: str) -> str:
    """An id or a name runs to the colon of the verb behind it, not over it; the name of tasks may have some itself."""
    other = "task_name" if path.startswith("/v1/names/") else "id"
    kinds = {"digest": "digest", "path": "task_name"}
    return re.sub(r"{(\w+)}", lambda found: f"{{{found[1]}:{kinds.get(found[1], other)}}}", path)


async def _problem(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, Problem)
    return fault.response()


async def _http(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    if fault.status_code == 405:
        allowed = ", ".join(_methods(request))
        answer = Problem("method_not_allowed", f"here only {allowed} can be asked; see /openapi.json").response()
        answer.headers["Allow"] = allowed
        return answer
    return Problem("not_found", "there is no such path; see /openapi.json").response()


def _methods(request: Request) -> list[str]:
    """What the path serves; the framework knows only of the first route of a path."""
    served = (route for route in request.app.routes if isinstance(route, Route))
    here = (route.methods or () for route in served if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for methods in here for method in methods})


async def _database_away(request: Request, fault: Exception) -> Response:
    _log.warning("request_failed_without_database", path=request.url.path, why=str(fault))
    return Problem("unavailable", "the database does not answer; nothing is lost; try again in a second").response()


async def _too_slow(request: Request, fault: Exception) -> Response:
    _log.warning("request_took_too_long", path=request.url.path, why=str(fault))
    detail = "the database looked through too much for this; narrow the filter, by status, by name or by fewer tags"
    return Problem("too_slow", detail).response()


async def _bug(request: Request, fault: Exception) -> Response:
    _log.error("request_failed", path=request.url.path, exc_info=fault)
    return Problem("internal", "this is a fault in Headway, written to the server's log").response()


_HANDLERS = {
    Problem: _problem,
    HTTPException: _http,
    QueryCanceledError: _too_slow,
    Exception: _bug,
} | dict.fromkeys(GONE, _database_away)
