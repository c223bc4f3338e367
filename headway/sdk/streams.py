"""A log that is followed: read as events, so that a connection that breaks is taken up where it was.

No I/O here: a reader is fed what came over the connection and gives the bytes of the log; when the connection is lost
it says with which request to go on. So the sync and the async client read alike.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headway.core.log import said_of
from headway.sdk.conversations import Request

EVENTS = "text/event-stream"
EVENT_BYTES_MAX = 1024 * 1024


class _Said(msgspec.Struct, frozen=True):
    text: str | None = None
    base64: str | None = None
    bytes: int = 0


_said = msgspec.json.Decoder(_Said).decode


class _Event(NamedTuple):
    kind: str
    id: str
    data: bytes


class LogReader:
    """Reads one log, over as many connections as it takes."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._last = ""
        self._held = b""
        self.is_over = False
        """Whether its end was told: nothing more comes."""

    @property
    def has_begun(self) -> bool:
        """Whether anything came yet."""
        return bool(self._last)

    def request(self) -> Request:
        """What to send: the first time, and again after a break."""
        self._held = b""
        headers = {"Accept": EVENTS}
        if self._last:
            headers["Last-Event-ID"] = self._last
        return self._request._replace(headers=headers)

    def feed(self, body: bytes) -> Iterator[bytes]:
        """Takes what came; gives what of the log is in it."""
        *whole, self._held = (self._held + body).split(b"\n\n")
        if len(self._held) > EVENT_BYTES_MAX:
            raise ValueError("an event of the log is longer than any should be")
        for block in whole:
            event = _event(block)
            if event is None:
                continue
            if event.kind == "end":
                self.is_over = True
            elif event.kind == "log":
                yield _bytes(_said(event.data))
            elif event.kind == "dropped":
                yield said_of(_said(event.data).bytes)
            self._last = event.id  # behind the yield: what was not taken comes again


def _event(block: bytes) -> _Event | None:
    """The event in a block; None for a comment."""
    said: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon and name:
            said[name] = value.removeprefix(b" ")
    if b"data" not in said:
        return None
    return _Event(said.get(b"event", b"").decode(), said.get(b"id", b"").decode(), said[b"data"])


def _bytes(said: _Said) -> bytes:
    if said.base64 is not None:
        return base64.b64decode(said.base64)
    return (said.text or "").encode()
