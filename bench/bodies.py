"""Requests as bytes, made before the clock starts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import Literal

Job = Literal["noop", "stamp", "true", "sandboxed", "fresh", "sleep"]
Form = Literal["array", "lines"]

PROGRAMS: dict[Job, bytes] = {
    "true": b'{"command":["/bin/true"],"profile":"trusted"}',
    "sandboxed": b'{"command":["/bin/true"],"profile":"sandboxed"}',
    "fresh": b'{"command":["/bin/true"],"profile":"sandboxed","fresh":true}',
    "sleep": b'{"command":["/bin/sleep","600"],"resources":{"cpu":0.002,"memory":"4Mi"}}',
}

_MEDIA = {"array": "application/json", "lines": "application/x-ndjson"}


TIERS = ("basic", "regular", "premium")
KEYS = 8


def single(job: Job, number: int, *, limited: bool = False) -> bytes:
    """The body of one submission; a limited one is of one tier of several, and holds a key."""
    if job in PROGRAMS:
        return PROGRAMS[job]
    said: dict[str, object] = {"function": f"bench.jobs:{job}", "args": [number]}
    if limited:
        said["tier"] = TIERS[number % len(TIERS)]
        said["concurrency"] = [{"key": f"customer-{number % KEYS}", "limit": 100_000}]
    return json.dumps(said, separators=(",", ":")).encode()


def requests(
    keys: Sequence[str], job: Job, numbers: range, size: int, form: Form, *, limited: bool = False
) -> Iterator[bytes]:
    """Whole HTTP requests that submit all `numbers`, `size` tasks each, with the keys in turn."""
    turns = cycle(keys)
    if size == 1:
        for number in numbers:
            yield request(next(turns), "/v1/tasks", "application/json", single(job, number, limited=limited))
        return
    for low in range(numbers.start, numbers.stop, size):
        part = range(low, min(low + size, numbers.stop))
        body = _joined((single(job, n, limited=limited) for n in part), form)
        yield request(next(turns), "/v1/tasks:batch", _MEDIA[form], body)


def request(key: str, path: str, media: str, body: bytes) -> bytes:
    """A POST."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def complete(answer: bytes | bytearray) -> bytes | None:
    """The body of an answer once all of it is there; raises when it is not a good one."""
    head_ends = answer.find(b"\r\n\r\n")
    if head_ends < 0:
        return None
    head = bytes(answer[:head_ends]).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    if len(answer) < head_ends + 4 + length:
        return None
    body = bytes(answer[head_ends + 4 : head_ends + 4 + length])
    if head[9:10] != b"2":
        raise ValueError(f"the server answered {head[9:12].decode()}: {body[:300].decode(errors='replace')}")
    return body


def accepted(body: bytes) -> int:
    """How many tasks an answer says were accepted."""
    if body.startswith(b'{"accepted":'):
        return int(body[len(b'{"accepted":') : body.index(b",")])
    return 1


def _joined(items: Iterable[bytes], form: Form) -> bytes:
    return b"[" + b",".join(items) + b"]" if form == "array" else b"\n".join(items) + b"\n"
