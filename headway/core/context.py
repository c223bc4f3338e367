"""What a running task is told about itself.

The agent gives one to every function that asks for it (`ctx`). It is plain data and a clock that comes in:
the same object serves a worker, a test and a call in the client's own process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn


class Left(BaseException):
    """Raised by `give_way`; let it pass."""


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

    asked: Callable[[], bool] = lambda: False
    """Whether it is to write a checkpoint and leave."""
    keep: Callable[[object, bool], None] = lambda _state, _waits: None
    """Writes what is said of the state, and waits until it is stored if it is to."""
    checkpoint_dir: str = ""
    """A directory that the next attempt finds as it was stored last; empty: it writes no checkpoints."""
    state: object = None
    """What the last checkpoint said."""

    @property
    def checkpoint_requested(self) -> bool:
        """Whether the task is to write a checkpoint and leave its node: call `give_way` soon."""
        return self.asked()

    def checkpoint(self, state: object = None) -> None:
        """Stores `state` (any JSON) and all that is in `checkpoint_dir`: what the next attempt begins from, should this
        one be lost. Returns when it is stored."""
        self.keep(state, True)

    def give_way(self, state: object = None) -> NoReturn:
        """Leaves: the task goes on from here later, on any node. Nothing behind this call is run."""
        self.keep(state, False)
        raise Left

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
