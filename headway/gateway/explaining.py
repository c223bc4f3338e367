"""`GET /v1/tasks/{id}/explain`: why a task waits, why it runs where and since when it does, or how it ended.

Of a ready task the leader knows; of every other one its row says all.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from headway.core.explain import TURN, Blocker, Position, plain
from headway.core.lifecycle import ENDED, STATUS, Lane, State
from headway.core.outlook import Estimate, Look
from headway.core.placement import Shape
from headway.core.queue import LineKey, ReadyTask
from headway.gateway.insight import NO_LEADER, Insight
from headway.gateway.views import Reason, reason_of
from headway.store.database import Row

_FAILED = next(number for number, state in ENDED.items() if state == State.FAILED)
_shape = msgspec.json.Decoder(Shape).decode


class BlockerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that keeps a task from starting."""

    code: str
    message: str
    helps: str
    name: str | None = None
    limit: float | None = None
    held: float | None = None
    holders: Sequence[str] = ()
    needed: float | None = None
    free: float | None = None
    node: str | None = None
    until: datetime | None = None


class EstimateView(msgspec.Struct, frozen=True):
    """When a task is expected to start."""

    starts_at: datetime
    seconds: float
    basis: str
    late: bool
    """Whether that is later than it tolerates."""


class FitView(msgspec.Struct, frozen=True):
    """What a task takes of its node."""

    resource: str
    needed: float
    capacity: float


class StartedView(msgspec.Struct, frozen=True):
    """Why a task runs where it does, and why it started when it did."""

    node: str | None
    at: datetime
    lane: str
    promoted: bool
    """Whether its slack was gone, so that it went ahead of its lane."""
    waited: float
    tolerance: float
    late: bool
    fit: list[FitView]


class ExplanationView(msgspec.Struct, frozen=True):
    """Where a task stands."""

    id: str
    status: str
    code: str
    message: str
    helps: Sequence[str]
    as_of: datetime
    """When that was so."""
    position: Position | None = None
    blockers: Sequence[BlockerView] = ()
    estimate: EstimateView | None = None
    started: StartedView | None = None


async def explained(
    row: Row,
    tenant: int,
    insight: Insight,
    *,
    shape: str | None,
    capacity: dict[str, int],
    margin_seconds: float,
    why: str | None = None,
) -> ExplanationView:
    """What there is to say of a task; `shape` and `capacity` are its shape's body and its node's while it runs, `why`
    why it was paused."""
    now = datetime.now(UTC)
    match row["state"]:
        case State.READY:
            return await _ready(row, tenant, insight, now)
        case State.SCHEDULED:
            return _scheduled(row, now)
        case State.CLAIMED | State.RUNNING | State.CANCELLING | State.FROZEN | State.PAUSING | State.HELD:
            assert shape is not None
            said = _running(row, _shape(shape), capacity, margin_seconds, now)
            return said if why is None else msgspec.structs.replace(said, message=f"{why}; {said.message}")
        case _:
            return _view(row, reason_of(row), now, helps=_after(row))


async def _ready(row: Row, tenant: int, insight: Insight, now: datetime) -> ExplanationView:
    """The leader in this process says how it is now; of another one it is known how it was lately."""
    key = LineKey(tenant, row["lane"], row["shape"])
    task = ReadyTask(row["start_by"].timestamp(), row["execution_cap_ms"], row["id"])
    known, look = await insight.known(), insight.task(key, task)
    as_of = now if look is not None or known is None else known.as_of
    if look is None and not insight.is_led:
        look = Look(NO_LEADER, None, None)
    elif look is None:
        wait = None if known is None else known.waits.seconds(
            tenant, row["lane"], row["tier"], row["shape"], row["kind"], start_by=task.start_by, now=now.timestamp()
        )  # fmt: skip
        why = TURN if known is None else known.why.get(key, TURN)
        look = Look(why, None, None if wait is None else Estimate(round(wait, 3), "observed"))
    why, found = look.explanation, look.estimate
    return ExplanationView(
        str(row["id"]), "waiting", why.code, why.message, why.helps, as_of, look.position,
        [_blocker(one) for one in why.blockers], None if found is None else _estimate(found, row["start_by"], now),
    )  # fmt: skip


def _blocker(one: Blocker) -> BlockerView:
    until = None if one.until is None else datetime.fromtimestamp(one.until, UTC)
    return BlockerView(
        one.code, one.message, one.helps, one.name, one.limit, one.held, one.holders, one.needed, one.free, one.node,
        until,
    )  # fmt: skip


def _estimate(found: Estimate, start_by: datetime, now: datetime) -> EstimateView:
    at = now + timedelta(seconds=found.seconds)
    return EstimateView(at, found.seconds, found.basis, at > start_by)


def _scheduled(row: Row, now: datetime) -> ExplanationView:
    at: datetime = row["eligible_at"]
    reason = reason_of(row)
    helps = "nothing to do: it is looked at from then on"
    blocker = BlockerView(reason.code, reason.message, helps, until=at)
    seconds = max((at - now).total_seconds(), 0.0)
    estimate = EstimateView(max(at, now), round(seconds, 3), "schedule", late=False)
    return _view(row, reason, now, helps=(helps,), blockers=[blocker], estimate=estimate)


def _running(row: Row, shape: Shape, capacity: dict[str, int], margin_seconds: float, now: datetime) -> ExplanationView:
    at: datetime = row["claimed_at"]
    waited = max((at - row["eligible_at"]).total_seconds(), 0.0)
    lane, late = Lane(row["lane"]), at > row["start_by"]
    promoted = lane != Lane.URGENT and (row["start_by"] - at).total_seconds() <= margin_seconds
    tolerance = row["delay_tolerance_ms"] / 1000
    fit = [FitView(name, plain(name, need), plain(name, capacity.get(name, 0))) for name, need in shape.needs.items()]
    how = f"{lane.name.lower()} lane" + (", ahead of it because its slack was gone" if promoted else "")
    where = f"{row['node_name']} had room for it"
    reason = reason_of(row)
    message = f"{reason.message}; {where} after {waited:.1f} s of the {tolerance:g} s that it may wait ({how})"
    started = StartedView(row["node_name"], at, lane.name.lower(), promoted, round(waited, 3), tolerance, late, fit)
    return _view(row, Reason(reason.code, message), now, started=started)


def _after(row: Row) -> tuple[str, ...]:
    return (f"headway show {row['id']} lists its attempts",) if row["status"] == _FAILED else ()


def _view(
    row: Row,
    reason: Reason,
    now: datetime,
    *,
    helps: Sequence[str] = (),
    blockers: Sequence[BlockerView] = (),
    estimate: EstimateView | None = None,
    started: StartedView | None = None,
) -> ExplanationView:
    state = State(row["state"]) if row["state"] is not None else ENDED[row["status"]]
    return ExplanationView(
        str(row["id"]), STATUS[state], reason.code, reason.message, helps, now, None, blockers, estimate, started
    )
