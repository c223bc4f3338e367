"""What may be changed of a task that is not over: how long it may run, how late it may start, how it is stopped.

The bounds are those of its submission (core/task.py): its tier's longest cap, the longest grace.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headway.core.lifecycle import Lane
from headway.core.quantity import duration_ms
from headway.core.refusal import Refused
from headway.core.task import CAP_GRACE_MS_MAX, Duration, OffPeak, Tier, cap_of, lane_of


class Amendment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PATCH /v1/tasks/{id}`; what is left out stays."""

    execution_cap: Duration | msgspec.UnsetType = msgspec.UNSET
    delay_tolerance: Duration | msgspec.UnsetType = msgspec.UNSET
    cap_grace: Duration | msgspec.UnsetType = msgspec.UNSET
    off_peak: OffPeak | msgspec.UnsetType = msgspec.UNSET


class Amended(NamedTuple):
    """The same in the scheduler's terms; None: as it is."""

    execution_cap_ms: int | None = None
    delay_tolerance_ms: int | None = None
    cap_grace_ms: int | None = None
    lane: Lane | None = None
    """In which lane it waits unless it is urgent."""


def amend(said: Amendment, tier: Tier, tolerance_ms: int) -> Amended | list[Refused]:
    """What a task of a tier, that tolerates so much now, is to become; or everything that is wrong with it."""
    cap = grace = tolerance = None
    if not isinstance(said.execution_cap, msgspec.UnsetType):
        cap = cap_of(said.execution_cap, tier)
    if not isinstance(said.delay_tolerance, msgspec.UnsetType):
        tolerance = duration_ms(said.delay_tolerance, "delay_tolerance")
    if not isinstance(said.cap_grace, msgspec.UnsetType):
        grace = duration_ms(said.cap_grace, "cap_grace")
        if isinstance(grace, int) and grace > CAP_GRACE_MS_MAX:
            grace = Refused("cap_grace", "must not exceed 10m")
    wrong = [one for one in (cap, tolerance, grace) if isinstance(one, Refused)]
    if wrong:
        return wrong
    if said == Amendment():
        return [Refused("", "nothing is to be changed; say execution_cap, delay_tolerance, cap_grace or off_peak")]
    assert not isinstance(cap, Refused)
    assert not isinstance(tolerance, Refused)
    assert not isinstance(grace, Refused)
    lane = None
    if not isinstance(said.off_peak, msgspec.UnsetType):
        lane = lane_of(said.off_peak, tolerance if tolerance is not None else tolerance_ms)
        lane = Lane.NORMAL if lane == Lane.URGENT else lane
    return Amended(cap, tolerance, grace, lane)
