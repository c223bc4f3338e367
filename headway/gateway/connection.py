"""One HTTP connection, with bounds on what a client may take its time for and how long a head it may send.

uvicorn waits for ever for the rest of a request: thousands of half-sent ones would hold as many sockets and buffers.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.gateway.problems import Problem

PROGRESS_SECONDS = 30.0
HEAD_BYTES_MAX = 64 * 1024


def _answer(code: str, detail: str) -> bytes:
    """A problem document for whoever cannot be answered by an endpoint: there is no request yet."""
    response = Problem(code, detail).response()
    head = f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}\r\n".encode()
    fields = [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
    return b"".join([head, *fields, b"connection: close\r\n\r\n", bytes(response.body)])


_NO_HTTP = _answer("malformed_http", "what was sent is not HTTP/1.1, or its length or its chunks are not in order")
_TOO_LONG = _answer("head_too_large", f"request line and headers must not exceed {HEAD_BYTES_MAX} bytes together")
_TOO_SLOW = _answer("too_slow_to_ask", f"the rest of the request did not come within {PROGRESS_SECONDS:g} s")


class BoundedHttp(HttpToolsProtocol):
    """Gives a head as a whole, and each piece of a body, PROGRESS_SECONDS."""

    _head_bytes = 0
    _head_since: float | None = None
    """When the head under way began; None behind it, and between requests (uvicorn bounds those)."""
    _midway = False
    _heard_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self._heard_at = self.loop.time()
        self.loop.call_later(PROGRESS_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        head = self._head_since
        super().data_received(data)
        if head is not None and head == self._head_since and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(_TOO_LONG)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when its parser gives up."""
        self._refuse(_NO_HTTP)

    def on_message_begin(self) -> None:
        self._head_since, self._head_bytes, self._midway = self.loop.time(), 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_since = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._midway = False
        super().on_message_complete()

    def _look(self) -> None:
        """Ends the connection when the client is slower than it may be; else looks again when it could be."""
        if self.transport.is_closing() or self not in self.connections:
            return
        since = self._waits_since()
        now = self.loop.time()
        if since is not None and now - since >= PROGRESS_SECONDS:
            self._refuse(_TOO_SLOW)
        else:
            self.loop.call_later(PROGRESS_SECONDS - (0.0 if since is None else now - since), self._look)

    def _waits_since(self) -> float | None:
        """Since when it is the client's turn to send the rest of something."""
        if self._head_since is not None:
            return None if self._answering() else self._head_since
        return self._heard_at if self._midway and not self.flow.read_paused else None

    def _answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _refuse(self, answer: bytes) -> None:
        if not self._answering() or not self.cycle.response_started:
            self.transport.write(answer)
        self.transport.close()
