"""What a running task is told about itself.

The agent gives one to every function that asks for it (`ctx`). It is plain data and a clock that comes in:
the same object serves a worker, a test and a call in the client's own process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Which task this is, which attempt at it, and how long it may still run."""

    tenant: int
    task: int
    attempt: int
    cap_at: float
    """When the execution cap ends, by `now`."""
    now: Callable[[], float]
    """Seconds of any monotonic clock."""
    moved: Callable[[], float] = lambda: 0.0
    """By how many seconds the cap was moved since: raised, lowered, or the task stood still."""

    @property
    def task_id(self) -> str:
        """The id as the API shows it."""
        return str(self.task)

    @property
    def remaining(self) -> float:
        """Seconds until the execution cap; 0 when it is over."""
        return max(0.0, self.cap_at + self.moved() - self.now())

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the task: what a payment or an upload should be made unique by."""
        return idempotency_key(self.tenant, self.task)


def idempotency_key(tenant: int, task: int) -> str:
    """The key that stays the same over all attempts of a task."""
    return f"{tenant}-{task}"
