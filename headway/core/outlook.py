"""What the leader of a pool tells everybody else about it: why its lines wait, how long new work will, whether it has
enough. Bounded however much waits, and made from lines, not from tasks, so that it may be made every second.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice

import msgspec

from headway.core.demand import Asked, Demand, Ratio
from headway.core.explain import Blocker, Explanation, Holders, Position, Rooms, explain, position
from headway.core.forecast import Backlog, Flow, Load, Steps, Waits, bottleneck
from headway.core.lifecycle import Lane
from headway.core.order import FOREVER
from headway.core.placement import Shape
from headway.core.plan import Planner
from headway.core.queue import Line, LineKey, ReadyTask
from headway.core.reservation import Running, free_at
from headway.core.resources import give

LINES_MAX = 500
"""How many lines are explained; of the others it is only known that they wait for their turn."""
TENANTS_MAX = 100
"""How many tenants a resource has a forecast of its own for; the others get that of a tenant with nothing waiting."""
DUES = 4
UNASKED = frozenset({"tenant_paused", "name_paused", "quota", "concurrency", "rate", "unknown"})
"""What a line may wait for that no node would bring."""


NODES_LOOKED_AT = 64
ENDLESS = frozenset({"pool_paused", "tenant_paused", "name_paused", "no_node", "quota"})
"""What ends when somebody does something, not by itself."""


class LineOutlook(msgspec.Struct, frozen=True, array_like=True):
    """Why the head of a line waits."""

    tenant: int
    lane: int
    shape: int
    why: int
    """Which of the explanations."""


class Estimate(msgspec.Struct, frozen=True):
    """When a task is expected to start."""

    seconds: float
    """From now on."""
    basis: str
    """`observed`: from how fast the pool has been; `limit`: when what blocks it goes away by itself; `caps`: at the
    latest, if all that runs is ended by its cap."""


class Look(msgspec.Struct, frozen=True):
    """All that can be said of one ready task."""

    explanation: Explanation
    position: Position | None
    estimate: Estimate | None


class Outlook(msgspec.Struct, frozen=True):
    """A pool as its leader saw it at one moment."""

    paused: bool
    is_peak: bool
    utilization: float
    deferred: int
    """Ready off-peak tasks that wait for the peak to end."""
    promotion_margin: float
    lines: list[LineOutlook]
    explanations: list[Explanation]
    resources: dict[int, str]
    """By shape, what its tasks need most of."""
    steps: list[Steps]
    ratios: list[Ratio]
    nodes: int
    nodes_wanted: int

    def why(self) -> dict[LineKey, Explanation]:
        """The explanations by line."""
        return {LineKey(one.tenant, one.lane, one.shape): self.explanations[one.why] for one in self.lines}

    def waits(self) -> Waits:
        """The forecast, ready to be asked."""
        return Waits(self.steps, self.resources, margin_seconds=self.promotion_margin)


class Surveyor:
    """Looks at a planner from time to time; what it saw before is in the averages."""

    def __init__(
        self,
        planner: Planner,
        flow: Flow,
        *,
        behind: Callable[[LineKey], int],
        running_on: Callable[[int], Iterable[Running]],
    ) -> None:
        self._running_on = running_on
        self._planner = planner
        self._behind = behind
        self._flow = flow
        self.demand = Demand()
        self.backlogs: dict[str, Backlog] = {}
        """What waits for each resource, as of the last look."""

    def survey(self, now: float) -> Outlook:
        """How things are."""
        pieces = self.survey_in_pieces(now)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value

    def survey_in_pieces(self, now: float) -> Generator[None, None, Outlook]:
        """The same, stopping where others may get a turn: whoever waits meanwhile starts, and nothing is missed."""
        planner = self._planner
        self._flow.observe(planner.nodes, now)
        nodes = sum(1 for room in planner.nodes.all() if not room.is_closed)
        self.demand.observe(planner.nodes.capacity, nodes, self._asked(), now)
        yield
        loads = self._loads(now)
        yield
        found = {name: self._backlog(name, some) for name, some in loads.items()}
        self.backlogs = {name: backlog for name, backlog in found.items() if backlog is not None}
        steps: list[Steps] = []
        for name, backlog in self.backlogs.items():
            steps += backlog.steps(name, TENANTS_MAX)
            yield
        lines, explanations = self._explained(now)
        return Outlook(
            paused=planner.policy.paused,
            is_peak=planner.peak.is_peak,
            utilization=round(planner.peak.utilization, 3),
            deferred=sum(len(line) + self._behind(line.key) for line in planner.lines() if self._is_deferred(line)),
            promotion_margin=planner.policy.promotion_margin_seconds,
            lines=lines,
            explanations=explanations,
            resources=self._resources(),
            steps=steps,
            ratios=self.demand.ratios(),
            nodes=nodes,
            nodes_wanted=self.demand.nodes_wanted(planner.policy.demand_target),
        )

    def look(self, key: LineKey, task: ReadyTask, *, now: float, holders: Holders) -> Look:
        """Why a ready task waits, what is before it, and for how long."""
        why = explain(self._planner, key, task, now=now, holders=holders)
        where = position(self._planner, key, task, now=now, behind=self._behind)
        return Look(why, where, self._estimate(why, where, key, task, now))

    def _estimate(
        self, why: Explanation, where: Position, key: LineKey, task: ReadyTask, now: float
    ) -> Estimate | None:
        """The longest of what blocks it; None when something does of which nobody knows when it ends."""
        if any(blocker.code in ENDLESS for blocker in why.blockers) or not self._planner.nodes.knows(key.shape):
            return None
        shape = self._planner.nodes.shape(key.shape)
        found = bottleneck(shape, self._planner.nodes.capacity)
        each = self._flow.seconds(found[0]) if found is not None else None
        limits = [at - now for blocker in why.blockers if (at := _until(blocker, shape, where.line)) is not None]
        if each is not None:
            for limit in shape.concurrency:
                held = self._planner.limits.holders(key.tenant, limit.key)
                limits.append(max(held + where.line + 1 - limit.limit, 0) / limit.limit * each)
        seconds, basis = max(limits, default=0.0), "limit"
        backlog = self.backlogs.get(found[0]) if found is not None else None
        if found is not None and backlog is not None:
            wait = backlog.wait(key.tenant, key.lane, shape.tier, where.tenant * found[1], found[1])
            if key.lane == Lane.OFFPEAK:
                wait = min(wait, max(task.start_by - self._planner.policy.promotion_margin_seconds - now, 0.0))
            return Estimate(round(max(wait, seconds), 3), "limit" if seconds > wait else "observed")
        if why.code == "no_capacity" and not where.tenant:
            seconds, basis = max(seconds, self._free_by(key.shape, now) - now), "caps"
        return Estimate(round(seconds, 3), basis) if FOREVER > seconds > 0 else None

    def _free_by(self, number: int, now: float) -> float:
        """When some node has room for a shape at the latest, if all that runs is ended by its cap."""
        nodes = self._planner.nodes
        rooms, shape = nodes.candidates(number)[:NODES_LOOKED_AT], nodes.shape(number)
        return min((free_at(nodes, room, shape, self._running_on(room.node), now) for room in rooms), default=FOREVER)

    def _is_deferred(self, line: Line) -> bool:
        return self._planner.deferral.is_put_off(line)

    def _resources(self) -> dict[int, str]:
        nodes = self._planner.nodes
        shapes = {one.key.shape for one in islice(self._planner.lines(), LINES_MAX) if nodes.knows(one.key.shape)}
        found = {shape: bottleneck(nodes.shape(shape), nodes.capacity) for shape in shapes}
        return {shape: one[0] for shape, one in found.items() if one is not None}

    def _explained(self, now: float) -> tuple[list[LineOutlook], list[Explanation]]:
        """What is the same for several lines is said once."""
        numbers: dict[Explanation, int] = {}
        rooms: Rooms = {}
        said: list[LineOutlook] = []
        for line in islice(self._planner.lines(), LINES_MAX):
            why = explain(self._planner, line.key, line.first, now=now, rooms=rooms)
            said.append(LineOutlook(*line.key, numbers.setdefault(why, len(numbers))))
        return said, list(numbers)

    def _asked(self) -> dict[str, Asked]:
        """What each tier holds and has waiting for room."""
        nodes, policy = self._planner.nodes, self._planner.policy
        held = self._planner.usage.held_by_tiers()
        waiting: dict[str, dict[str, int]] = {}
        longest: dict[str, float] = {}
        for line in self._planner.lines() if not policy.paused else ():
            if not self._wants_room(line):
                continue
            shape = nodes.shape(line.key.shape)
            count = len(line) + self._behind(line.key)
            give(waiting.setdefault(shape.tier, {}), shape.needs, count)
            longest[shape.tier] = max(longest.get(shape.tier, 0.0), self._seconds_of(shape, line.first))
        return {
            tier: Asked(held.get(tier, {}), waiting.get(tier, {}), longest.get(tier, 0.0))
            for tier in held.keys() | waiting.keys()
        }

    def _wants_room(self, line: Line) -> bool:
        """Whether more nodes would start it."""
        if not self._planner.nodes.knows(line.key.shape) or self._is_deferred(line):
            return False
        if line.key.tenant in self._planner.policy.paused_tenants:
            return False
        return line.parked is None or line.parked.code not in UNASKED

    def _seconds_of(self, shape: Shape, head: ReadyTask) -> float:
        """How long a task takes: as observed, else its cap."""
        found = bottleneck(shape, self._planner.nodes.capacity)
        observed = self._flow.seconds(found[0]) if found is not None else None
        return head.cap_ms / 1000 if observed is None else min(observed, head.cap_ms / 1000)

    def _loads(self, now: float) -> dict[str, list[Load]]:
        """By resource, the lines that take part in the order."""
        nodes, found = self._planner.nodes, dict[str, list[Load]]()
        margin = ReadyTask(now + self._planner.policy.promotion_margin_seconds, 0, 0)
        found.update({name: [] for name, amount in nodes.capacity.items() if amount > 0})
        for line in self._planner.lines():
            if not nodes.knows(line.key.shape) or not (self._wants_room(line) or self._is_deferred(line)):
                continue
            shape = nodes.shape(line.key.shape)
            need = bottleneck(shape, nodes.capacity)
            if need is not None and nodes.candidates(line.key.shape):
                count, dues = len(line) + self._behind(line.key), line.dues(DUES)
                load = Load(
                    line.key.tenant, line.key.lane, shape.tier, need[0], need[1], count, line.position(margin), dues
                )
                found[need[0]].append(load)
        return found

    def _backlog(self, name: str, loads: list[Load]) -> Backlog | None:
        seconds, whole = self._flow.seconds(name), self._planner.nodes.capacity.get(name, 0)
        if seconds is None or whole <= 0:
            return None
        free = self._planner.nodes.free.get(name, 0) / whole
        return Backlog(loads, self._planner.policy, seconds=seconds, free=free)


def _until(blocker: Blocker, shape: Shape, ahead: int) -> float | None:
    """When a blocker goes away by itself for a task with so many of its line before it."""
    if blocker.code == "rate" and blocker.until is not None:
        rate = next(rate for rate in shape.rates if rate.key == blocker.name)
        return blocker.until + ahead // rate.rate * rate.per
    return blocker.until
