"""A scenario made ready to run: nodes, tenants, and streams of tasks, each with a generator of chance of its own.

Work is admitted as a gateway admits it (`core.task.admit`): tiers fill in what is left out, tolerances become lanes,
and what a gateway would refuse is refused here, with its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from headway.core.placement import NodeRoom, Shape
from headway.core.policy import Plan, Policy
from headway.core.quantity import counted
from headway.core.refusal import Refused
from headway.core.resources import nearest
from headway.core.task import Admitted, Submission, Tier, admit
from headway.sim import trace
from headway.sim.chance import DAY, Wrong, arrivals, draws, seconds
from headway.sim.reading import ScenarioError, Source
from headway.sim.scenario import Failures, NodeGroup, Overstated, PolicySaid, Scenario, Tenants, TierSaid, Trace, Work
from headway.sim.stream import Stream

NODES_MAX = 100_000
TENANTS_MAX = 100_000
HORIZON_MAX = 92 * DAY
GROUPS_MAX = 100
"""With more tenants in a trace, it is reported by tier."""
TIERS = {
    "basic": TierSaid(weight=1, resources={"cpu": 0.5, "memory": "256Mi"}, execution_cap="5m"),
    "regular": TierSaid(weight=2, resources={"cpu": 1, "memory": "1Gi"}, execution_cap="30m"),
    "premium": TierSaid(weight=4, resources={"cpu": 2, "memory": "4Gi"}, execution_cap="2h"),
}
"""Those a new Headway has."""


class Spare(NamedTuple):
    """How a node fails and comes back."""

    mean_time_between: float
    repair: float


class Site(NamedTuple):
    """A node as it is whenever it is there."""

    name: str
    capacity: dict[str, int]
    labels: dict[str, str]
    spare: Spare | None

    def room(self, number: int) -> NodeRoom:
        """Its room when it is idle."""
        return NodeRoom(
            number, self.name, capacity=self.capacity, kinds=["command"], functions=[], windows={}, labels=self.labels
        )


class World(NamedTuple):
    """Everything a simulation needs to know."""

    scenario: Scenario
    seed: int
    horizon: float
    round: float
    sites: list[Site]
    policy: Policy
    tenants: list[str]
    """By number."""
    streams: list[Stream]

    def chance(self, what: str) -> Random:
        """The generator of one thing that chance decides."""
        return Random(f"{self.seed}/{what}")


def world(
    scenario: Scenario, source: Source, *, nodes: int | None = None, seed: int | None = None, load: float = 1.0
) -> World:
    """The world of a scenario, with so many nodes in place of its own and so many times its work; raises
    ScenarioError."""
    wrong: list[Refused] = []
    found = _Built(scenario, seed if seed is not None else scenario.seed, load, wrong)
    sites = found.sites(nodes)
    streams = list(found.streams()) if not wrong else []
    policy = found.policy()
    if not wrong and scenario.trace is None and not any(said.work for said in scenario.tenants):
        wrong.append(Refused("", "nobody submits anything; expected tenants with work, or a trace"))
    if not wrong:
        wrong += _never_fitting(streams, sites, scenario)
    if wrong:
        raise source.error(wrong)
    if scenario.trace is not None:
        streams += found.traced(scenario.trace, Path(source.name).parent, sites, len(streams))
    return World(scenario, found.seed, found.horizon, found.round, sites, policy, found.names, streams)


class _Built:
    """What is made of a scenario, piece by piece; what is wrong is gathered."""

    def __init__(self, scenario: Scenario, seed: int, load: float, wrong: list[Refused]) -> None:
        self.scenario = scenario
        self.seed = seed
        self.load = load
        self.names: list[str] = []
        self.plans: dict[int, Plan] = {}
        self._wrong = wrong
        self.horizon = self._seconds(scenario.horizon, "horizon", least=1.0, most=HORIZON_MAX)
        self.round = self._seconds(scenario.round, "round", least=0.001, most=60.0)
        self._said_tiers = {**TIERS, **scenario.tiers}
        self._tiers = {name: self._tier(name, tier) for name, tier in self._said_tiers.items()}

    def sites(self, nodes: int | None) -> list[Site]:
        """The nodes; with a number, as many in all, of each kind in proportion."""
        groups = self.scenario.nodes
        if not groups:
            self._wrong.append(Refused("nodes", "expected at least one group of nodes"))
        counts = [group.count for group in groups]
        for number, count in enumerate(counts):
            if not 1 <= count <= NODES_MAX:
                self._wrong.append(Refused(f"nodes[{number}].count", f"must be from 1 to {NODES_MAX}"))
        if nodes is not None and not self._wrong:
            counts = _in_proportion(counts, nodes)
        return [
            Site(f"{group.name}-{index}", capacity, group.labels, spare)
            for number, (group, count) in enumerate(zip(groups, counts, strict=True))
            for capacity, spare in [self._node(group, f"nodes[{number}]")]
            for index in range(count)
        ]

    def _node(self, group: NodeGroup, path: str) -> tuple[dict[str, int], Spare | None]:
        capacity = self._amounts(group.resources, f"{path}.resources")
        if not capacity.get("cpu") or not capacity.get("memory"):
            self._wrong.append(Refused(f"{path}.resources", "expected at least cpu and memory, each more than 0"))
        own = group.failures is not None
        said = group.failures or self.scenario.failures
        return capacity, None if said is None else self._spare(said, f"{path}.failures" if own else "failures")

    def _spare(self, said: Failures, path: str) -> Spare:
        between = self._seconds(said.mean_time_between, f"{path}.mean_time_between", least=60.0)
        return Spare(between, self._seconds(said.repair, f"{path}.repair", least=1.0))

    def streams(self) -> Iterator[Stream]:
        """Every stream of every tenant."""
        if sum(max(one.count, 0) for one in self.scenario.tenants) > TENANTS_MAX:
            self._wrong.append(Refused("tenants", f"must not exceed {TENANTS_MAX} in all"))
            return
        seen: set[str] = set()
        number = 0
        for index, said in enumerate(self.scenario.tenants):
            path = f"tenants[{index}]"
            if said.name in seen or said.count < 1 or not said.name:
                what = (
                    "is there already"
                    if said.name in seen
                    else "must be at least 1"
                    if said.name
                    else "must have a name"
                )
                self._wrong.append(Refused(f"{path}.{'count' if said.count < 1 else 'name'}", what))
                continue
            seen.add(said.name)
            admitted = [self._admitted(work, said, f"{path}.work[{n}]") for n, work in enumerate(said.work)]
            plan = self._plan(said, path)
            for copy in range(said.count):
                tenant = len(self.names)
                self.names.append(said.name if said.count == 1 else f"{said.name}-{copy + 1}")
                self.plans[tenant] = plan
                for n, (work, one) in enumerate(zip(said.work, admitted, strict=True)):
                    if one is not None:
                        yield self._stream(number, tenant, said, work, one, f"{path}.work[{n}]")
                        number += 1

    def _stream(self, number: int, tenant: int, said: Tenants, work: Work, one: Admitted, path: str) -> Stream:
        stream = Stream(number, tenant, said.name, work.name, one, periodic=work.periodic)
        terms = one.terms
        stream.become(
            Shape(
                "command", dict(one.needs), one.tier, constraints=terms.constraints, preferred=terms.preferred,
                spread=terms.spread, exclusive=terms.exclusive, concurrency=terms.concurrency, rates=terms.rates,
                preemptible=work.preemptible,
            )
        )  # fmt: skip
        try:
            stream.draw = draws(work.duration, f"{path}.duration")
            stream.arrive = arrivals(work.arrive, f"{path}.arrive", self.horizon, load=self.load)(
                Random(f"{self.seed}/{self.names[tenant]}/{work.name}/arrivals")
            )
            if isinstance(work.execution_cap, Overstated):
                stream.cap = work.execution_cap
                _checked_cap(work.execution_cap, f"{path}.execution_cap")
            if work.checkpoint_every is not None:
                stream.checkpoint_every = seconds(work.checkpoint_every, f"{path}.checkpoint_every", least=1.0)
                if not work.preemptible:
                    raise Wrong(f"{path}.checkpoint_every", "only a preemptible task writes checkpoints")
        except Wrong as error:
            if error.refused not in self._wrong:
                self._wrong.append(error.refused)
        return stream

    def _admitted(self, work: Work, said: Tenants, path: str) -> Admitted | None:
        submission = Submission(
            name=work.name, command=["simulated"], tier=work.tier or said.tier, resources=dict(work.resources),
            delay_tolerance=work.delay_tolerance, off_peak=work.off_peak, constraints=work.constraints,
            execution_cap=None if isinstance(work.execution_cap, Overstated) else work.execution_cap,
            preferred=work.preferred, spread=work.spread, exclusive=work.exclusive, concurrency=work.concurrency,
            rates=work.rates,
        )  # fmt: skip
        one = admit(submission, self._tiers)
        if isinstance(one, Admitted):
            return one
        self._wrong += [Refused(f"{path}.{refused.path}", refused.message) for refused in one]
        return None

    def traced(self, said: Trace, beside: Path, sites: list[Site], number: int) -> Iterator[Stream]:
        """The streams of a trace; its tenants may be described as others are, and need no work of their own then."""
        chance = Random(f"{self.seed}/trace")
        try:
            kinds = trace.read(said, beside / said.file, horizon=self.horizon, load=self.load, chance=chance)
            described = {one.name: one for one in self.scenario.tenants}
            numbers = {name: tenant for tenant, name in enumerate(self.names)}
            several = len({one.said.get("tenant") for one in kinds})
            rooms = {site.name.rpartition("-")[0]: site.room(0) for site in reversed(sites)}
            for one in kinds:
                name = str(one.said.get("tenant", "default"))
                if name not in numbers:
                    numbers[name] = len(self.names)
                    self.names.append(name)
                tier = described[name].tier if name in described else "basic"
                stream = trace.stream(one, number, numbers[name], tier, self._tiers, is_grouped=several > GROUPS_MAX)
                trace.check_fits(one, stream, rooms)
                yield stream
                number += 1
        except trace.TraceError as error:
            raise ScenarioError(str(error)) from None

    def _plan(self, said: Tenants, path: str) -> Plan:
        if not 0 <= said.urgent_share <= 1:
            self._wrong.append(Refused(f"{path}.urgent_share", "must be from 0 to 1"))
        quota = {name: amount for name, amount in said.quota.items() if name != "running"}
        bounds = self._amounts(quota, f"{path}.quota")
        running = said.quota.get("running")
        if isinstance(running, int) and running >= 1:
            bounds["running"] = running
        elif running is not None:
            self._wrong.append(Refused(f"{path}.quota.running", "expected a whole number of at least 1"))
        return Plan(said.urgent_share, bounds)

    def policy(self) -> Policy:
        """What operators decided, where it differs from what a new Headway does."""
        weights = {name: tier.weight for name, tier in self._said_tiers.items()}
        for name, weight in weights.items():
            if not 0 < weight <= 1e6:
                self._wrong.append(Refused(f"tiers.{name}.weight", "must be more than 0"))
        return _policy(self.scenario.policy, weights, self.plans, self._seconds, self._wrong)

    def _tier(self, name: str, said: TierSaid) -> Tier:
        needs = self._amounts(said.resources, f"tiers.{name}.resources")
        cap = self._seconds(said.execution_cap, f"tiers.{name}.execution_cap", least=0.001)
        return Tier(name, needs, round(cap * 1000), round(366 * DAY * 1000))

    def _amounts(self, said: dict[str, str | int | float], path: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, value in said.items():
            amount = counted(name, value, f"{path}.{name}")
            if isinstance(amount, Refused):
                self._wrong.append(amount)
            else:
                found[name] = amount
        return found

    def _seconds(self, said: str | int | float, path: str, *, least: float = 0.0, most: float = math.inf) -> float:
        try:
            found = seconds(said, path, least=least)
        except Wrong as error:
            self._wrong.append(error.refused)
            return max(least, 1.0)
        if found > most:
            self._wrong.append(
                Refused(path, f"must not exceed {most / DAY:g} days" if most >= DAY else f"must not exceed {most:g}s")
            )
        return found


def _checked_cap(said: Overstated, path: str) -> None:
    if not 1 <= said.times <= 1000:
        raise Wrong(f"{path}.times", "must be from 1 to 1000")
    seconds(said.least, f"{path}.least", least=1.0)


def _in_proportion(counts: list[int], whole: int) -> list[int]:
    """So many in all, each group its part, none empty while there are enough."""
    before, parts = sum(counts), list[int]()
    for number, count in enumerate(counts):
        left = whole - sum(parts)
        rest = sum(counts[number:])
        parts.append(left if number == len(counts) - 1 else min(max(round(left * count / rest), 1), left))
    assert sum(parts) == whole, (before, whole)
    return parts


def _never_fitting(streams: list[Stream], sites: list[Site], scenario: Scenario) -> list[Refused]:
    """Work that no node could ever run, were it idle."""
    kinds = {(site.name.rpartition("-")[0]): site.room(0) for site in reversed(sites)}
    wrong: dict[str, str] = {}
    indexes = {
        (said.name, work.name): (i, j) for i, said in enumerate(scenario.tenants) for j, work in enumerate(said.work)
    }
    for stream in streams:
        if any(room.could_run(stream.shape) for room in kinds.values()):
            continue
        i, j = indexes[stream.group, stream.work]
        node, lacks = nearest(stream.shape.needs, {name: room.capacity for name, room in kinds.items()})
        what = f"{', '.join(lacks)} of {node}, the nearest, is less" if lacks else "no node has such labels"
        wrong.setdefault(f"tenants[{i}].work[{j}].{'resources' if lacks else 'constraints'}", f"fits no node: {what}")
    return [Refused(path, what) for path, what in wrong.items()]


def _policy(
    said: PolicySaid, weights: dict[str, float], plans: dict[int, Plan], in_seconds: _InSeconds, wrong: list[Refused]
) -> Policy:
    default = Policy()

    def lasting(value: str | int | float | None, name: str, otherwise: float) -> float:
        return otherwise if value is None else in_seconds(value, f"policy.{name}")

    def part(value: float | None, name: str, otherwise: float, most: float = 1.0) -> float:
        if value is not None and not 0 <= value <= most:
            wrong.append(Refused(f"policy.{name}", f"must be from 0 to {most:g}"))
        return otherwise if value is None else value

    quanta = default.quanta_seconds
    if said.quanta is not None:
        quanta = tuple(in_seconds(one, f"policy.quanta[{n}]") for n, one in enumerate(said.quanta))
        if not quanta or min(quanta) <= 0:
            wrong.append(Refused("policy.quanta", "expected durations, each more than 0"))
    half_life = lasting(said.half_life, "half_life", default.half_life_seconds)
    if half_life < 1:
        wrong.append(Refused("policy.half_life", "must be at least 1s"))
    per_task = said.preemptions_per_task
    return Policy(
        weights=weights,
        plans=plans,
        peak_line=part(said.peak_line, "peak_line", default.peak_line),
        peak_hysteresis=part(said.peak_hysteresis, "peak_hysteresis", default.peak_hysteresis),
        promotion_margin_seconds=lasting(said.promotion_margin, "promotion_margin", default.promotion_margin_seconds),
        half_life_seconds=max(half_life, 1.0),
        history_weight=part(said.history_weight, "history_weight", default.history_weight, 1000.0),
        reserve_after_seconds=lasting(said.reserve_after, "reserve_after", default.reserve_after_seconds),
        quanta_seconds=quanta,
        least_run_seconds=lasting(said.least_run, "least_run", default.least_run_seconds),
        preempt_after_seconds=lasting(said.preempt_after, "preempt_after", default.preempt_after_seconds),
        preempt_patience_seconds=lasting(said.preempt_patience, "preempt_patience", default.preempt_patience_seconds),
        preemptions_per_task=default.preemptions_per_task if per_task is None else max(per_task, 0),
        preemptions_per_minute=part(
            said.preemptions_per_minute, "preemptions_per_minute", default.preemptions_per_minute, 1e6
        ),
    )


class _InSeconds(Protocol):
    """The signature of what turns a duration into seconds and gathers what is wrong."""

    def __call__(self, said: str | int | float, path: str) -> float: ...
