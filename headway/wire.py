"""The messages that cross a process boundary between a pool's leader and its agents.

One WebSocket message is one msgpack-encoded struct below, and everything in it is a batch. The promise: either side
may die at any byte. An agent repeats `Ended` until it is acknowledged, a leader discards what lost its lease, and both
agree after a reconnect by the inventory in `Hello` and the verdict in `Welcome`.
"""

from __future__ import annotations

import enum
from typing import Literal, NamedTuple

import msgspec

PROTOCOL = 1
FRAME_BYTES_MAX = 16 * 1024 * 1024
"""The largest frame either side sends or accepts."""
RESULT_BYTES_MAX = 256 * 1024
"""The largest result that travels inline."""
TAIL_BYTES_MAX = 4096
"""How much of the end of a log is kept with its attempt."""


class Key(NamedTuple):
    """One attempt of one task; what every late or repeated message is checked against."""

    tenant: int
    task: int
    attempt: int


class Outcome(enum.IntEnum):
    """How an attempt ended, as the agent saw it."""

    DONE = 0
    FAILED = 1
    CAPPED = 2  # overstayed its execution cap and was stopped
    KILLED = 3  # stopped because the leader asked (cancel) or the lease ran out
    LOST = 4  # its worker or agent died under it; not the task's own fault
    YIELDED = 5  # wrote a checkpoint and left; the task goes on from it, here or elsewhere


class Assignment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt that the agent now owns until it answers with `Ended` or `Returned`."""

    tenant: int
    task: int
    attempt: int
    kind: str  # "command" | "script" | "function"
    needs: dict[str, int]
    cap_ms: int
    grace_ms: int
    spec: str
    """The task's stored specification: JSON text, decoded only by the runner (see core.task.Spec)."""
    profile: str = "trusted"
    """How closed in a process has to run. An agent that cannot enforce it hands the attempt back."""
    checkpoints: bool = False
    """Whether it writes checkpoints."""
    checkpoint: str | None = None
    """The blob with what it begins from."""


class ArtifactFile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A file that an attempt left: its path, its size, and where in the archive it begins."""

    path: str
    size: int
    at: int


class LeftOut(msgspec.Struct, frozen=True):
    """What an attempt left and was not taken, and why."""

    path: str
    why: str


class Manifest(msgspec.Struct, frozen=True):
    """What is in the archive of what an attempt left, by path; and what is not, the first of it and how many."""

    files: list[ArtifactFile]
    left_out: list[LeftOut] = []
    left_out_count: int = 0


class Artifacts(msgspec.Struct, frozen=True):
    """What an attempt left in $HEADWAY_ARTIFACTS: the blob with the archive, and what is in it."""

    digest: str
    bytes: int
    manifest: Manifest


class Ending(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The end of an attempt."""

    tenant: int
    task: int
    attempt: int
    outcome: int
    ran_ms: int = 0
    exit_code: int | None = None
    code: str = ""
    """A stable reason code when the outcome is not DONE (exit_nonzero, signalled, raised, cap_exceeded, …)."""
    message: str = ""
    result: str | None = None
    """JSON text: what the function returned, or what a process wrote to $HEADWAY_OUTPUT."""
    tail: bytes = b""
    log_bytes: int = 0
    usage: dict[str, float] | None = None
    """What the attempt used: cpu_user, cpu_system (seconds), memory_peak, io_read, io_written (bytes)."""
    artifacts: Artifacts | None = None
    """What it left, stored already."""
    checkpoint: str | None = None
    """The blob with what the next attempt begins from, of one that YIELDED."""


class Bounds(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How long an attempt may run in all, and how long it may take to stop."""

    tenant: int
    task: int
    attempt: int
    cap_ms: int
    grace_ms: int


class LogChunk(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A piece of an attempt's log; stdout and stderr are one stream, as a terminal shows it."""

    tenant: int
    task: int
    attempt: int
    at: int
    """Which byte of the output it begins with, counted from 0. What lies between two pieces was dropped."""
    body: bytes


# ── agent → leader ────────────────────────────────────────────────────────────────────────────────────────────────


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first frame: who the agent is, what it offers and what it still runs."""

    protocol: int
    node: str
    incarnation: str
    """Random per start of the agent: a restarted agent never passes for the one before."""
    home: str
    """Which data directory on which boot of a machine. A new start in the same one has killed what the last one left;
    of an agent of the same name elsewhere nobody knows."""
    capacity: dict[str, int]
    """Integers: cpu in milli, memory and disk in bytes, workers (function slots), gpu, custom names."""
    labels: dict[str, str]
    functions: list[str]
    kinds: list[str]
    windows: dict[str, int]
    running: list[Key]
    """All attempts it owns: queued, running, or ended and not acknowledged."""
    profiles: tuple[str, ...] = ("trusted",)
    """How closed in it can run processes: trusted, sandboxed, container, hostile."""
    degraded: dict[str, str] = {}
    """What it cannot do as well as the profiles promise, and why."""
    frozen: list[Key] = []
    """Those of them that stand still."""


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """Attempts that ended. Repeated after a reconnect until `Ack` covers `sequence`."""

    sequence: int
    endings: list[Ending]


class Started(msgspec.Struct, tag="started", frozen=True):
    """Attempts that really began. Short functions are not announced: their `Ending` says all."""

    keys: list[Key]


class Returned(msgspec.Struct, tag="returned", frozen=True):
    """Attempts handed back that never began; they cost the task no attempt."""

    keys: list[Key]


class Frozen(msgspec.Struct, tag="frozen", frozen=True):
    """Attempts that stand still: answers `Freeze`, each time."""

    keys: list[Key]


class Thawed(msgspec.Struct, tag="thawed", frozen=True):
    """Attempts that go on: answers `Thaw`."""

    keys: list[Key]


class Stays(msgspec.Struct, tag="stays", frozen=True):
    """Attempts that were to leave and do not: they write no checkpoints, or did not in time."""

    keys: list[Key]
    why: str


class Checkpointed(msgspec.Struct, tag="checkpointed", frozen=True):
    """What another attempt would begin from, were this one lost now."""

    tenant: int
    task: int
    attempt: int
    digest: str


class Windows(msgspec.Struct, tag="windows", frozen=True):
    """How many attempts of each kind the agent will hold beyond those that fit: its flow-control credit."""

    windows: dict[str, int]


class Heartbeat(msgspec.Struct, tag="heartbeat", frozen=True):
    """Asks for the lease to be renewed; counted by `sequence`."""

    sequence: int
    load: dict[str, float]


class Logs(msgspec.Struct, tag="logs", frozen=True):
    """Log pieces, in order within an attempt, sent before the attempt's `Ended`."""

    chunks: list[LogChunk]


class Fetch(msgspec.Struct, tag="fetch", frozen=True):
    """Asks for a blob by tenant and digest; answered by `Blob` or `Granted`."""

    tenant: int
    digest: str


class Offer(msgspec.Struct, tag="offer", frozen=True):
    """Asks to store what an attempt leaves as a blob; answered by `Granted`."""

    tenant: int
    task: int
    attempt: int
    digest: str
    size: int


# ── leader → agent ────────────────────────────────────────────────────────────────────────────────────────────────


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """The session is on. `disown` lists attempts of the inventory that the agent must stop and forget."""

    protocol: int
    epoch: int
    lease_seconds: float
    disown: list[Key]


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """The session cannot be: wrong protocol, another live agent of that name. The connection closes after it."""

    code: str
    message: str


class Dispatch(msgspec.Struct, tag="dispatch", frozen=True):
    """Attempts for the agent to run."""

    assignments: list[Assignment]


class Ack(msgspec.Struct, tag="ack", frozen=True):
    """Every `Ended` up to `sequence` is durable; the agent may forget those endings."""

    sequence: int


class Kill(msgspec.Struct, tag="kill", frozen=True):
    """Attempts to stop (politely, then by force); each still answers with an `Ending` (outcome KILLED)."""

    keys: list[Key]


class Leave(msgspec.Struct, tag="leave", frozen=True):
    """Attempts that are to leave the node. `must`: those that cannot, or do not in time, are stopped (outcome LOST);
    else they stay. What had not begun is `Returned`."""

    keys: list[Key]
    must: bool


class Freeze(msgspec.Struct, tag="freeze", frozen=True):
    """Attempts that are to stand still where they are. Of what stands the agent answers `Frozen`, of what had not begun
    `Returned`; of what it does not know, or is stopping, it has said or will say how it ended."""

    keys: list[Key]


class Thaw(msgspec.Struct, tag="thaw", frozen=True):
    """Attempts that are to go on where they stand."""

    keys: list[Key]


class Change(msgspec.Struct, tag="change", frozen=True):
    """Attempts that may run longer or shorter than was said when they were dispatched. Of those unknown nothing is
    meant: they ended."""

    bounds: list[Bounds]


class Renewed(msgspec.Struct, tag="renewed", frozen=True):
    """The lease now lasts `lease_seconds` from when the agent SENT the heartbeat of that sequence."""

    sequence: int


class Blob(msgspec.Struct, tag="blob", frozen=True):
    """A small blob; `body` is None when there is none by that digest."""

    tenant: int
    digest: str
    body: bytes | None


def bounded(assignment: Assignment, bounds: Bounds) -> Assignment:
    """The assignment with other bounds."""
    return msgspec.structs.replace(assignment, cap_ms=bounds.cap_ms, grace_ms=bounds.grace_ms)


class Granted(msgspec.Struct, tag="granted", frozen=True):
    """A signed address, good for minutes, by which to read (GET) or store (PUT) one blob on this server."""

    method: Literal["GET", "PUT"]
    tenant: int
    digest: str
    size: int
    path: str
    """Path and query; empty: no, the attempt is not the node's."""
    task: int = 0
    attempt: int = 0


FromAgent = (
    Hello
    | Ended
    | Started
    | Returned
    | Frozen
    | Thawed
    | Stays
    | Checkpointed
    | Windows
    | Heartbeat
    | Logs
    | Fetch
    | Offer
)
FromLeader = Welcome | Refused | Dispatch | Ack | Kill | Leave | Freeze | Thaw | Change | Renewed | Blob | Granted

_encoder = msgspec.msgpack.Encoder()
_from_agent = msgspec.msgpack.Decoder(FromAgent)
_from_leader = msgspec.msgpack.Decoder(FromLeader)


def encode(message: FromAgent | FromLeader) -> bytes:
    """The frame of a message."""
    return _encoder.encode(message)


def decode_from_agent(frame: bytes) -> FromAgent:
    """The agent's message in a frame; raises msgspec.DecodeError on anything else."""
    return _from_agent.decode(frame)


def decode_from_leader(frame: bytes) -> FromLeader:
    """The leader's message in a frame; raises msgspec.DecodeError on anything else."""
    return _from_leader.decode(frame)
