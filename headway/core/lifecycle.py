"""The life of a task: the only state machine, as one table.

Each event is one statement of the store; a contract test runs every pair of state and event through PostgreSQL and
compares it with this table. A pair that is not here changes nothing.
"""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """Where a task is. The first five are `queue.state`; the others are how it ended (`attempt.status`)."""

    SCHEDULED = 0  # waits for an hour: a later start, or a pause before the next try
    READY = 1
    CLAIMED = 2  # a node owns it; it may not have begun
    RUNNING = 3
    CANCELLING = 4  # a node owns it and was told to stop it
    DONE = 12
    FAILED = 13
    CANCELLED = 14


class Event(enum.Enum):
    """What can happen to a task."""

    DUE = "promote_due"
    CLAIM = "claim"
    START = "start"
    GIVE_BACK = "release"  # the attempt never began: costs nothing
    SUCCEED = "finish, status done"
    FAIL = "finish, status failed"
    RETRY = "try_again"
    CANCEL = "cancel"


MOVES: dict[tuple[State, Event], State] = {
    (State.SCHEDULED, Event.DUE): State.READY,
    (State.SCHEDULED, Event.CANCEL): State.CANCELLED,
    (State.READY, Event.CLAIM): State.CLAIMED,
    (State.READY, Event.CANCEL): State.CANCELLED,
    (State.CLAIMED, Event.START): State.RUNNING,
    (State.CLAIMED, Event.GIVE_BACK): State.READY,
    (State.CLAIMED, Event.SUCCEED): State.DONE,  # short attempts end before anyone says that they began
    (State.CLAIMED, Event.FAIL): State.FAILED,
    (State.CLAIMED, Event.RETRY): State.SCHEDULED,
    (State.CLAIMED, Event.CANCEL): State.CANCELLING,
    (State.RUNNING, Event.SUCCEED): State.DONE,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.RETRY): State.SCHEDULED,
    (State.RUNNING, Event.CANCEL): State.CANCELLING,
    (State.CANCELLING, Event.GIVE_BACK): State.CANCELLED,
    (State.CANCELLING, Event.SUCCEED): State.DONE,  # it was faster than the order to stop
    (State.CANCELLING, Event.FAIL): State.CANCELLED,
    (State.CANCELLING, Event.RETRY): State.CANCELLED,
}

STATUS: dict[State, str] = {
    State.SCHEDULED: "waiting",
    State.READY: "waiting",
    State.CLAIMED: "running",
    State.RUNNING: "running",
    State.CANCELLING: "running",
    State.DONE: "done",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}
"""The word a client sees."""

ENDED: dict[int, State] = {2: State.DONE, 3: State.FAILED, 4: State.CANCELLED}
"""`attempt.status` as a state."""


class Lane(enum.IntEnum):
    """In which order tasks are looked at."""

    URGENT = 0
    PERIODIC = 1
    NORMAL = 2
    OFFPEAK = 3
