"""Whether what a planner decided is right, by the facts alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from headway.core.explain import Blocker, explain
from headway.core.lifecycle import Lane
from headway.core.place import Placement
from headway.core.plan import Planner
from headway.core.queue import LineKey, ReadyTask
from headway.core.reservation import Reservation
from tests.core.facts import EVERYTHING, SHAPES, Facts, placed_one_by_one, rebuilt

HAIR = 1e-9
Keeps = dict[int, float]
"""The nodes that were kept when the round began, and when those must start that they are kept for, if that presses."""


def starts(facts: Facts, planner: Planner, placed: list[Placement], before: list[Reservation], most: int) -> None:
    """Carries out what was decided, one start after the other, and judges each at its moment. `before` is what was kept
    when the round began."""
    assert sum(len(placement.tasks) for placement in placed) <= most
    gone = {task.id for placement in placed for task in placement.tasks}
    passed = [(key, task) for key, task in _heads_without(facts, gone).items() if planner.nodes.knows(key.shape)]
    keeps = {one.node: _due(facts, planner, one) for one in before}
    facts.is_tight = not facts.could_wait_on() or (facts.is_tight and bool(planner.peak.busy))
    still = {one.node: one for one in planner.reservations.all() if one in before}
    for placement, task in placed_one_by_one(placed):
        _may_start(facts, placement, task)
        _is_let_in(facts, planner, keeps, still.get(placement.node), placement, task)
        _passes_nobody_that_presses(facts, keeps, placement, task, passed)
        _takes_its_turn(facts, keeps, placement, task, passed)
        facts.start(placement.key, task, placement.node, express=placement.express)


def _heads_without(facts: Facts, gone: set[int]) -> dict[LineKey, ReadyTask]:
    found: dict[LineKey, ReadyTask] = {}
    for key, task in facts.waiting.values():
        if task.id not in gone and (key not in found or task < found[key]):
            found[key] = task
    return found


def _may_start(facts: Facts, placement: Placement, task: ReadyTask) -> None:
    """No node and no limit is over-committed, and nothing overtakes its own line."""
    key, node, shape = placement.key, placement.node, SHAPES[placement.key.shape]
    assert facts.waiting.get(task.id) == (key, task), f"{task} does not wait"
    assert node in facts.machines, f"node {node} is away"
    assert (limit := facts.stopped_by(key, surely=True)) is None, f"{task} is stopped by {limit}"
    assert facts.has_room(shape, node) or facts.has_window(shape, node), f"node {node} is full"
    assert not placement.express or not facts.over_urgent_share(key.tenant), "the urgent share is used up"
    first = min(other for line, other in facts.waiting.values() if line == key)
    assert task == first, f"{task} overtakes {first} of its line"
    if key.lane == Lane.OFFPEAK and not facts.presses(task):
        is_off_peak = facts.utilization(shape) < facts.policy.peak_line + HAIR
        assert is_off_peak or facts.is_tight, "it is peak time"


def _is_let_in(
    facts: Facts, planner: Planner, keeps: Keeps, kept: Reservation | None, placement: Placement, task: ReadyTask
) -> None:
    """Whoever goes where a node is kept for others is gone by then."""
    if kept is None or planner.nodes.footprint(kept.key.shape) is planner.nodes.footprint(placement.key.shape):
        return
    is_gone = facts.now + task.cap_ms / 1000 <= kept.starts_by + HAIR
    assert is_gone or (placement.express and task.start_by < keeps[kept.node]), f"{task} outlasts {kept}"


def _due(facts: Facts, planner: Planner, kept: Reservation) -> float:
    """When the one that a node is kept for must start, if it presses."""
    nodes = planner.nodes
    heads = [
        (key, task)
        for key, task in facts.heads().items()
        if nodes.knows(key.shape) and nodes.footprint(key.shape) is nodes.footprint(kept.key.shape)
    ]
    return min((task.start_by for key, task in heads if _goes_ahead(facts, key, task)), default=math.inf)


def _goes_ahead(facts: Facts, key: LineKey, task: ReadyTask) -> bool:
    goes_first = key.lane == Lane.URGENT or facts.presses(task)
    return goes_first and not facts.over_urgent_share(key.tenant) and facts.stopped_by(key) is None


def _able(facts: Facts, keeps: Keeps, key: LineKey, due: float = math.inf) -> bool:
    """Whether the head of a line could start now: where nothing is kept, or kept for what is due later."""
    shape = SHAPES[key.shape]
    return facts.stopped_by(key) is None and any(
        facts.has_room(shape, node) and (node not in keeps or due < keeps[node]) for node in facts.machines
    )


def _passes_nobody_that_presses(
    facts: Facts, keeps: Keeps, placement: Placement, task: ReadyTask,
    passed: Iterable[tuple[LineKey, ReadyTask]],
) -> None:  # fmt: skip
    """No task waits past its promotion while a later one of its tenant starts."""
    for key, other in passed:
        if (
            key.tenant == placement.key.tenant
            and other.start_by < task.start_by
            and facts.presses(other)
            and not facts.over_urgent_share(key.tenant)
        ):
            assert not _able(facts, keeps, key, other.start_by), f"{task} passes {other} of {key}"


def _takes_its_turn(
    facts: Facts, keeps: Keeps, placement: Placement, task: ReadyTask,
    passed: Iterable[tuple[LineKey, ReadyTask]],
) -> None:  # fmt: skip
    """Of those who can start, nobody is passed who holds less: shares differ by one task at most."""
    if facts.policy.history_weight or placement.express or placement.key.lane != Lane.NORMAL:
        return
    if any(machine.windows for machine in facts.machines.values()):
        return
    tier, tenant = SHAPES[placement.key.shape].tier, placement.key.tenant
    mine, tiers = facts.tenant_share(tier, tenant), facts.tier_share(tier)
    for key, other in passed:
        if key.lane == Lane.OFFPEAK or not _able(facts, keeps, key):
            continue
        if SHAPES[key.shape].tier == tier:
            theirs = facts.tenant_share(tier, key.tenant)
            assert mine <= theirs + HAIR, f"{task} of tenant {tenant} ({mine}) passes {other} of {key} ({theirs})"
        else:
            theirs = facts.tier_share(SHAPES[key.shape].tier)
            assert tiers <= theirs + HAIR, f"{task} of tier {tier} ({tiers}) passes {other} of {key} ({theirs})"


def what_waits(facts: Facts, planner: Planner) -> None:
    """After a round without bound: nothing waits that could have started, and what is said of it is true."""
    nothing_more(facts, planner)
    kept = {one.node: one for one in planner.reservations.all()}
    for key, task in facts.heads().items():
        if not planner.nodes.knows(key.shape):
            continue
        said = explain(planner, key, task, now=facts.now)
        assert said.code != "ready" or facts.policy.paused, f"{task} of {key} waits for nothing"
        for blocker in said.blockers:
            _is_true(facts, planner, blocker, key, task)
        if said.code in ("no_capacity", "reserved"):
            _has_no_room(facts, planner, kept, key, task)


def _has_no_room(
    facts: Facts, planner: Planner, kept: dict[int, Reservation], key: LineKey, task: ReadyTask
) -> None:  # fmt: skip
    own = planner.nodes.footprint(key.shape)
    for node in facts.machines:
        one = kept.get(node)
        is_closed = one is not None and (
            planner.nodes.footprint(one.key.shape) is not own
            and facts.now + task.cap_ms / 1000 > one.starts_by
        )  # fmt: skip
        assert is_closed or not facts.has_room(SHAPES[key.shape], node), f"{task} of {key} has room on {node}"


def _is_true(facts: Facts, planner: Planner, said: Blocker, key: LineKey, task: ReadyTask) -> None:
    """A condition that is named holds."""
    shape, tenant, policy = SHAPES[key.shape], key.tenant, facts.policy
    match said.code:
        case "pool_paused":
            assert policy.paused
        case "tenant_paused":
            assert tenant in policy.paused_tenants
        case "name_paused":
            assert (tenant, said.name) in policy.paused_names
        case "no_node":
            assert not any(facts.could_run(shape, node) for node in facts.machines), said
        case "quota":
            assert said.name is not None
            need = 1 if said.name == "running" else shape.needs[said.name]
            assert facts.held(tenant)[said.name] + need > policy.plan(tenant).quota[said.name], said
        case "concurrency":
            assert said.held == facts.holders(tenant, said.name or "") >= (said.limit or 0), said
        case "rate":
            rate = next(rate for rate in shape.rates if rate.key == said.name)
            assert facts.recent(tenant, rate) >= rate.rate, said
            assert said.until is not None
            assert facts.now < said.until <= facts.now + rate.per, said
        case "off_peak":
            assert key.lane == Lane.OFFPEAK
            assert facts.utilization(shape) >= policy.peak_line - policy.peak_hysteresis - HAIR, said
        case "urgent_budget":
            assert facts.over_urgent_share(tenant), said
        case "no_capacity":
            assert not any(facts.has_room(shape, node) for node in facts.machines), said
            if said.name is not None:
                node = int((said.node or "")[1:])
                free = max(facts.free(node).get(said.name, 0), 0)
                assert math.isclose(said.free or 0.0, free / 1000 if said.name == "cpu" else free), said
        case "reserved":
            node = int((said.node or "")[1:])
            assert facts.has_room(shape, node) or facts.has_window(shape, node), said
            assert node in {one.node for one in planner.reservations.all()}, said
        case _:
            raise AssertionError(f"nobody knows {said.code}")


def books(facts: Facts, planner: Planner) -> None:
    """What the planner keeps is what it would keep had it been told everything just now."""
    assert len(planner) == len(facts.waiting)
    for key, task in facts.heads().items():
        line = planner.line(key)
        assert line is not None, f"{task} of {key} is forgotten"
        assert line.first == task, f"{line.first} stands before {task} in {key}"
        assert len(line) == sum(other == key for other, _ in facts.waiting.values())
    fresh = rebuilt(facts, deferral=planner.deferral)
    assert +Counter(planner.nodes.capacity) == +facts.capacity()
    assert _nothingless(planner.nodes.free) == _nothingless(fresh.nodes.free)
    assert {room.node for room in planner.nodes.all()} == facts.machines.keys()
    for room in planner.nodes.all():
        other = fresh.nodes.get(room.node)
        assert other is not None
        assert _nothingless(room.free) == _nothingless(facts.free(room.node)), room.name
        assert (room.count, +room.spread) == (other.count, +other.spread), room.name
    for tenant in {run.key.tenant for run in facts.running.values()}:
        held = planner.usage.held(tenant, facts.now)
        assert _nothingless(held) == _nothingless(facts.held(tenant)), f"tenant {tenant}"
        assert math.isclose(planner.usage.urgent_share(tenant), facts.urgent_share(tenant), abs_tol=HAIR)
        for name in ("k", "other"):
            assert planner.limits.holders(tenant, name) == facts.holders(tenant, name), name
    for tier in {SHAPES[run.key.shape].tier for run in facts.running.values()}:
        share = planner.usage.of_tier(tier, facts.now).share / facts.policy.weight(tier)
        assert math.isclose(share, facts.tier_share(tier), abs_tol=HAIR), tier


def nothing_more(facts: Facts, planner: Planner) -> None:
    """After a round without bound, a planner built from the facts finds nothing to start either."""
    if not len(planner.reservations):
        more = rebuilt(facts, deferral=planner.deferral).plan(facts.now, most=EVERYTHING)
        more = [one for one in more if planner.nodes.knows(one.key.shape)]
        assert not more, f"could have been started: {more}"


def _nothingless(vector: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in vector.items() if amount}
