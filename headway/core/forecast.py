"""When a task will start: from how fast the pool has been getting through work, and what waits ahead of it.

Work is counted in parts of the pool: a task is the part of the resource it needs most, its bottleneck, and what
competes for another bottleneck is not in its way. A part in use is free again after so many seconds on average
(`Flow`), so what is ahead takes its parts times these seconds. Ahead in the order is what comes earlier by lane, and of
the same lane what everybody gets by fair share while the tenant's own work ahead is done (`Backlog`).

The answers for a pool are made at once and then looked up (`Waits`): admission asks one table of steps per tenant.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

import msgspec

from headway.core.lifecycle import Lane
from headway.core.nodes import Nodes
from headway.core.placement import Shape
from headway.core.policy import Policy

HALF_LIFE_SECONDS = 60.0
"""How fast observations fade: a pool whose tasks change character is forecast anew after a minute or two."""
EVIDENCE_MIN = 3.0
"""How many ends must have been seen before anything is said."""
LATE_SECONDS = 1.0
"""How much later than its latest start a task must be expected to be called late: what is known is a second old."""
STEPS = 4


def bottleneck(shape: Shape, capacity: Mapping[str, int]) -> tuple[str, float] | None:
    """The resource of which a task of a shape takes the largest part of the pool, and that part."""
    parts = [(need / capacity[name], name) for name, need in shape.needs.items() if need and capacity.get(name, 0) > 0]
    if not parts:
        return None
    part, name = max(parts)
    return name, part


class Flow:
    """How long a part of each resource stays in use, observed."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._freed: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._known: dict[int, tuple[str, float] | None] = {}
        self._since: float | None = None

    def ended(self, nodes: Nodes, number: int, count: int) -> None:
        """Tasks of a shape ended. Runs once for a batch of ends."""
        known = self._known.get(number)
        if known is None and number not in self._known and nodes.knows(number):
            known = self._known[number] = bottleneck(nodes.shape(number), nodes.capacity)
        if known is not None:
            name, part = known
            self._freed[name] = self._freed.get(name, 0.0) + part * count
            self._ends[name] = self._ends.get(name, 0.0) + count

    def observe(self, nodes: Nodes, now: float) -> None:
        """Notes what is in use; once a second is often enough. What was noted before fades."""
        since, self._since = self._since, now
        self._known.clear()  # the pool may have another size by now
        if since is None or now <= since:
            return
        kept = 0.5 ** ((now - since) / HALF_LIFE_SECONDS)
        for sums in (self._freed, self._ends, self._used):
            for name in sums:
                sums[name] *= kept
        for name, whole in nodes.capacity.items():
            if whole > 0:
                in_use = 1.0 - max(nodes.free.get(name, 0), 0) / whole
                self._used[name] = self._used.get(name, 0.0) + in_use * (now - since)

    def seconds(self, name: str) -> float | None:
        """How long a part of a resource stays in use; None before enough was seen to say so."""
        freed = self._freed.get(name, 0.0)
        if freed <= 0.0 or self._ends.get(name, 0.0) < EVIDENCE_MIN:
            return None
        return self._used.get(name, 0.0) / freed


class Load(NamedTuple):
    """The ready tasks of a line, as the forecast sees them."""

    tenant: int
    lane: int
    tier: str
    resource: str
    part: float
    """Of one task."""
    tasks: int
    pressing: int
    """How many of them are looked at before all others, for their slack is gone."""
    dues: list[float]
    """When some of them are due, evenly spaced."""


class Steps(msgspec.Struct, frozen=True):
    """How long a new task of a tenant waits, by when it is due: each step holds up to its `due`."""

    tenant: int | None
    """None: for a tenant that has nothing waiting."""
    lane: int
    tier: str
    resource: str
    dues: list[float]
    waits: list[float]


class Backlog:
    """What waits for one resource, and how long that keeps a task waiting."""

    def __init__(self, loads: Iterable[Load], policy: Policy, *, seconds: float, free: float) -> None:
        self._policy = policy
        self._seconds = seconds
        self._free = free
        self._loads = list(loads)
        self._pressing: dict[int, float] = {}
        work: dict[tuple[bool, str], dict[int, float]] = {}
        for load in self._loads:
            if load.lane <= Lane.PERIODIC or load.pressing:
                urgent = load.tasks if load.lane <= Lane.PERIODIC else load.pressing
                self._pressing[load.tenant] = self._pressing.get(load.tenant, 0.0) + urgent * load.part
            if load.lane > Lane.PERIODIC:
                tenants = work.setdefault((load.lane == Lane.OFFPEAK, load.tier), {})
                tenants[load.tenant] = tenants.get(load.tenant, 0.0) + (load.tasks - load.pressing) * load.part
        self._all_pressing = sum(self._pressing.values())
        self._all_shares = sum(policy.plan(tenant).urgent_share for tenant in self._pressing)
        self._work = work
        self._sorted = {group: sorted(tenants.values()) for group, tenants in work.items()}
        self._sums = {group: [0.0, *accumulate(values)] for group, values in self._sorted.items()}

    def wait(self, tenant: int | None, lane: int, tier: str, own: float, part: float) -> float:
        """How long a task waits that has so much of its tenant's own work (in parts) ahead of it."""
        ahead = own + part
        if lane > Lane.PERIODIC:
            ahead = self._in_turn(tenant, lane == Lane.OFFPEAK, tier, own + part)
            if lane == Lane.OFFPEAK:
                ahead += sum(sums[-1] for (off_peak, _), sums in self._sums.items() if not off_peak)
        return self._with_urgent(tenant, lane, ahead)

    def _in_turn(self, tenant: int | None, off_peak: bool, tier: str, own: float) -> float:
        """What all tenants of a lane get while one gets `own`: the same in its tier, by weight in the others."""
        within = self._level((off_peak, tier), own)
        mine = self._work.get((off_peak, tier), {}).get(tenant, 0.0) if tenant is not None else 0.0
        got = within - min(mine, own) + own
        weight = self._policy.weight
        others = [
            min(sums[-1], got * weight(other) / weight(tier))
            for (theirs, other), sums in self._sums.items()
            if theirs == off_peak and other != tier
        ]
        return got + sum(others)

    def _level(self, group: tuple[bool, str], most: float) -> float:
        """What the tenants of a group get when each gets what it has, up to `most`."""
        values = self._sorted.get(group, [])
        border = bisect_left(values, most)
        return self._sums[group][border] + most * (len(values) - border) if values else 0.0

    def _with_urgent(self, tenant: int | None, lane: int, ahead: float) -> float:
        """With what others may start before all else. Ahead of a normal task they hold no more than their urgent shares
        of the pool while it waits; the others in that lane simply come first."""
        everything = self._all_pressing - (self._pressing.get(tenant, 0.0) if tenant is not None else 0.0)
        if lane <= Lane.PERIODIC:
            return max(ahead + everything - self._free, 0.0) * self._seconds
        ahead = max(ahead - self._free, 0.0)
        shares = self._all_shares
        if tenant in self._pressing:
            shares -= self._policy.plan(tenant).urgent_share
        between = ahead * shares / (1.0 - shares) if shares < 1.0 else everything
        return (ahead + min(everything, between)) * self._seconds

    def steps(self, resource: str, most: int) -> list[Steps]:
        """A table for each of the `most` tenants that wait for most, and for one that has nothing waiting."""
        queues: dict[tuple[int, int, str], list[Load]] = {}
        for load in self._loads:
            queues.setdefault((load.tenant, load.lane, load.tier), []).append(load)
        largest = sorted(queues.items(), key=lambda one: -sum(load.tasks * load.part for load in one[1]))[:most]
        found = [self._steps_of(tenant, lane, tier, resource, loads) for (tenant, lane, tier), loads in largest]
        part = min((load.part for load in self._loads), default=0.0)
        groups = {(lane, tier) for _, lane, tier in queues} | {(lane, "") for lane in Lane}
        found += [
            Steps(None, lane, tier, resource, [], [self.wait(None, lane, tier, 0.0, part)]) for lane, tier in groups
        ]
        return found

    def _steps_of(self, tenant: int, lane: int, tier: str, resource: str, loads: list[Load]) -> Steps:
        """Of what a tenant has waiting, how much is due by when, and how long it takes to get there."""
        marks = sorted((due, load.tasks * load.part / len(load.dues)) for load in loads for due in load.dues)
        part = max(load.part for load in loads)
        every = -(-len(marks) // STEPS)
        sums = [0.0, *accumulate(work for _, work in marks)]
        picks = [*range(0, len(marks), every), len(marks)]
        return Steps(
            tenant, lane, tier, resource,
            [marks[pick][0] for pick in picks[:-1]],
            [self.wait(tenant, lane, tier, sums[pick], part) for pick in picks],
        )  # fmt: skip


class Waits:
    """The tables of a pool, looked up."""

    def __init__(self, steps: Iterable[Steps], resources: Mapping[int, str], *, margin_seconds: float) -> None:
        self._steps = {(one.tenant, one.lane, one.tier, one.resource): one for one in steps}
        self._resources = resources
        self._margin_seconds = margin_seconds
        self.is_short = not any(wait > LATE_SECONDS for one in self._steps.values() for wait in one.waits)
        """Nobody waits at all: there is nothing to look up."""

    def seconds(
        self, tenant: int, lane: int, tier: str, shape: int, kind: str, *, start_by: float, now: float
    ) -> float | None:
        """How long a new task waits; None where nothing can be said yet."""
        resource = self._resources.get(shape) or ("workers" if kind == "function" else "cpu")
        found = (
            self._steps.get((tenant, lane, tier, resource))
            or self._steps.get((None, lane, tier, resource))
            or self._steps.get((None, lane, "", resource))
        )
        if found is None:
            return None
        wait = found.waits[bisect_right(found.dues, start_by)]
        if lane == Lane.OFFPEAK:
            wait = min(wait, max(start_by - self._margin_seconds - now, 0.0))  # when its slack is gone, it goes first
        return wait
