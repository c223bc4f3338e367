"""Whether new work can start in time, as far as is known: a look-up for each kind of work, none for each task."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from headway.core.forecast import LATE_SECONDS
from headway.core.lifecycle import State
from headway.gateway.insight import Insight
from headway.gateway.problems import Problem
from headway.store.rows import NewTask, Template

LATER_SECONDS_MAX = 3600
"""The longest that a client is told to wait before it tries again."""


class Warning(msgspec.Struct, frozen=True):
    """Something about an accepted task that its client should know."""

    code: str
    message: str
    predicted_start: datetime


async def late(insight: Insight, rows: Iterable[NewTask]) -> dict[int, Warning]:
    """Of what new tasks have in common, by the `id` of the template, that which cannot start within its tolerance."""
    known = await insight.known()
    if known is None or known.waits.is_short:
        return {}
    now = datetime.now(UTC)
    found: dict[int, Warning] = {}
    for common in {id(row.template): row.template for row in rows}.values():
        if common.state != State.READY:
            continue
        wait = known.waits.seconds(
            common.tenant, common.lane, common.tier, common.shape, common.kind,
            start_by=common.start_by, now=now.timestamp(),
        )  # fmt: skip
        if wait is not None and wait > common.delay_tolerance_ms / 1000 + LATE_SECONDS:
            found[id(common)] = _warning(wait, common.delay_tolerance_ms / 1000, now)
    return found


def _warning(wait: float, tolerance: float, now: datetime) -> Warning:
    message = f"it is expected to start in about {wait:.0f} s; it tolerates {tolerance:g} s"
    return Warning("late_start", message, now + timedelta(seconds=round(wait)))


def refusal(warning: Warning, common: Template) -> Problem:
    """The answer to a task that its plan does not let in late."""
    over = (warning.predicted_start - common.submitted_at).total_seconds() - common.delay_tolerance_ms / 1000
    seconds = min(max(math.ceil(over), 1), LATER_SECONDS_MAX)
    return Problem("would_be_late", f"{warning.message}; try again in {seconds} s", retry_after=seconds)
