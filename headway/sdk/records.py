"""What the server says about tasks, attempts and batches, as read-only structs.

Unknown fields are kept in `raw`, so a client of today shows what a server of tomorrow says.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast

import msgspec

FINAL = frozenset({"done", "failed", "cancelled"})


class Reason(msgspec.Struct, frozen=True):
    """Why a task is where it is."""

    code: str = ""
    message: str = ""


class Warned(msgspec.Struct, frozen=True):
    """Something about an accepted task that its client should know."""

    code: str = ""
    message: str = ""
    predicted_start: datetime | None = None


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as the server tells it."""

    id: str
    status: str = "waiting"
    name: str = ""
    kind: str = ""
    reason: Reason | None = None
    tier: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    max_attempts: int = 1
    exit_code: int | None = None
    result: object = None
    node: str | None = None
    tags: dict[str, str] = {}
    warnings: list[Warned] = []
    raw: dict[str, object] = {}

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in FINAL


class Attempt(msgspec.Struct, frozen=True):
    """One try at running a task."""

    attempt: int
    outcome: str | None = None
    code: str | None = None
    message: str | None = None
    node: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    usage: dict[str, float] | None = None
    log_bytes: int = 0
    log_dropped: int = 0
    tail: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Part of a list, newest first, and where it goes on."""

    items: list[TaskRecord]
    next_cursor: str | None = None


class TaskEvent(msgspec.Struct, frozen=True):
    """Something that happened to a task otherwise than asked."""

    cursor: str
    at: datetime
    task: str
    kind: str
    attempt: int
    code: str
    message: str
    status: str | None = None
    """How the task ended by it; None: it goes on."""


class Events(msgspec.Struct, frozen=True):
    """Events, oldest first, and the cursor to go on from; it is there also when there are none."""

    items: list[TaskEvent]
    next_cursor: str


class BatchItem(msgspec.Struct, frozen=True):
    """What became of one submission of a batch: an id, or the problem."""

    index: int
    id: str | None = None
    error: dict[str, object] | None = None
    warnings: list[Warned] = []


class Batch(msgspec.Struct, frozen=True):
    """What became of a batch."""

    accepted: int
    rejected: int
    items: list[BatchItem]


class Script(msgspec.Struct, frozen=True):
    """An uploaded script."""

    digest: str
    size: int


class Artifact(msgspec.Struct, frozen=True):
    """A file that an attempt left."""

    path: str
    size: int


class Artifacts(msgspec.Struct, frozen=True):
    """Part of what an attempt left."""

    items: list[Artifact]
    next_cursor: str | None = None


class Part(msgspec.Struct, frozen=True):
    """Part of any list, its items as they are, and where it goes on."""

    items: list[dict[str, object]]
    next_cursor: str | None = None


class _Attempts(msgspec.Struct, frozen=True):
    items: list[Attempt]


_items = msgspec.json.Decoder(Part)
_attempts = msgspec.json.Decoder(_Attempts)
_object = msgspec.json.Decoder(dict[str, object])
batch = msgspec.json.Decoder(Batch).decode
events = msgspec.json.Decoder(Events).decode
script = msgspec.json.Decoder(Script).decode
artifacts = msgspec.json.Decoder(Artifacts).decode


def task(body: bytes) -> TaskRecord:
    """The task in an answer."""
    return _task(_object.decode(body))


def page(body: bytes) -> Page:
    """The part of a list in an answer."""
    said = _items.decode(body)
    return Page([_task(item) for item in said.items], said.next_cursor)


def attempts(body: bytes) -> list[Attempt]:
    """The attempts in an answer, first one first."""
    return sorted(_attempts.decode(body).items, key=lambda attempt: attempt.attempt)


def objects(body: bytes) -> list[dict[str, object]]:
    """The items of any list, as they are."""
    return _items.decode(body).items


def part(body: bytes) -> Part:
    """The part of any list in an answer."""
    return _items.decode(body)


def anything(body: bytes) -> dict[str, object]:
    """One object, as it is."""
    return _object.decode(body)


def _task(said: dict[str, object]) -> TaskRecord:
    return msgspec.convert(cast("object", {**said, "raw": said}), TaskRecord)
