"""How functions end that their worker did not end itself, and what is said of it."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import msgspec

from headway.agent.runners.worker_room import Room
from headway.wire import Assignment, Ending, Key, Outcome

CODES = {Outcome.CAPPED: "cap_exceeded", Outcome.KILLED: "killed", Outcome.LOST: "agent_stopped"}


def without_stand(ending: Ending, stood: Mapping[int, float]) -> Ending:
    """The ending with the time it really ran: the worker's clock goes on while it stands still."""
    return msgspec.structs.replace(ending, ran_ms=max(0, ending.ran_ms - int(stood.get(ending.task, 0.0) * 1000)))


def key_of(assignment: Assignment) -> Key:
    """The attempt of an assignment."""
    return Key(assignment.tenant, assignment.task, assignment.attempt)


def stopped(assignment: Assignment, why: Outcome, ran_ms: int) -> Ending:
    """One that was stopped, whether it had begun or not."""
    return with_reason(Ending(*key_of(assignment), outcome=why, ran_ms=ran_ms), why)


def with_reason(ending: Ending, why: Outcome) -> Ending:
    """The ending of one that was stopped, with why it was."""
    match why:
        case Outcome.CAPPED:
            message = "stopped: it ran longer than its execution cap"
        case Outcome.LOST:
            message = "the agent was stopped while it ran"
        case _:
            message = "stopped on request"
    key = (ending.tenant, ending.task, ending.attempt)
    return Ending(*key, why, ending.ran_ms, None, CODES[why], message, None, ending.tail, ending.log_bytes)


def untold(assignment: Assignment) -> Ending:
    """One that ended with its worker before that said how."""
    message = "it ended, but its worker process died before it could tell how"
    return Ending(*key_of(assignment), Outcome.LOST, 0, None, "result_lost", message)


def starved(assignment: Assignment, room: Room, ran_ms: int) -> Ending:
    """One whose worker used more memory than it has."""
    mebibytes = (room.memory_bytes or 0) / 2**20
    message = (
        f"killed: its worker used more than the {mebibytes:g} MiB it has; let the function use less, give workers more "
        f"(--worker-memory {max(1, round(2 * mebibytes))}Mi), or have fewer of them"
    )
    return Ending(*key_of(assignment), Outcome.FAILED, ran_ms, None, "oom", message)


def died(assignment: Assignment, status: int, ran_ms: int) -> Ending:
    """SIGKILL comes from outside (an operator, the kernel short of memory): the task is tried again as after any loss,
    a bounded number of times. Any other death is the task's own doing."""
    how = f"exited with {status}" if status >= 0 else f"was killed by {signal.Signals(-status).name}"
    message = f"its worker process {how} while it ran"
    outcome = Outcome.LOST if status == -signal.SIGKILL else Outcome.FAILED
    return Ending(*key_of(assignment), outcome, ran_ms, None, "worker_died", message)
