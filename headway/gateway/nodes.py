"""The HTTP endpoints about nodes: what there is, which take no more tasks, and what happened to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headway.core.quantity import duration_ms
from headway.core.refusal import Refused
from headway.core.task import Duration
from headway.gateway.amounts import written
from headway.gateway.auth import Authenticator, Caller
from headway.gateway.decoding import SINGLE_BYTES_MAX, decode, expect_media_type, read_body, whole
from headway.gateway.events import EVENTS_MAX, LOOK_SECONDS, WAIT_SECONDS_MAX, cursor_of, place_of
from headway.gateway.problems import Problem, refused
from headway.gateway.waiting import Waiting
from headway.store.database import Row
from headway.store.events import EventStore
from headway.store.nodes import NodeEventRow, NodeStore

_encode = msgspec.json.Encoder().encode


class DrainBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/nodes/{name}:drain`."""

    deadline: Duration | None = None
    """How long what runs may take to end; left out: as long as it takes."""


class NodeView(msgspec.Struct, frozen=True):
    """A node."""

    name: str
    status: str
    """`open`, `cordoned`, `draining`, `drained`, `quarantined`; `away` when it takes tasks but is not connected."""
    connected: bool
    seen_at: datetime
    owned: int
    """How many attempts it has: to an administrator's key of all tenants, to others of their own."""
    cordoned_by: str | None
    drain_until: datetime | None
    quarantined_until: datetime | None
    why: str
    """Of the quarantine."""
    capacity: dict[str, int | float]
    """In the units of a submission: cpu in cores, sizes in bytes."""
    labels: msgspec.Raw
    functions: msgspec.Raw
    profiles: msgspec.Raw
    """How closed in it can run tasks."""
    degraded: msgspec.Raw
    """What it cannot do, or not as well as others, each with the reason."""


_vector = msgspec.json.Decoder(dict[str, int]).decode


class NodeEventView(msgspec.Struct, frozen=True):
    """Something that happened to a node."""

    cursor: str
    at: datetime
    node: str
    kind: str
    message: str


class Keeper(Protocol):
    """Who closes nodes: the leader, if it is in this process."""

    def look_after_nodes(self) -> None:
        """A node was closed or opened."""
        ...


_drain = msgspec.json.Decoder(DrainBody)


class NodesApi:
    """The endpoints and what they lean on."""

    def __init__(
        self,
        *,
        nodes: NodeStore,
        events: EventStore,
        authenticator: Authenticator,
        waiting: Waiting,
        keeper: Keeper,
    ) -> None:
        self._nodes = nodes
        self._events = events
        self._authenticator = authenticator
        self._waiting = waiting
        self._keeper = keeper

    async def _admin(self, request: Request) -> Caller:
        return await self._authenticator.caller(request.headers.get("authorization"), role="admin")

    async def list(self, request: Request) -> Response:
        """Lists the nodes by name."""
        caller = await self._authenticator.caller(request.headers.get("authorization"), role="client")
        rows = await self._nodes.all(seen_by=_tenant_seen(caller))
        return _json({"items": [_view(row) for row in rows], "next_cursor": None})

    async def show(self, request: Request) -> Response:
        """Shows a node."""
        caller = await self._authenticator.caller(request.headers.get("authorization"), role="client")
        return await self._answer(_name(request), _tenant_seen(caller))

    async def cordon(self, request: Request) -> Response:
        """Keeps tasks from a node; what runs there goes on."""
        caller, name = await self._admin(request), _name(request)
        return await self._steer(name, self._nodes.cordon(name, caller.submitted_by))

    async def uncordon(self, request: Request) -> Response:
        """Lets a node take tasks again, also one in quarantine."""
        caller, name = await self._admin(request), _name(request)
        return await self._steer(name, self._nodes.uncordon(name, caller.submitted_by))

    async def drain(self, request: Request) -> Response:
        """Keeps tasks from a node; what runs there has until the deadline to end."""
        caller, name = await self._admin(request), _name(request)
        expect_media_type(request, "application/json")
        said = decode(await read_body(request, SINGLE_BYTES_MAX), _drain)
        deadline = None if said.deadline is None else duration_ms(said.deadline, "deadline")
        if isinstance(deadline, Refused):
            raise refused([deadline])
        seconds = None if deadline is None else deadline / 1000
        return await self._steer(name, self._nodes.drain(name, caller.submitted_by, seconds))

    async def events(self, request: Request) -> Response:
        """What happened to nodes behind a cursor, oldest first; waits for some if asked to."""
        await self._admin(request)
        limit = whole(request, "limit", 100, least=1, most=EVENTS_MAX)
        until = time.monotonic() + whole(request, "wait", 0, least=0, most=int(WAIT_SECONDS_MAX))
        place, name = await place_of(request, self._events), request.query_params.get("node")
        while not (found := await self._nodes.events(place, name=name, most=limit)):
            left = until - time.monotonic()
            if left <= 0 or self._waiting.stopping:
                break
            await asyncio.sleep(min(LOOK_SECONDS, left))
        last = found[-1].place if found else place
        return _json({"items": [_event(row) for row in found], "next_cursor": cursor_of(last)})

    async def _steer(self, name: str, steered: Awaitable[bool]) -> Response:
        if not await steered:
            raise _none(name)
        self._keeper.look_after_nodes()
        return await self._answer(name, None)

    async def _answer(self, name: str, seen_by: int | None) -> Response:
        rows = await self._nodes.all(name, seen_by=seen_by)
        if not rows:
            raise _none(name)
        return _json(_view(rows[0]))


def _tenant_seen(caller: Caller) -> int | None:
    """Whose attempts are counted for a caller; None: everybody's."""
    return None if caller.role == "admin" else caller.tenant


def _view(row: Row) -> NodeView:
    return NodeView(
        name=row["name"],
        status=_status(row),
        connected=row["connected"],
        seen_at=row["seen_at"],
        owned=row["owned"],
        cordoned_by=row["cordoned_by"],
        drain_until=row["drain_until"],
        quarantined_until=row["quarantined_until"],
        why=row["why"],
        capacity=written(_vector(row["capacity"])),
        labels=msgspec.Raw(row["labels"].encode()),
        functions=msgspec.Raw(row["functions"].encode()),
        profiles=msgspec.Raw(row["profiles"].encode()),
        degraded=msgspec.Raw(row["degraded"].encode()),
    )


def _status(row: Row) -> str:
    if row["draining"]:
        return "draining" if row["is_busy"] else "drained"
    if row["cordoned_by"] is not None:
        return "cordoned"
    if row["quarantined_until"] is not None:
        return "quarantined"
    return "open" if row["connected"] else "away"


def _event(row: NodeEventRow) -> NodeEventView:
    return NodeEventView(cursor_of(row.place), row.at, row.name, row.kind, row.message)


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if "\0" in name:
        raise _none(name)
    return name


def _none(name: str) -> Problem:
    return Problem("not_found", f"there is no node {name[:80]!r}")


def _json(value: object) -> Response:
    return Response(_encode(value), media_type="application/json")
