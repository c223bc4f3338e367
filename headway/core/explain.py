"""Why a ready task has not started: a stable code, a sentence, everything that blocks it as data, what would help.

Nothing here is remembered: each condition is looked at when it is said, so what is said is true at that moment. Two
things follow. Whoever takes the named condition away starts the task or changes the code; and to ask changes nothing,
neither what the planner decides next nor in which order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from headway.core.constraints import holds, said
from headway.core.lifecycle import Lane
from headway.core.limits import quota_room
from headway.core.peak import NEEDED_BY_ALL, in_use
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.quantity import amount_text
from headway.core.queue import Line, LineKey, ReadyTask

HOLDERS_MAX = 10
"""How many of those that hold a limit are named."""
NODES_LOOKED_AT = 200
ROOM = frozenset({"room", "kept"})
"""What a line waits for that a node would bring."""
Rooms = dict[int, tuple["Blocker", ...]]
"""Why a shape finds no room, as looked up before."""
Holders = Callable[[int, str], list[int]]
"""The tasks of a tenant that hold a concurrency key."""


class Blocker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that keeps a task from starting. Amounts are in the units people write."""

    code: str
    message: str
    helps: str
    """What would take it away."""
    name: str | None = None
    """Which resource, quota, key or constraint."""
    limit: float | None = None
    held: float | None = None
    """How much of the limit is in use."""
    holders: tuple[str, ...] = ()
    """Tasks that hold it, as many as are named."""
    needed: float | None = None
    free: float | None = None
    node: str | None = None
    """The node that comes nearest."""
    until: float | None = None
    """When it goes away by itself."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a ready task stands."""

    code: str
    message: str
    helps: tuple[str, ...]
    """What would make it start."""
    blockers: tuple[Blocker, ...] = ()
    """All that stands in the way, that which the code names first."""


class Position(msgspec.Struct, frozen=True):
    """How many start before a task if nothing new comes."""

    line: int
    """Of those that are just like it."""
    tenant: int
    """Of its tenant."""
    pool: int
    """Of all tenants, each getting its fair share meanwhile."""
    complete: bool
    """Whether all that waits was counted; if not, there are at least so many."""


TURN = Explanation(
    code="ready", message="waits for its turn", helps=("nothing to do: the planner comes to it as soon as it can",)
)


def no_holders(_: int, __: str) -> list[int]:
    """For who knows no task ids."""
    return []


def explain(
    planner: Planner,
    key: LineKey,
    task: ReadyTask,
    *,
    now: float,
    holders: Holders = no_holders,
    rooms: Rooms | None = None,
) -> Explanation:
    """Why a ready task waits, with all that blocks it. With `rooms`, what is looked up of nodes is kept there for the
    next task of the shape, and no more than NODES_LOOKED_AT are."""
    found = tuple(_blockers(planner, key, task, now, holders, rooms))
    if not found:
        return TURN
    helps = tuple(dict.fromkeys(blocker.helps for blocker in found))
    return Explanation(code=found[0].code, message=found[0].message, helps=helps, blockers=found)


def _blockers(
    planner: Planner, key: LineKey, task: ReadyTask, now: float, holders: Holders, rooms: Rooms | None
) -> Iterator[Blocker]:
    """What keeps a ready task from starting, most telling first."""
    if planner.policy.paused:
        yield Blocker(code="pool_paused", message="the pool is paused", helps="resume it: headway pool resume")
    if key.tenant in planner.policy.paused_tenants:
        yield Blocker(code="tenant_paused", message="the tenant is paused", helps="an administrator resumes the tenant")
    if (name := planner.paused_name(key)) is not None:
        helps = f"resume it: headway name resume {name!r}"
        yield Blocker(code="name_paused", message=f"the name {name!r} is paused", helps=helps, name=name)
    if not planner.nodes.knows(key.shape):
        return
    shape = planner.nodes.shape(key.shape)
    if not planner.nodes.candidates(key.shape):
        yield _nowhere(shape, list(planner.nodes.all()))
        return
    yield from _quotas(planner, key, shape, now)
    yield from _keys(planner, key, shape, holders)
    yield from _rates(planner, key, shape, now)
    is_pressing = task.start_by - now <= planner.policy.promotion_margin_seconds
    if key.lane == Lane.OFFPEAK and not is_pressing:
        yield from _peak(planner, key, shape, task)
    line = planner.line(key)
    stopped_by = planner.blocker(line) if line is not None else None
    if stopped_by is not None and stopped_by.code in ROOM:
        if rooms is None:
            yield from _no_room(planner, key, planner.nodes.candidates(key.shape), task, now)
        else:
            if key.shape not in rooms:
                some = planner.nodes.candidates(key.shape)[:NODES_LOOKED_AT]
                rooms[key.shape] = tuple(_no_room(planner, key, some, task, now))
            yield from rooms[key.shape]
    if (key.lane == Lane.URGENT or is_pressing) and planner.budget.is_used_up(key.tenant):
        yield _over_budget(planner, key.tenant)


def position(
    planner: Planner, key: LineKey, task: ReadyTask, *, now: float, behind: Callable[[LineKey], int]
) -> Position:
    """How many start before a ready task. `behind` says how many of a line wait beyond what is in memory."""
    pressing = ReadyTask(now + planner.policy.promotion_margin_seconds, 0, 0)
    rank = Lane.URGENT if task < pressing else key.lane
    own, earlier, complete = 0, 0, True
    rivals: Counter[tuple[str, int]] = Counter()
    for line in planner.lines():
        complete = complete and not behind(line.key)
        if line.parked is not None and line.parked.code not in ROOM and line.key != key:
            continue  # it hides nobody
        if line.key.tenant == key.tenant:
            own += line.position(task) if line.key.lane == rank else _ahead(line, task, rank, pressing)
            continue
        ahead = _ahead(line, task, rank, pressing)
        earlier += ahead
        if line.key.lane == rank != Lane.URGENT:
            rivals[_tier(planner, line.key), line.key.tenant] += len(line) - ahead
    mine, known = planner.line(key), task.id in planner
    like = mine.position(task) if mine is not None else 0
    pool = own + earlier + _in_turn(planner, _tier(planner, key), rivals, own + 1)
    return Position(like if known else like + behind(key), own, pool, complete and known)


def _ahead(line: Line, task: ReadyTask, rank: int, pressing: ReadyTask) -> int:
    """How many of a line come before a task by lane and deadline alone."""
    if line.key.lane < rank:
        return len(line)
    return line.position(min(task, pressing) if rank == Lane.URGENT != line.key.lane else pressing if rank else task)


def _in_turn(planner: Planner, tier: str, rivals: Counter[tuple[str, int]], turns: int) -> int:
    """How many others start while a tenant of some tier gets so many turns."""
    weight = planner.policy.weight
    return sum(min(waiting, round(turns * weight(other) / weight(tier))) for (other, _), waiting in rivals.items())


def _tier(planner: Planner, key: LineKey) -> str:
    return planner.nodes.shape(key.shape).tier if planner.nodes.knows(key.shape) else ""


def _quotas(planner: Planner, key: LineKey, shape: Shape, now: float) -> Iterator[Blocker]:
    quota = planner.policy.plan(key.tenant).quota
    if quota_room(quota, planner.usage.in_all(key.tenant), shape.needs, 1):
        return
    held = planner.usage.held(key.tenant, now)
    for name, bound in quota.items():
        each = 1 if name == "running" else shape.needs.get(name, 0)
        used = held.get(name, 0)
        if each > max(bound - used, 0):
            yield Blocker(
                code="quota",
                message=f"the tenant's quota is used up: {_in_use(name, used, bound)}",
                helps="wait for the tenant's own tasks to end, or an administrator raises the plan's quota",
                name=name,
                limit=plain(name, bound),
                held=plain(name, used),
                needed=plain(name, each),
            )


def _in_use(name: str, used: int, bound: int) -> str:
    if name == "running":
        return f"{used} of {bound} tasks run"
    return f"{amount_text(name, used)} of {amount(name, bound)} in use"


def _keys(planner: Planner, key: LineKey, shape: Shape, holders: Holders) -> Iterator[Blocker]:
    for limit in shape.concurrency:
        held = planner.limits.holders(key.tenant, limit.key)
        if held >= limit.limit:
            yield Blocker(
                code="concurrency",
                message=f"waits for key {limit.key!r}; {held} hold it, and {limit.limit} may",
                helps="wait for those that hold it, or submit with a higher limit",
                name=limit.key,
                limit=limit.limit,
                held=held,
                holders=tuple(str(task) for task in holders(key.tenant, limit.key)[:HOLDERS_MAX]),
            )


def _rates(planner: Planner, key: LineKey, shape: Shape, now: float) -> Iterator[Blocker]:
    for rate in shape.rates:
        at = planner.limits.opens_at(key.tenant, rate, now)
        if at is not None:
            yield Blocker(
                code="rate",
                message=f"waits for the rate of key {rate.key!r}: {rate.rate} in {rate.per:g} s have started",
                helps="wait, or submit with a higher rate",
                name=rate.key,
                limit=rate.rate,
                held=rate.rate,
                until=at,
            )


def _peak(planner: Planner, key: LineKey, shape: Shape, task: ReadyTask) -> Iterator[Blocker]:
    """Judged by what is in use now, as the next round will."""
    policy, used = planner.policy, in_use(planner.nodes.free, planner.nodes.capacity)
    ends = policy.peak_line - policy.peak_hysteresis
    if planner.deferral.is_let_go(planner.nodes.footprint(key.shape)):
        return
    needed = [(part, name) for name, part in used.items() if name == NEEDED_BY_ALL or name in shape.needs]
    busy = [one for one in needed if one[0] >= (ends if one[1] in planner.peak.busy else policy.peak_line)]
    if not busy:
        return
    part, name = max(busy)
    yield Blocker(
        code="off_peak",
        message=f"waits for off-peak hours: {part:.0%} of the pool's {name} is in use, and they begin below {ends:.0%}",
        helps="wait: it starts by its latest start in any case; or submit with off_peak: never",
        name=name,
        limit=policy.peak_line,
        held=round(part, 3),
        until=task.start_by - policy.promotion_margin_seconds,
    )


def _over_budget(planner: Planner, tenant: int) -> Blocker:
    share, used = planner.policy.plan(tenant).urgent_share, planner.usage.urgent_share(tenant)
    return Blocker(
        code="urgent_budget",
        message=f"the tenant's urgent tasks hold {used:.0%} of the pool, and {share:.0%} may go ahead of others",
        helps="declare less work urgent, or an administrator raises the plan's urgent share",
        limit=share,
        held=round(used, 3),
    )


def _no_room(
    planner: Planner, key: LineKey, rooms: list[NodeRoom], task: ReadyTask, now: float
) -> Iterator[Blocker]:  # fmt: skip
    """Why no node takes it now: kept for another one, or the node that misses least and what it misses."""
    shape, footprint = planner.nodes.shape(key.shape), planner.nodes.footprint(key.shape)
    if rooms and all(room.is_closed for room in rooms):
        what = f"{rooms[0].name} takes no tasks now" if len(rooms) == 1 else f"{len(rooms)} nodes take no tasks now"
        yield Blocker(
            code="nodes_closed",
            message=f"{what}: cordoned, drained, or in quarantine; no other could run it",
            helps="let one take tasks again: headway node uncordon NAME; or add a node",
            node=rooms[0].name,
        )
        return
    rooms = [room for room in rooms if not room.is_closed]
    roomy = [r for r in rooms if r.fitting(shape, 1) or (r.kept_for is None and r.window_left(shape))]
    nodes, due = planner.nodes, planner.pressing_due(key, task, now)
    if any(room.lets_in(footprint.number, task.cap_ms, now, due) or not nodes.is_kept_still(room) for room in roomy):
        return
    if roomy:
        room = min(roomy, key=lambda room: room.kept_from)
        yield Blocker(
            code="reserved",
            message=f"{room.name} has room and is kept for a wider task; only what ends before it starts may go there",
            helps="wait, or submit with an execution cap that ends before then",
            node=room.name,
            until=room.kept_from,
        )
        return
    nearest = min(rooms, key=lambda room: _distance(shape, room))
    missing = [name for name, need in shape.needs.items() if nearest.free.get(name, 0) < need]
    if not missing:
        yield Blocker(
            code="no_capacity",
            message=f"waits for room; {nearest.name} is taken by a task that runs alone"
            if not shape.exclusive
            else f"waits for a node of its own; {nearest.count} tasks run on {nearest.name}",
            helps="add nodes, or wait",
            node=nearest.name,
        )
    needs = ", ".join(amount(name, shape.needs[name]) for name in missing)
    free = ", ".join(amount(name, max(nearest.free.get(name, 0), 0)) for name in missing)
    for name in missing:
        yield Blocker(
            code="no_capacity",
            message=f"waits for {needs}; {free} free on {nearest.name}",
            helps="add nodes, or wait",
            name=name,
            needed=plain(name, shape.needs[name]),
            free=plain(name, max(nearest.free.get(name, 0), 0)),
            node=nearest.name,
        )


def _distance(shape: Shape, room: NodeRoom) -> float:
    """The parts of the need that are not free, together."""
    return sum(
        1 - max(room.free.get(name, 0), 0) / need for name, need in shape.needs.items() if room.free.get(name, 0) < need
    )


def _nowhere(shape: Shape, rooms: list[NodeRoom]) -> Blocker:
    """No node could ever run it as things are: says what the nodes lack."""
    if not rooms:
        return _no_node("no node is connected", "start one: headway agent, or headway worker MODULE:app")
    able = [room for room in rooms if shape.kind in room.kinds]
    if shape.function is not None and not any(shape.function in room.functions for room in able):
        what = f"no connected worker offers {shape.function}"
        return _no_node(what, "start one that does: headway worker MODULE:app", name=shape.function)
    if not able:
        return _no_node(f"no connected node runs a {shape.kind}", "start one: headway agent", name=shape.kind)
    if shape.function is None:
        enforcing = [room for room in able if shape.profile in room.profiles]
        if not enforcing:
            return _no_profile(shape.profile)
        able = enforcing
    for name, need in shape.needs.items():
        largest = max(able, key=lambda room: room.capacity.get(name, 0))
        most = largest.capacity.get(name, 0)
        if most < need:
            return Blocker(
                code="no_node",
                message=f"needs {amount(name, need)}; the largest node has {amount(name, most)}",
                helps="ask for less, or add a larger node",
                name=name,
                needed=plain(name, need),
                free=plain(name, most),
                node=largest.name,
            )
    for constraint in shape.constraints:
        if not any(holds(constraint, room.labels) for room in able):
            return _no_node(f"no node has {said(constraint)}", "label a node, or ask for less", name=constraint.label)
    return _no_node("no node has all that it needs at once", "ask for less, or add a node that has")


def _no_profile(profile: str) -> Blocker:
    """Fail closed: what has to be shut in does not run where it cannot be."""
    return Blocker(
        code="no_profile",
        message=f"no connected node can run it {profile}",
        helps=f"`headway doctor` on a node says what {profile} needs there; or, where that is allowed, submit with "
        "another profile: --profile trusted",
        name=profile,
    )


def _no_node(message: str, helps: str, *, name: str | None = None) -> Blocker:
    return Blocker(code="no_node", message=message, helps=helps, name=name)


def amount(name: str, value: int) -> str:
    """One amount in a sentence: `2 cpu`, `512Mi memory`."""
    return f"{amount_text(name, value)} {name}"


def plain(name: str, value: int) -> float:
    """One amount as it may be said in a submission: cpu in cores, sizes in bytes."""
    return value / 1000 if name == "cpu" else value
