"""Kept HTTP connections for the sync client. The promise: a connection is used by one thread at a time, a
stale or inherited one never, and at most IDLE_MAX are kept.
"""

from __future__ import annotations

import http.client
import os
import select
import time
from collections.abc import Generator
from urllib.parse import urlsplit

from headway.sdk import errors
from headway.sdk.conversations import ANSWER_SECONDS, PATIENCE_SECONDS, Lost, Request, Response, unanswered
from headway.sdk.errors import DiscoveryError
from headway.sdk.streams import EVENTS, LogReader

IDLE_MAX = 16
CONNECT_SECONDS = 10.0
PIECE_BYTES = 64 * 1024


class Connections:
    """A small pool of connections to one server."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise DiscoveryError(f"{url!r} is no address of a server; expected something like http://127.0.0.1:8642")
        self._secure = parts.scheme == "https"
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"}
        self._idle: list[http.client.HTTPConnection] = []
        self._pid = os.getpid()

    def exchange(self, request: Request) -> Response | Lost:
        """Sends a request and reads the whole answer."""
        try:
            connection = self._take(request.timeout)
        except OSError as error:
            return Lost(self._where(error), met=False)
        try:
            answer = self._send(connection, request)
            response = Response(answer.status, answer.read(), answer.headers.get("retry-after"))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return Lost(self._where(error), met=True)
        except BaseException:
            connection.close()  # Ctrl-C in the middle of an answer: the next request must not read its rest
            raise
        self._keep(connection, reusable=not answer.will_close)
        return response

    def stream(self, request: Request) -> Generator[bytes, None, None]:
        """The body of an answer as it comes, over a connection of its own. After a break it goes on where
        it was.
        """
        given, lost_at = 0, None
        while True:
            try:
                for piece in _skipping(self._pieces(request), given):
                    given, lost_at = given + len(piece), None
                    yield piece
                return
            except (OSError, http.client.HTTPException) as error:
                lost = Lost(self._where(error), met=given > 0 or not isinstance(error, ConnectionError))
            lost_at = lost_at if lost_at is not None else time.monotonic()
            if not lost.met or time.monotonic() - lost_at > PATIENCE_SECONDS:
                raise unanswered(lost, request)
            time.sleep(0.2)

    def follow(self, reader: LogReader) -> Generator[bytes, None, None]:
        """The bytes of a log that is followed, to its end. After a break it goes on at the byte where it was."""
        lost_at, has_begun = None, False
        while not reader.is_over:
            try:
                for piece in self._pieces(reader.request(), reader):
                    has_begun, lost_at = True, None
                    yield piece
                lost = Lost(self._where(ConnectionError("the log ended before the task did")), met=True)
            except (OSError, http.client.HTTPException) as error:
                lost = Lost(self._where(error), met=has_begun or not isinstance(error, ConnectionError))
            if reader.is_over:
                return
            lost_at = lost_at if lost_at is not None else time.monotonic()
            if not lost.met or time.monotonic() - lost_at > PATIENCE_SECONDS:
                raise unanswered(lost, reader.request())
            time.sleep(0.2)

    def close(self) -> None:
        """Closes what is idle."""
        while self._idle:
            self._idle.pop().close()

    def _pieces(self, request: Request, reader: LogReader | None = None) -> Generator[bytes, None, None]:
        connection = self._connect(CONNECT_SECONDS)
        try:
            assert connection.sock is not None
            connection.sock.settimeout(None)  # a log may be silent for hours
            answer = self._send(connection, request)
            if answer.status >= 300:
                raise errors.refusal(answer.status, answer.read())
            are_events = reader is not None and answer.getheader("Content-Type", "").startswith(EVENTS)
            while piece := answer.read1(PIECE_BYTES):
                if are_events:
                    assert reader is not None
                    yield from reader.feed(piece)
                else:
                    yield piece
            if reader is not None and not are_events:  # a server that knows no events sends bytes, to the end
                reader.is_over = True
            if answer.length:  # of a known length, and the rest is missing
                raise http.client.IncompleteRead(b"")
        finally:
            connection.close()

    def _send(self, connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
        headers = {**self._headers, **request.headers}
        if request.file is not None:
            headers = {
                **headers, "Content-Type": request.content_type, "Content-Length": str(request.file.stat().st_size)
            }  # fmt: skip
            with request.file.open("rb") as file:
                connection.request(request.method, self._base + request.path, file, headers)
            return connection.getresponse()
        if request.body:
            headers = {**headers, "Content-Type": request.content_type}
        body = request.body if request.body or request.method not in ("GET", "HEAD") else None
        connection.request(request.method, self._base + request.path, body, headers)
        return connection.getresponse()

    def _take(self, timeout: float = ANSWER_SECONDS) -> http.client.HTTPConnection:
        if self._pid != os.getpid():  # forked: these sockets are the parent's
            self._idle, self._pid = [], os.getpid()
        while self._idle:
            connection = self._idle.pop()
            if _alive(connection):
                assert connection.sock is not None
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        connection = self._connect(CONNECT_SECONDS)
        assert connection.sock is not None
        connection.sock.settimeout(timeout)
        return connection

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        connection.connect()
        return connection

    def _keep(self, connection: http.client.HTTPConnection, *, reusable: bool) -> None:
        if reusable and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def _where(self, error: Exception) -> str:
        scheme = "https" if self._secure else "http"
        at = f"{scheme}://{self._host}" + (f":{self._port}" if self._port else "") + self._base
        return f"{at}: {getattr(error, 'strerror', None) or error or type(error).__name__}"


def _alive(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is still silent: readable means that the server has closed it."""
    if connection.sock is None:
        return False
    watched = select.poll()
    watched.register(connection.sock, select.POLLIN)
    return not watched.poll(0)


def _skipping(pieces: Generator[bytes, None, None], count: int) -> Generator[bytes, None, None]:
    """The pieces without their first `count` bytes."""
    for piece in pieces:
        if fresh := piece[count:]:
            yield fresh
        count = max(count - len(piece), 0)
