"""Moves bytes between this node and a server by signed addresses, in threads of its own.

http.client and not an asynchronous client: a transfer is one long copy, a thread costs it nothing, and httpx2 would
cost every agent 10 MB. The promise: no more than a piece is held in memory, and what arrives is counted against what
was said.
"""

from __future__ import annotations

import hashlib
import http.client
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

SOCKET_SECONDS = 60.0
PIECE_BYTES = 256 * 1024
PROBLEM_BYTES_MAX = 64 * 1024


class Said(NamedTuple):
    """What was transferred."""

    digest: str
    size: int


class TransferFault(Exception):
    """It did not succeed; the message says why."""

    def __init__(self, code: str, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.code = code
        self.may_pass = may_pass
        """Whether it may go better another time."""


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""
    detail: str = ""


def download(url: str, path: str, size: int, into: Path, stop: threading.Event) -> None:
    """Writes what is at a signed address to a new file; who takes the file in checks its digest."""
    try:
        _download(url, path, size, into, stop)
    except BaseException:
        into.unlink(missing_ok=True)
        raise


def _download(url: str, path: str, size: int, into: Path, stop: threading.Event) -> None:
    connection = _connected(url)
    try:
        connection.request("GET", _base(url) + path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise _problem(answer)
        with into.open("xb", buffering=0) as file:
            left = size
            while left and (piece := answer.read(min(left, PIECE_BYTES))):
                _unless(stop)
                file.write(piece)
                left -= len(piece)
        if left:
            raise TransferFault("lost", f"{left} of {size} bytes did not come", may_pass=True)
    except (OSError, http.client.HTTPException) as fault:
        raise TransferFault("lost", f"the server at {url}: {fault or type(fault).__name__}", may_pass=True) from None
    finally:
        connection.close()


def upload(url: str, path: str, size: int, pieces: Iterable[bytes], stop: threading.Event) -> None:
    """Sends a stream of a known size to a signed address."""
    connection = _connected(url)
    try:
        connection.putrequest("PUT", _base(url) + path)
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        try:
            for piece in pieces:
                _unless(stop)
                connection.send(piece)
        except BrokenPipeError:
            pass  # it may have said why
        answer = connection.getresponse()
        if answer.status not in (200, 201):
            raise _problem(answer)
    except (OSError, http.client.HTTPException) as fault:
        raise TransferFault("lost", f"the server at {url}: {fault or type(fault).__name__}", may_pass=True) from None
    finally:
        connection.close()


def measured(pieces: Iterable[bytes], stop: threading.Event) -> Said:
    """The digest and the size of a stream."""
    sha, size = hashlib.sha256(), 0
    for piece in pieces:
        _unless(stop)
        sha.update(piece)
        size += len(piece)
    return Said("sha256:" + sha.hexdigest(), size)


def _connected(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    assert parts.hostname is not None, "the session is with it"
    return kind(parts.hostname, parts.port, timeout=SOCKET_SECONDS)


def _base(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _unless(stop: threading.Event) -> None:
    if stop.is_set():
        raise TransferFault("stopped", "it was stopped", may_pass=False)


def _problem(answer: http.client.HTTPResponse) -> TransferFault:
    try:
        said = msgspec.json.decode(answer.read(PROBLEM_BYTES_MAX), type=_Problem)
    except msgspec.DecodeError:
        said = _Problem("", f"it answered {answer.status} {answer.reason}")
    lasting = answer.status < 500 or answer.status == 507
    expired = answer.status == 403
    return TransferFault(said.code or "refused", said.detail, may_pass=expired or not lasting)
