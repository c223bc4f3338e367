"""Tasks as clients read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from headway.core.explain import Explanation
from headway.core.lifecycle import ENDED, STATUS, Lane, State
from headway.core.queue import LineKey
from headway.core.task import Spec
from headway.gateway.lateness import Warning
from headway.store.database import Row
from headway.store.rows import NewTask
from headway.wire import Outcome


class Reason(msgspec.Struct, frozen=True):
    """Why a task is where it is: a stable code and a sentence."""

    code: str
    message: str


class TaskView(msgspec.Struct, frozen=True):
    """A task."""

    id: str
    tenant: str
    name: str
    kind: str
    status: str
    reason: Reason
    tier: str
    lane: str
    submitted_at: datetime
    eligible_at: datetime
    start_by: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    max_attempts: int
    execution_cap: float
    cap_grace: float
    delay_tolerance: float
    exit_code: int | None
    result: msgspec.Raw
    node: str | None
    command: list[str] | None
    script: str | None
    script_path: str | None
    function: str | None
    bundle: str | None
    workdir: str | None
    args: list[object]
    kwargs: dict[str, object]
    env: dict[str, str]
    tags: dict[str, str]
    submitted_by: str


class AttemptView(msgspec.Struct, frozen=True):
    """One try at running a task."""

    attempt: int
    outcome: str
    code: str
    message: str
    node: str | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    usage: dict[str, float] | None
    log_bytes: int
    log_dropped: int
    tail: str | None


class SubmittedView(TaskView, frozen=True, omit_defaults=True):
    """A task just accepted, with what its client should know."""

    warnings: list[Warning] = []


Why = Callable[[LineKey], Explanation | None]
"""Why the tasks of a line wait, where it is known."""


def nothing_known(_: LineKey) -> None:
    """For who need not know."""


_NULL = msgspec.Raw(b"null")
_spec = msgspec.json.Decoder(Spec).decode
_WAITING = {
    State.PAUSED: Reason("paused", "was paused; `headway resume` lets it take part again"),
    State.SCHEDULED: Reason("scheduled", "waits for the hour it may start at"),
    State.READY: Reason("ready", "waits for its turn and for room on a node"),
    State.CLAIMED: Reason("running", "was given to a node"),
    State.RUNNING: Reason("running", "runs"),
    State.CANCELLING: Reason("cancelling", "was cancelled and is being stopped"),
    State.FROZEN: Reason("frozen", "stands still on its node, and goes on there when there is room again"),
    State.PAUSING: Reason("pausing", "was paused and is being brought to a stand"),
    State.HELD: Reason("paused", "stands still on its node until it is resumed"),
}


def new_task_view(row: NewTask, tenant: str, warnings: list[Warning]) -> SubmittedView:
    """A task just accepted."""
    common, spec = row.template, _spec(row.spec)
    return SubmittedView(
        id=str(row.id),
        tenant=tenant,
        name=row.name,
        kind=common.kind,
        status="waiting",
        reason=_WAITING[State(common.state)],
        tier=common.tier,
        lane=Lane(common.lane).name.lower(),
        submitted_at=common.submitted_at,
        eligible_at=common.eligible_at,
        start_by=common.eligible_at + timedelta(milliseconds=common.delay_tolerance_ms),
        started_at=None,
        finished_at=None,
        attempt=0,
        max_attempts=common.max_attempts,
        execution_cap=common.execution_cap_ms / 1000,
        cap_grace=common.cap_grace_ms / 1000,
        delay_tolerance=common.delay_tolerance_ms / 1000,
        exit_code=None,
        result=_NULL,
        node=None,
        command=spec.command,
        script=spec.script,
        script_path=common.script_path,
        function=spec.function,
        bundle=spec.bundle,
        workdir=spec.workdir,
        args=spec.args,
        kwargs=spec.kwargs,
        env=spec.env,
        tags=spec.tags,
        submitted_by=common.submitted_by,
        warnings=warnings,
    )


def task_view(row: Row, tenant: str, why: Why = nothing_known) -> TaskView:
    """A task as the database has it; a ready one with the reason its line has."""
    state = State(row["state"]) if row["state"] is not None else ENDED[row["status"]]
    spec = _spec(row["spec"])
    over = row["state"] is None
    return TaskView(
        id=str(row["id"]),
        tenant=tenant,
        name=row["name"],
        kind=row["kind"],
        status=STATUS[state],
        reason=reason_of(row, why),
        tier=row["tier"],
        lane=Lane(row["lane"]).name.lower(),
        submitted_at=row["submitted_at"],
        eligible_at=row["eligible_at"],
        start_by=row["start_by"] or row["eligible_at"] + timedelta(milliseconds=row["delay_tolerance_ms"]),
        started_at=row["started_at"] if over else (row["running_since"] or row["claimed_at"]),
        finished_at=row["finished_at"] if over else None,
        attempt=(row["attempts"] or 0) if over else row["queue_attempt"],
        max_attempts=row["max_attempts"],
        execution_cap=row["execution_cap_ms"] / 1000,
        cap_grace=row["cap_grace_ms"] / 1000,
        delay_tolerance=row["delay_tolerance_ms"] / 1000,
        exit_code=row["exit_code"] if over else None,
        result=_NULL if row["result"] is None or not over else msgspec.Raw(row["result"].encode()),
        node=row["node_name"],
        command=spec.command,
        script=row["script"],
        script_path=row["script_path"],
        function=spec.function,
        bundle=spec.bundle,
        workdir=spec.workdir,
        args=spec.args,
        kwargs=spec.kwargs,
        env=spec.env,
        tags=spec.tags,
        submitted_by=row["submitted_by"],
    )


def reason_of(row: Row, why: Why = nothing_known) -> Reason:
    """Why a task is where it is."""
    state = State(row["state"]) if row["state"] is not None else ENDED[row["status"]]
    if state == State.READY and (known := why(LineKey(row["tenant"], row["lane"], row["shape"]))) is not None:
        return Reason(known.code, known.message)
    if state == State.DONE:
        return Reason("done", "ended well")
    if row["state"] is None:
        return Reason(row["code"] or STATUS[state], row["message"] or STATUS[state])
    if state == State.SCHEDULED and row["failures"] + row["losses"] > 0:
        return Reason(
            "backing_off",
            f"attempt {row['queue_attempt']} ended ({row['message']}); waits before the next one",
        )
    return _WAITING[state]


def attempt_view(row: Row) -> AttemptView:
    """An attempt as the database has it."""
    ended = row["outcome"] is not None
    return AttemptView(
        attempt=row["attempt"],
        outcome=Outcome(row["outcome"]).name.lower() if ended else "running",
        code=row["code"],
        message=row["message"],
        node=row["node"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        exit_code=row["exit_code"],
        usage=None if row["usage"] is None else msgspec.json.decode(row["usage"], type=dict[str, float]),
        log_bytes=row["log_bytes"],
        log_dropped=row["log_dropped"],
        tail=None if row["tail"] is None else bytes(row["tail"]).decode(errors="replace"),
    )
