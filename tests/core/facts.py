"""A pool told twice: to the planner, and to the plainest account of the facts there is.

Whatever the planner decides is carried out here and judged by the facts alone, which are looked up anew each time:
nothing is remembered but what runs, what waits and what started when. Slow, short and hard to get wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from headway.core.constraints import Constraint, holds
from headway.core.deferral import LOOK_SECONDS, Deferral
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency, Rate
from headway.core.nodes import Nodes
from headway.core.place import Placement
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.policy import Policy
from headway.core.queue import LineKey, ReadyTask
from headway.core.reservation import Running

EVERYTHING = 1 << 20
_A_HAIR = 1e-9

SHAPES = [
    Shape("command", {"cpu": 500}, "basic"),
    Shape("command", {"cpu": 1500, "memory": 300}, "basic", preemptible=True),
    Shape("command", {"cpu": 4000}, "premium"),
    Shape("command", {"cpu": 500}, "premium"),
    Shape("function", {"workers": 1}, "basic", "shop:charge"),
    Shape("command", {"cpu": 300}, "basic", concurrency=(Concurrency("k", 2),)),
    Shape("command", {"cpu": 200}, "regular", concurrency=(Concurrency("k", 1),)),
    Shape("command", {"cpu": 300}, "basic", rates=(Rate("r", 2, 60.0),)),
    Shape("command", {"cpu": 100}, "basic", rates=(Rate("r", 1, 7.0),), concurrency=(Concurrency("other", 3),)),
    Shape("command", {"cpu": 700}, "regular", exclusive=True),
    Shape("command", {"cpu": 200}, "regular", spread="s"),
    Shape("command", {"cpu": 100}, "basic", constraints=(Constraint("zone", "=", ("b",)),)),
    Shape("command", {"cpu": 400, "gpu": 1}, "premium", preferred=(Constraint("zone", "=", ("b",)),)),
    Shape("command", {"cpu": 500}, "basic", hold=("encode",)),
    Shape("command", {"memory": 500}, "regular", preemptible=True),
]  # fmt: skip


class Machine(NamedTuple):
    """What a node is before anything runs there."""

    capacity: dict[str, int]
    windows: dict[str, int]
    labels: dict[str, str]


MACHINES = [
    Machine({"cpu": 1000, "memory": 600, "workers": 0}, {}, {}),
    Machine({"cpu": 4000, "memory": 1000, "workers": 1}, {}, {"zone": "b"}),
    Machine({"cpu": 2500, "memory": 400, "workers": 2, "gpu": 1}, {}, {"zone": "a"}),
    Machine({"cpu": 500, "memory": 0, "workers": 2}, {"function": 3, "command": 2}, {}),
    Machine({"cpu": 0, "memory": 2000, "workers": 0}, {}, {"zone": "b"}),
]


class Run(NamedTuple):
    """What runs, or ran on a node that is away."""

    node: int
    key: LineKey
    task: ReadyTask
    express: bool
    began: float


class Facts:
    """What is true of a pool."""

    def __init__(self, policy: Policy) -> None:
        self.now = 1000.0
        self.policy = policy
        self.machines: dict[int, Machine] = {}
        self.waiting: dict[int, tuple[LineKey, ReadyTask]] = {}
        self.running: dict[int, Run] = {}
        self.starts: list[tuple[float, int, str]] = []
        """When a task with a rate started, whose, and the key."""
        self.is_tight = False
        """Whether in this peak there once was more off-peak work than could wait on."""
        self.asked: dict[tuple[int, Rate], float] = {}
        """Since when somebody waits for a rate. One that is longer than the key had before counts from then."""

    # ── what there is ─────────────────────────────────────────────────────────────────────────────────────────────

    def heads(self) -> dict[LineKey, ReadyTask]:
        """The first of each line."""
        found: dict[LineKey, ReadyTask] = {}
        for key, task in self.waiting.values():
            if key not in found or task < found[key]:
                found[key] = task
        return found

    def running_on(self, node: int) -> list[Running]:
        """As the leader's books say it."""
        mine = (run for run in self.running.values() if run.node == node)
        return [Running(run.began + run.task.cap_ms / 1000, run.key.shape) for run in mine]

    def free(self, node: int) -> dict[str, int]:
        """What a node has left; below zero by what waits in its window."""
        free = dict(self.machines[node].capacity)
        for run in self.running.values():
            if run.node == node:
                for name, need in SHAPES[run.key.shape].needs.items():
                    free[name] = free.get(name, 0) - need
        return free

    def capacity(self) -> Counter[str]:
        """What all nodes have together."""
        total: Counter[str] = Counter()
        for machine in self.machines.values():
            total.update(machine.capacity)
        return total

    def all_free(self) -> Counter[str]:
        """What all nodes have free together."""
        free = Counter[str]()
        for node in self.machines:
            free.update(self.free(node))
        return free

    def utilization(self, shape: Shape) -> float:
        """How busy the busiest resource is that a shape needs; everybody needs cpu."""
        free, whole = self.all_free(), self.capacity()
        needed = [(name, amount) for name, amount in whole.items() if name == "cpu" or name in shape.needs]
        return max((1 - max(free[name], 0) / amount for name, amount in needed if amount > 0), default=0.0)

    def could_wait_on(self) -> bool:
        """Whether all off-peak work that waits could start at once beside what runs of others, and none is due."""
        offpeak = [(key, task) for key, task in self.waiting.values() if key.lane == Lane.OFFPEAK]
        room = self.all_free()
        for run in self.running.values():
            if run.key.lane == Lane.OFFPEAK:
                room.update(SHAPES[run.key.shape].needs)
        asked: Counter[str] = Counter()
        for key, _ in offpeak:
            asked.update(SHAPES[key.shape].needs)
        soon = self.now + self.policy.promotion_margin_seconds + 3 * LOOK_SECONDS
        return all(task.start_by > soon for _, task in offpeak) and all(
            amount <= room[name] for name, amount in asked.items()
        )

    def held(self, tenant: int) -> Counter[str]:
        """What a tenant holds, wherever."""
        total: Counter[str] = Counter()
        for run in self.running.values():
            if run.key.tenant == tenant:
                total["running"] += 1
                total.update(SHAPES[run.key.shape].needs)
        return total

    def share(self, runs: Iterator[Run]) -> float:
        """The dominant part of the pool that some runs hold."""
        total: Counter[str] = Counter()
        for run in runs:
            total.update(SHAPES[run.key.shape].needs)
        whole = self.capacity()
        return max((amount / whole[name] for name, amount in total.items() if whole[name] > 0), default=0.0)

    def urgent_share(self, tenant: int) -> float:
        """What a tenant's urgent tasks hold."""
        return self.share(run for run in self.running.values() if run.key.tenant == tenant and run.express)

    def tenant_share(self, tier: str, tenant: int) -> float:
        """What a tenant holds in a tier."""
        mine = (r for r in self.running.values() if r.key.tenant == tenant and SHAPES[r.key.shape].tier == tier)
        return self.share(mine)

    def tier_share(self, tier: str) -> float:
        """What a tier holds, by its weight."""
        mine = (run for run in self.running.values() if SHAPES[run.key.shape].tier == tier)
        return self.share(mine) / self.policy.weight(tier)

    def holders(self, tenant: int, key: str) -> int:
        """How many hold a key."""
        return sum(
            run.key.tenant == tenant and any(limit.key == key for limit in SHAPES[run.key.shape].concurrency)
            for run in self.running.values()
        )

    def recent(self, tenant: int, rate: Rate, *, surely: bool = False) -> int:
        """How many starts a rate counts now; surely, those since somebody asked for it."""
        since = max(self.now - rate.per, self.asked.get((tenant, rate), self.now) - _A_HAIR if surely else 0.0)
        return sum((owner, key) == (tenant, rate.key) and at > since for at, owner, key in self.starts)

    # ── what may be ───────────────────────────────────────────────────────────────────────────────────────────────

    def could_run(self, shape: Shape, node: int) -> bool:
        """Whether the node could run it were it idle."""
        machine = self.machines[node]
        return all(machine.capacity.get(name, 0) >= need for name, need in shape.needs.items()) and all(
            holds(one, machine.labels) for one in shape.constraints
        )

    def has_room(self, shape: Shape, node: int) -> bool:
        """Whether one would start there at once."""
        beside = [SHAPES[run.key.shape] for run in self.running.values() if run.node == node]
        if any(one.exclusive for one in beside) or (shape.exclusive and beside):
            return False
        free = self.free(node)
        return self.could_run(shape, node) and all(free.get(name, 0) >= need for name, need in shape.needs.items())

    def has_window(self, shape: Shape, node: int) -> bool:
        """Whether the node may hold one more for later."""
        window = self.machines[node].windows.get(shape.kind, 0)
        free = self.free(node)
        return (
            self.could_run(shape, node)
            and window > 0
            and all(free.get(name, 0) - need >= -window * need for name, need in shape.needs.items())
        )

    def stopped_by(self, key: LineKey, *, surely: bool = False) -> str | None:
        """The pause or limit that keeps one task more of a line from starting."""
        shape, policy, tenant = SHAPES[key.shape], self.policy, key.tenant
        if policy.paused:
            return "pool_paused"
        if tenant in policy.paused_tenants:
            return "tenant_paused"
        if any((tenant, name) in policy.paused_names for name in shape.hold):
            return "name_paused"
        held = self.held(tenant)
        for name, bound in policy.plan(tenant).quota.items():
            need = 1 if name == "running" else shape.needs.get(name, 0)
            if need and held[name] + need > bound:
                return "quota"
        if any(self.holders(tenant, limit.key) >= limit.limit for limit in shape.concurrency):
            return "concurrency"
        if any(self.recent(tenant, rate, surely=surely) >= rate.rate for rate in shape.rates):
            return "rate"
        return None

    def presses(self, task: ReadyTask) -> bool:
        """Whether its slack has shrunk to the margin."""
        return task.start_by - self.policy.promotion_margin_seconds <= self.now

    def over_urgent_share(self, tenant: int) -> bool:
        """Whether the tenant's urgent tasks have all that may go ahead of others."""
        return self.urgent_share(tenant) >= self.policy.plan(tenant).urgent_share - _A_HAIR

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, key: LineKey, task: ReadyTask, node: int, *, express: bool) -> None:
        """A task starts."""
        assert self.waiting.pop(task.id) == (key, task), "only what waits is started"
        self.running[task.id] = Run(node, key, task, express, self.now)
        self.starts += [(self.now, key.tenant, rate.key) for rate in SHAPES[key.shape].rates]


def room_of(number: int, machine: Machine) -> NodeRoom:
    """A node as it says hello."""
    return NodeRoom(
        number, f"n{number}", capacity=dict(machine.capacity), kinds=["command", "function"],
        functions=["shop:charge"], windows=dict(machine.windows), labels=machine.labels,
    )  # fmt: skip


def rebuilt(facts: Facts, *, deferral: Deferral) -> Planner:
    """A planner that is told all the facts at once, none of how they came to be; of the peak, how it was left."""
    nodes = Nodes()
    planner = Planner(nodes, facts.policy, running_on=facts.running_on)
    planner.deferral.as_of(deferral)
    for number, shape in enumerate(SHAPES):
        nodes.learn(number, shape)
    for number, machine in facts.machines.items():
        planner.join(room_of(number, machine._replace(windows={})), facts.now)
    for run in facts.running.values():
        planner.adopt(run.node, run.key, 1, facts.now, express=run.express)
    for at, tenant, key in facts.starts:
        planner.limits.take(tenant, (), (Rate(key, 1, 60.0),), 1, at)
    for key, task in sorted(facts.waiting.values(), key=lambda one: one[1]):
        planner.offer(key, [task])
    return planner


def placed_one_by_one(placed: list[Placement]) -> Iterator[tuple[Placement, ReadyTask]]:
    """Every start by itself, in the order they were decided."""
    for placement in placed:
        for task in placement.tasks:
            yield placement, task
