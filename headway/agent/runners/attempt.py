"""One attempt of a process on its way, and the endings it can have."""

from __future__ import annotations

import asyncio
import enum
import os
from pathlib import Path

import msgspec
import structlog

from headway.agent.cache import Name
from headway.agent.images.store import Root
from headway.agent.logs import Log
from headway.agent.plain import plain
from headway.agent.runners.spawn import Pid
from headway.agent.sandbox.cgroups import Group
from headway.agent.sandbox.groups import Held
from headway.agent.sandbox.sandboxed import Cell
from headway.agent.sandbox.slots import Ended, Slot
from headway.agent.transfer import TransferFault
from headway.core.checkpoints import CapWarning, CheckpointRule
from headway.wire import Assignment, Ending, Key, Outcome

_log = structlog.get_logger("headway.agent.processes")


class Standing(enum.Enum):
    """What became of the wish that an attempt stand still."""

    STILL = 0
    NOT = 1  # it is not here any more, or is being stopped
    UNBEGUN = 2  # it had not begun; it was given up, and costs nothing


class Words(msgspec.Struct, frozen=True):
    """The part of a `Spec` that a process is made of."""

    command: list[str] | None = None
    script: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    ports: list[str] = []
    bundle: str | None = None
    workdir: str | None = None
    network: bool = False
    tmp: int | None = None
    image: str | None = None
    cap_warning: CapWarning | None = None
    checkpoint: CheckpointRule | None = None
    fresh: bool = False


decode = msgspec.json.Decoder(Words).decode


class Attempt:
    """One process attempt on its way: waiting for its script (pid 0), running, or being stopped."""

    __slots__ = (
        "assignment",
        "began",
        "cell",
        "devices",
        "directory",
        "excess",
        "gpus",
        "held",
        "is_over",
        "layers",
        "lent",
        "log",
        "pid",
        "pidfd",
        "pipe",
        "ports",
        "preparing",
        "root",
        "script",
        "slot",
        "stood_at",
        "stop",
        "timer",
        "told",
        "unpacking",
        "warm_user",
        "was_signalled",
        "was_warned",
        "words",
    )

    def __init__(self, assignment: Assignment, began: float) -> None:
        self.assignment = assignment
        self.words = Words()
        self.began = began
        self.pid = Pid(0)
        self.held: Held | None = None
        self.cell: Cell | None = None
        self.slot: Slot | None = None
        """The warm slot in which it runs; then its process is nobody's child here."""
        self.told: Ended | None = None
        """What the slot said of its end."""
        self.warm_user: int | None = None
        self.pidfd = -1
        self.pipe = -1
        self.script: str | None = None
        """Where its script is, if it is one and it has come."""
        self.root: Root | None = None
        """Its image, unpacked and lent to it."""
        self.ports: list[int] = []
        self.gpus: list[str] = []
        self.devices: list[Path] = []
        """The device files of its GPUs."""
        self.directory = ""
        self.layers: list[str] = []
        """Where else on the node it writes: what it changes in its image's root."""
        self.excess = ""
        """What it had too much of, when it is killed for that."""
        self.lent: list[Name] = []
        self.preparing: asyncio.Task[None] | None = None
        self.unpacking: asyncio.Future[int] | None = None
        self.log = Log()
        self.stood_at: float | None = None
        """Since when it stands still."""
        self.was_signalled = False
        """Whether it stands by SIGSTOP."""
        self.is_over = False
        """Whether all of it is dead, and only what it left is still to be stored."""
        self.was_warned = False
        """Whether it was told that its cap is nearly over."""
        self.stop: Outcome | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def rule(self) -> CheckpointRule | None:
        """How it is asked for a checkpoint, if it writes any."""
        return self.words.checkpoint

    @property
    def owner(self) -> int:
        """Whose files are its own."""
        return self.user if self.user is not None else os.getuid()

    @property
    def user(self) -> int | None:
        """As whom it runs; None: as the agent."""
        if self.warm_user is not None:
            return self.warm_user
        identity = self.cell.identity if self.cell is not None else None
        return identity.user if identity is not None else None

    @property
    def group(self) -> Group | None:
        """Its control group, while it has one: to freeze, to measure, to kill everything of it."""
        return self.held.group if self.held is not None else None

    @property
    def has_begun(self) -> bool:
        """Whether there is a process of it, or there is about to be."""
        return self.pid != 0 or self.slot is not None

    def ran(self, now: float) -> float:
        """For how many seconds it has run; what it stood still does not count."""
        return (now if self.stood_at is None else self.stood_at) - self.began

    @property
    def key(self) -> Key:
        return Key(self.assignment.tenant, self.assignment.task, self.assignment.attempt)


def ended(
    attempt: Attempt,
    outcome: Outcome,
    code: str = "",
    message: str = "",
    status: int | None = None,
    usage: dict[str, float] | None = None,
    result: str | None = None,
) -> Ending:
    """How it ended."""
    return Ending(
        *attempt.key,
        outcome=outcome,
        exit_code=status if status is not None and status >= 0 else None,
        code=code,
        message=plain(message) if message else "",
        result=result,
        usage=usage,
    )


def not_fetched(attempt: Attempt, fault: TransferFault) -> Ending:
    """The ending of an attempt that did not get what it needs."""
    has_script = attempt.words.script is not None and not attempt.lent
    what, digest = ("script", attempt.words.script) if has_script else ("bundle", attempt.words.bundle)
    if fault.code == "missing":
        message = f"there is no {what} {digest}; upload it again and submit the task anew"
        return ended(attempt, Outcome.FAILED, f"{what}_missing", message)
    if fault.code == "wrong_content":
        message = f"the {what} that arrived is not {digest}; upload it again and submit the task anew"
        return ended(attempt, Outcome.FAILED, f"{what}_missing", message)
    message = f"what it needs could not be fetched: {fault}; look at the server's log"
    return ended(attempt, Outcome.LOST, "fetch_failed", message)


def not_kept(ending: Ending, why: str) -> Ending:
    """The ending of an attempt whose artifacts could not be stored: what they were left for did not succeed."""
    message = f"what it left in $HEADWAY_ARTIFACTS could not be stored: {plain(why)}"
    if ending.outcome == Outcome.DONE:
        return msgspec.structs.replace(
            ending, outcome=Outcome.FAILED, code="artifacts_not_kept", message=message, result=None
        )
    return msgspec.structs.replace(ending, message=f"{ending.message}; and {message}")


def not_started(attempt: Attempt, error: OSError) -> Ending:
    """The ending of an attempt for which the node lacked something."""
    message = f"the node could not start it: {error}; free disk, memory or open files there"
    return ended(attempt, Outcome.LOST, "spawn_failed", message)


def faulty(attempt: Attempt, fault: Exception) -> Ending:
    """The ending of an attempt that the agent itself could not run or end as it should."""
    _log.error("a fault of the agent ended an attempt", task=attempt.assignment.task, exc_info=fault)
    message = f"a fault of the agent ended it: {type(fault).__name__}: {fault}; the agent's log has the traceback"
    return ended(attempt, Outcome.FAILED, "agent_fault", message)
