"""The rows that cross between the store and the services, each as it is batched."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec


class Template(NamedTuple):
    """What tasks submitted alike have in common; a batch sends it once."""

    tenant: int
    kind: str
    lane: int
    tier: str
    script: str | None
    script_path: str | None
    submitted_by: str
    submitted_at: datetime
    eligible_at: datetime
    delay_tolerance_ms: int
    execution_cap_ms: int
    cap_grace_ms: int
    max_attempts: int
    shape: int
    state: int

    @property
    def start_by(self) -> float:
        """For the leader in this process; the database computes its own."""
        return self.eligible_at.timestamp() + self.delay_tolerance_ms / 1000


class NewTask(NamedTuple):
    """A task about to be stored."""

    id: int
    name: str
    spec: str
    template: Template


class Claimed(NamedTuple):
    """An attempt that this leader may now send to its node."""

    tenant: int
    id: int
    attempt: int
    node: int
    cap_ms: int
    kind: str
    grace_ms: int
    spec: str
    claims: int
    """How often the task was claimed so far: what a hand-back is checked against."""
    name: str
    checkpoint: str | None = None
    """What it begins from."""


class Named(NamedTuple):
    """An unfinished task by its name."""

    task: int
    shape: int
    name: str


class Owned(msgspec.Struct, frozen=True):
    """An attempt that a node owns, as the database has it."""

    tenant: int
    id: int
    attempt: int
    node: int
    state: int
    shape: int


class End(msgspec.Struct, frozen=True, gc=False):
    """The end of an attempt as it will be recorded. `status` is None when the task gets another attempt."""

    tenant: int
    id: int
    attempt: int
    outcome: int
    status: int | None
    ran_ms: int
    exit_code: int | None
    log_bytes: int
    code: str
    message: str
    result: str | None
    usage: str | None
    tail: bytes | None
    node: int | None = None
    delay_ms: int = 0
    counts: bool = True
    """Whether it counts as a failure of the task (a lost node does not)."""


class Tries(NamedTuple):
    """What decides whether a failed attempt is followed by another."""

    failures: int
    losses: int
    max_attempts: int
    spec: str
