"""The life of a task: the only state machine, as one table.

Each event is one statement of the store; a contract test runs every pair of state and event through PostgreSQL and
compares it with this table. A pair that is not here changes nothing.
"""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """Where a task is. Those below 12 are `queue.state` (from 2 on a node owns it); the others are how it ended
    (`attempt.status`)."""

    PAUSED = -1  # waits, and takes no part until it is resumed
    SCHEDULED = 0  # waits for an hour: a later start, or a pause before the next try
    READY = 1
    CLAIMED = 2  # a node owns it; it may not have begun
    RUNNING = 3
    CANCELLING = 4  # a node owns it and was told to stop it
    FROZEN = 5  # stands still on its node, and goes on there as soon as there is room again
    PAUSING = 6  # a node owns it and was told to have it stand still until it is resumed
    HELD = 7  # stands still on its node until it is resumed
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
    PAUSE = "pause"
    RESUME = "resume"
    FREEZE = "freeze"
    THAW = "thaw"
    GIVE_WAY = "give_way"  # wrote a checkpoint and left its node: costs nothing


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
    # ── pauses: of what waits, of what runs by order, and of what runs for others' sake
    (State.SCHEDULED, Event.PAUSE): State.PAUSED,
    (State.READY, Event.PAUSE): State.PAUSED,
    (State.PAUSED, Event.RESUME): State.SCHEDULED,  # due at once, unless its hour is still to come
    (State.PAUSED, Event.CANCEL): State.CANCELLED,
    (State.CLAIMED, Event.PAUSE): State.PAUSING,
    (State.RUNNING, Event.PAUSE): State.PAUSING,
    (State.PAUSING, Event.RESUME): State.RUNNING,
    (State.PAUSING, Event.FREEZE): State.HELD,
    (State.PAUSING, Event.GIVE_BACK): State.PAUSED,
    (State.PAUSING, Event.GIVE_WAY): State.PAUSED,
    (State.PAUSING, Event.SUCCEED): State.DONE,
    (State.PAUSING, Event.FAIL): State.FAILED,
    (State.PAUSING, Event.RETRY): State.PAUSED,
    (State.PAUSING, Event.CANCEL): State.CANCELLING,
    (State.HELD, Event.RESUME): State.FROZEN,
    (State.HELD, Event.THAW): State.PAUSING,  # it was resumed and paused again while it was being thawed
    (State.HELD, Event.GIVE_WAY): State.PAUSED,
    (State.HELD, Event.SUCCEED): State.DONE,
    (State.HELD, Event.FAIL): State.FAILED,
    (State.HELD, Event.RETRY): State.PAUSED,  # its node was lost
    (State.HELD, Event.CANCEL): State.CANCELLING,
    (State.CLAIMED, Event.FREEZE): State.FROZEN,
    (State.RUNNING, Event.FREEZE): State.FROZEN,
    (State.FROZEN, Event.THAW): State.RUNNING,
    (State.FROZEN, Event.PAUSE): State.HELD,
    (State.FROZEN, Event.GIVE_WAY): State.SCHEDULED,
    (State.FROZEN, Event.SUCCEED): State.DONE,
    (State.FROZEN, Event.FAIL): State.FAILED,
    (State.FROZEN, Event.RETRY): State.SCHEDULED,
    (State.FROZEN, Event.CANCEL): State.CANCELLING,
    (State.CLAIMED, Event.GIVE_WAY): State.SCHEDULED,
    (State.RUNNING, Event.GIVE_WAY): State.SCHEDULED,
    (State.CANCELLING, Event.GIVE_WAY): State.CANCELLED,
}

STATUS: dict[State, str] = {
    State.PAUSED: "waiting",
    State.SCHEDULED: "waiting",
    State.READY: "waiting",
    State.CLAIMED: "running",
    State.RUNNING: "running",
    State.CANCELLING: "running",
    State.FROZEN: "running",
    State.PAUSING: "running",
    State.HELD: "running",
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
