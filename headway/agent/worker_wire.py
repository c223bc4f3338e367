"""The frames between the agent and a worker process, and nothing else.

A frame is a four-byte length and one msgpack value, always about many tasks. The agent sends lists of
`Assignment` as they came from the leader; the worker decodes of each only what it needs (`Job`, `Call`). On a
second socket the agent sends single bytes, answered by a thread of the worker while a task runs.
"""

from __future__ import annotations

import struct

import msgspec

from headway.wire import Ending, LogChunk

HEADER = struct.Struct("<I")
REVOKE = b"r"
"""Control: hand back every task that has not begun, and all endings so far."""

PAGE_BYTES = 4096
CURRENT = struct.Struct("<qq")
"""At offset 0 of the shared page: the task begun last, and its start by CLOCK_MONOTONIC in ns (0: it is over)."""
STOP = struct.Struct("<q")
STOP_OFFSET = CURRENT.size
"""The task that SIGTERM means. A signal that arrives after that task ended is ignored."""

NEWS = struct.Struct("<qqq")
NEWS_OFFSET = STOP_OFFSET + STOP.size
"""What the agent has to say to the running task: which task, by how many ns its cap was moved since it was given, and
whether it is asked for a checkpoint."""

TEMPORARY = "HEADWAY_WORKER_TMP"
"""The variable that names the directory whose files a worker removes after each task."""

STOPPED = "stopped"
"""Code of an ending that followed SIGTERM; the agent knows why it sent it and says so instead."""


class Job(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An `Assignment` as a worker reads it: the fields it does not need stay undecoded."""

    tenant: int
    task: int
    attempt: int
    kind: msgspec.Raw
    needs: msgspec.Raw
    cap_ms: int
    grace_ms: int
    spec: str
    profile: msgspec.Raw = msgspec.Raw(b"")
    checkpoints: bool = False


class Call(msgspec.Struct, frozen=True):
    """The part of a `Spec` that a worker reads."""

    function: str
    args: list[object] = []
    kwargs: dict[str, object] = {}
    env: dict[str, str] = {}


class Booted(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """The first frame of a worker: what it offers, or why it cannot."""

    functions: list[str]
    error: str


class Finished(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Tasks that ended, what they printed, and tasks given back because they had not begun."""

    endings: list[Ending]
    logs: list[LogChunk]
    revoked: list[int]
    busy_ns: int
    """How long the endings took: measured here, where a busy agent cannot stretch it."""


FromWorker = Booted | Finished


def framed(body: bytes) -> bytes:
    """The frame of a body."""
    return HEADER.pack(len(body)) + body
