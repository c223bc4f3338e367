"""Logs: read from any byte on, and followed while they are written, by as many as like to.

The promise: a follower is told of a line as soon as the leader has it, when that is in this process, and else within
LOOK_SECONDS; one that reads slowly holds up nobody, for each has a place of its own and the pieces kept in memory are
few; and one that was cut off goes on at the byte where it was.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, contextmanager
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headway.core.log import Piece, behind, said_of
from headway.core.refusal import Refused
from headway.gateway.auth import Authenticator, Caller
from headway.gateway.decoding import whole
from headway.gateway.problems import Problem, refused
from headway.gateway.views import TaskView
from headway.store.tasks import TaskStore
from headway.wire import LogChunk

LOOK_SECONDS = 0.1
"""How often a follower looks for new pieces that nobody tells it of."""
TOLD_LOOK_SECONDS = 1.0
"""And when it is told of them: for the end of the task, and for whatever a new leader did not tell."""
RECENT_BYTES = 256 * 1024
"""Of a log that is followed, kept in memory for its followers."""
SILENCE_SECONDS = 15.0
"""How long a stream of events says nothing at most: proxies end what is silent."""
PLACE_MAX = 2**62
_encode = msgspec.json.Encoder().encode


_Pieces = AsyncGenerator[tuple[int, Piece]] | AsyncGenerator[tuple[int, Piece] | None]


class Place(NamedTuple):
    """A byte of the log of an attempt."""

    attempt: int
    at: int


class _Followed:
    """A task that somebody follows: its newest pieces, and who waits for more."""

    def __init__(self) -> None:
        self.waiting: set[asyncio.Event] = set()
        self.recent: deque[LogChunk] = deque()
        self.bytes = 0

    def add(self, chunk: LogChunk) -> None:
        self.recent.append(chunk)
        self.bytes += len(chunk.body)
        while self.bytes > RECENT_BYTES:
            self.bytes -= len(self.recent.popleft().body)


class Following:
    """Who follows which log. The leader tells of what it gets, when it is in this process."""

    def __init__(self, is_told: Callable[[], bool]) -> None:
        self._followed: dict[tuple[int, int], _Followed] = {}
        self._is_told = is_told

    def printed(self, chunks: Iterable[LogChunk]) -> None:
        """The leader got pieces of logs."""
        if not self._followed:
            return
        for chunk in chunks:
            followed = self._followed.get((chunk.tenant, chunk.task))
            if followed is not None:
                followed.add(chunk)
                for event in followed.waiting:
                    event.set()

    def ended(self, tasks: Iterable[tuple[int, int]]) -> None:
        """Tasks are over."""
        for task in tasks if self._followed else ():
            followed = self._followed.get(task)
            for event in followed.waiting if followed is not None else ():
                event.set()

    @property
    def look_seconds(self) -> float:
        """How long a follower waits at most before it looks by itself."""
        return TOLD_LOOK_SECONDS if self._is_told() else LOOK_SECONDS

    @contextmanager
    def watch(self, tenant: int, task: int) -> Generator[tuple[_Followed, asyncio.Event]]:
        """Hears of a task's log from now on."""
        followed = self._followed.setdefault((tenant, task), _Followed())
        news = asyncio.Event()
        followed.waiting.add(news)
        try:
            yield followed, news
        finally:
            followed.waiting.discard(news)
            if not followed.waiting:
                self._followed.pop((tenant, task), None)


class LogsApi:
    """The endpoint about logs. `view` shows a task of the caller's, `task_id` reads one off a request."""

    def __init__(
        self,
        *,
        tasks: TaskStore,
        authenticator: Authenticator,
        following: Following,
        view: Callable[[Caller, int], Awaitable[TaskView]],
        task_id: Callable[[Request], int],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._tasks = tasks
        self._authenticator = authenticator
        self._following = following
        self._view = view
        self._task_id = task_id
        self._is_stopping = is_stopping

    async def logs(self, request: Request) -> Response:
        """The log of an attempt (default: the last one) from a byte on; with `follow=1` of all from there on, to the
        task's end. A stream of events for who accepts one."""
        caller = await self._authenticator.caller(request.headers.get("authorization"), role="client")
        task = self._task_id(request)
        asked, follow = whole(request, "attempt", 0, least=0, most=32767), _follows(request)
        offset = whole(request, "offset", 0, least=0, most=PLACE_MAX)
        view = await self._view(caller, task)
        attempt = asked or view.attempt
        if attempt > view.attempt and (view.finished_at is not None or not follow):
            raise Problem("not_found", f"task {task} has no attempt {attempt}; its last one is {view.attempt}")
        place, only = Place(attempt, offset), bool(asked)
        if "text/event-stream" in request.headers.get("accept", ""):
            if (last := request.headers.get("last-event-id")) is not None:
                place = _place(last)
            events = self._events(caller, task, place, only=only, follow=follow)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        pieces = self._follow(caller, task, place, only=only) if follow else self._read(caller.tenant, task, place)
        return StreamingResponse(_bytes(pieces), media_type="application/octet-stream")

    async def _read(self, tenant: int, task: int, place: Place) -> AsyncGenerator[tuple[int, Piece]]:
        """What there is of an attempt's log."""
        at = place.at
        while chunks := await self._tasks.read_log(tenant, task, place.attempt, at):
            for begin, body in chunks:
                if (piece := behind(at, begin, body)) is not None:
                    at = piece.at + len(piece.body)
                    yield place.attempt, piece

    async def _follow(
        self, caller: Caller, task: int, place: Place, *, only: bool
    ) -> AsyncGenerator[tuple[int, Piece] | None]:
        """Pieces until the task (or the one attempt) is over; None when there was none for a while. What was written
        before the end is all there: the end is looked for first, then the log is read."""
        loop = asyncio.get_running_loop()
        with self._following.watch(caller.tenant, task) as (followed, news):
            heard_at = loop.time()
            while True:
                news.clear()
                view = await self._view(caller, task)
                async for attempt, piece in self._read(caller.tenant, task, place):
                    place, heard_at = Place(attempt, piece.at + len(piece.body)), loop.time()
                    yield attempt, piece
                is_over = view.attempt > place.attempt or view.finished_at is not None or self._is_stopping()
                if view.attempt > place.attempt and not only:
                    place = Place(place.attempt + 1, 0)
                    continue
                if is_over:
                    return
                async for piece in self._told(followed, news, place):
                    place, heard_at = Place(place.attempt, piece.at + len(piece.body)), loop.time()
                    yield place.attempt, piece
                if loop.time() - heard_at > SILENCE_SECONDS:
                    heard_at = loop.time()
                    yield None

    async def _told(self, followed: _Followed, news: asyncio.Event, place: Place) -> AsyncIterator[Piece]:
        """Pieces as they are told of, while each goes on where the last one ended. Ends when it is time to look."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._following.look_seconds
        while not self._is_stopping():
            found = next((c for c in followed.recent if _goes_on(c, place)), None)
            if found is not None:
                piece = Piece(place.at, found.body[place.at - found.at :])
                place = Place(place.attempt, place.at + len(piece.body))
                yield piece
                if loop.time() > until:
                    return
                continue
            if news.is_set():  # something that does not go on here: a gap, the next attempt, the end
                return
            try:
                async with asyncio.timeout_at(until):
                    await news.wait()
            except TimeoutError:
                return
            if any(_goes_on(chunk, place) for chunk in followed.recent):
                news.clear()

    async def _events(
        self, caller: Caller, task: int, place: Place, *, only: bool, follow: bool
    ) -> AsyncGenerator[bytes]:
        """The same as events: `id` is where to go on."""
        pieces = self._follow(caller, task, place, only=only) if follow else self._read(caller.tenant, task, place)
        last = place
        async with aclosing(pieces):
            async for found in pieces:
                if found is None:
                    yield b": still here\n\n"
                    continue
                attempt, piece = found
                last = Place(attempt, piece.at + len(piece.body))
                if piece.missing:
                    gap = {"attempt": attempt, "at": piece.at - piece.missing, "bytes": piece.missing}
                    yield _event("dropped", Place(attempt, piece.at), gap)
                yield _event("log", last, _said(attempt, piece))
        view = await self._view(caller, task)
        if not follow or view.finished_at is not None or only:
            yield _event("end", last, {"attempt": last.attempt, "at": last.at, "status": view.status})


def _goes_on(chunk: LogChunk, place: Place) -> bool:
    return chunk.attempt == place.attempt and chunk.at <= place.at < chunk.at + len(chunk.body)


async def _bytes(pieces: _Pieces) -> AsyncIterator[bytes]:
    async with aclosing(pieces):
        async for found in pieces:
            if found is not None:
                _, piece = found
                yield said_of(piece.missing) + piece.body if piece.missing else piece.body


def _said(attempt: int, piece: Piece) -> dict[str, object]:
    """A piece as JSON: text where it is some, base64 where it is not."""
    said: dict[str, object] = {"attempt": attempt, "at": piece.at}
    try:
        return said | {"text": piece.body.decode()}
    except UnicodeDecodeError:
        return said | {"base64": base64.b64encode(piece.body).decode()}


def _event(kind: str, place: Place, said: Mapping[str, object]) -> bytes:
    return f"id: {place.attempt}-{place.at}\nevent: {kind}\ndata: ".encode() + _encode(said) + b"\n\n"


def _place(said: str) -> Place:
    attempt, dash, at = said.partition("-")
    if not (dash and all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (attempt, at))):
        raise refused([Refused("Last-Event-ID", "expected the id of an event of this stream, such as 1-4096")])
    return Place(min(int(attempt), 32767), int(at))


def _follows(request: Request) -> bool:
    said = request.query_params.get("follow", "0")
    if said not in ("0", "1", "true", "false"):
        raise refused([Refused("follow", "expected 1 or 0")])
    return said in ("1", "true")
