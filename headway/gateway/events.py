"""`GET /v1/events`: what went otherwise than asked, in the order it happened, page by page or as a stream.

A reader keeps the cursor of the last answer. Nothing ever appears before a cursor that was handed out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headway.core.refusal import Refused
from headway.gateway.auth import Authenticator
from headway.gateway.decoding import whole
from headway.gateway.problems import Problem, refused
from headway.gateway.waiting import Waiting
from headway.store.events import EventRow, EventStore, Place

KINDS = ("failed", "cap_exceeded", "retried", "cancelled", "paused", "resumed", "preempted", "checkpointed")
EVENTS_MAX = 1000
WAIT_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.25
"""How often it is looked for what a waiting reader waits for: one probe of an index."""
SILENCE_SECONDS = 15.0
"""After so long without an event a stream says that it lives."""
_STATUS = {3: "failed", 4: "cancelled", None: None}
_encode = msgspec.json.Encoder().encode


class EventView(msgspec.Struct, frozen=True):
    """Something that happened to a task."""

    cursor: str
    """Where a reader goes on that has seen this."""
    at: datetime
    task: str
    kind: str
    status: str | None
    """How the task ended by it; null: it goes on."""
    attempt: int
    code: str
    message: str


class _Asked(NamedTuple):
    tenant: int
    task: int | None
    kinds: list[str] | None
    limit: int


class EventsApi:
    """The endpoint and what it leans on."""

    def __init__(self, *, events: EventStore, authenticator: Authenticator, waiting: Waiting) -> None:
        self._events = events
        self._authenticator = authenticator
        self._waiting = waiting

    async def events(self, request: Request) -> Response:
        """The tenant's events behind a cursor; a stream of them for who accepts one."""
        caller = await self._authenticator.caller(request.headers.get("authorization"), role="client")
        limit = whole(request, "limit", 100, least=1, most=EVENTS_MAX)
        seconds = whole(request, "wait", 0, least=0, most=int(WAIT_SECONDS_MAX))
        asked = _Asked(caller.tenant, _task(request), _kinds(request), limit)
        place = await place_of(request, self._events)
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(self._stream(asked, place), media_type="text/event-stream")
        found = await self._wait(asked, place, seconds)
        views = [_view(row) for row in found]
        cursor = views[-1].cursor if views else cursor_of(place)
        body = _encode({"items": views, "next_cursor": cursor})
        return Response(body, media_type="application/json")

    async def _wait(self, asked: _Asked, place: Place, seconds: float) -> list[EventRow]:
        """The next events, as soon as there are any."""
        until = time.monotonic() + seconds
        while True:
            found = await self._read(asked, place)
            left = until - time.monotonic()
            if found or left <= 0 or self._waiting.stopping:
                return found
            await asyncio.sleep(min(LOOK_SECONDS, left))

    async def _stream(self, asked: _Asked, place: Place) -> AsyncIterator[bytes]:
        while not self._waiting.stopping:
            found = await self._wait(asked, place, SILENCE_SECONDS)
            for row in found:
                view = _view(row)
                yield f"id: {view.cursor}\nevent: {view.kind}\ndata: ".encode() + _encode(view) + b"\n\n"
            if found:
                place = found[-1].place
            else:
                yield b": still here\n\n"

    async def _read(self, asked: _Asked, place: Place) -> list[EventRow]:
        return await self._events.after(asked.tenant, place, task=asked.task, kinds=asked.kinds, most=asked.limit)


def _view(row: EventRow) -> EventView:
    return EventView(
        cursor_of(row.place), row.at, str(row.task), row.kind, _STATUS[row.status], row.attempt, row.code, row.message
    )


async def place_of(request: Request, events: EventStore) -> Place:
    """Where a reader is that asks so."""
    said = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
    if said == "now":
        return await events.now()
    tx, dash, seq = (said or "0-0").partition("-")
    if not (dash and _is_number(tx) and _is_number(seq)):
        raise refused([Refused("cursor", 'expected the cursor of an answer, or "now"')])
    return Place(int(tx), int(seq))


def cursor_of(place: Place) -> str:
    """Where a reader goes on that has seen what is at a place."""
    return f"{place.tx}-{place.seq}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _task(request: Request) -> int | None:
    said = request.query_params.get("task")
    if said is None:
        return None
    if not _is_number(said):
        raise Problem("not_found", f"there is no task {said[:40]!r}: an id is a whole number")
    return int(said)


def _kinds(request: Request) -> list[str] | None:
    said = request.query_params.getlist("kind")
    if wrong := [kind for kind in said if kind not in KINDS]:
        raise refused([Refused("kind", f"there is no kind {wrong[0]!r}; there are: {', '.join(KINDS)}")])
    return said or None
