"""Why a ready task has not started: a stable code, a sentence, and what would help.

Asked of the planner, which knows what each line waits for; said in the words and units of whoever asks.
"""

from __future__ import annotations

import msgspec

from headway.core.constraints import holds, said
from headway.core.lifecycle import Lane
from headway.core.limits import Blocker
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.queue import LineKey, ReadyTask


class Explanation(msgspec.Struct, frozen=True):
    """Where a ready task stands."""

    code: str
    message: str
    helps: str
    """What would make it start."""
    ahead: int | None = None
    """How many of its own line start before it; None where that is not known."""
    held_by: int | None = None
    """How many hold the limit it waits for."""


def explain(planner: Planner, key: LineKey, task: ReadyTask) -> Explanation:
    """Why a ready task waits."""
    if planner.policy.paused:
        return Explanation("pool_paused", "the pool is paused", "resume it: headway pool resume")
    if key.tenant in planner.policy.paused_tenants:
        return Explanation("tenant_paused", "the tenant is paused", "an administrator resumes the tenant")
    if (name := planner.paused_name(key)) is not None:
        return Explanation("name_paused", f"the name {name!r} is paused", f"resume it: headway name resume {name!r}")
    if not planner.nodes.knows(key.shape):
        return Explanation("ready", "waits for its turn", "nothing to do: it was just accepted")
    shape = planner.nodes.shape(key.shape)
    if not planner.nodes.candidates(key.shape):
        return _nowhere(shape, list(planner.nodes.all()))
    line = planner.line(key)
    ahead = line.position(task) if line is not None and task.id in planner else None
    blocker = planner.blocker(line) if line is not None else None
    if blocker is not None:
        return msgspec.structs.replace(_parked(planner, shape, key, blocker), ahead=ahead)
    if key.lane == Lane.OFFPEAK and planner.peak.is_peak:
        used = f"{planner.peak.utilization:.0%}"
        return Explanation(
            "off_peak", f"waits for off-peak hours; the pool is {used} busy", "say off_peak: never", ahead
        )
    return Explanation("ready", "waits for its turn", "nothing to do: others are due before it", ahead)


def _parked(planner: Planner, shape: Shape, key: LineKey, blocker: Blocker) -> Explanation:
    match blocker.code:
        case "concurrency" if isinstance(blocker.what, tuple):
            name = str(blocker.what[1])
            held = planner.limits.holders(key.tenant, name)
            return Explanation(
                "concurrency", f"waits for key {name!r}; {held} hold it", "raise the limit", held_by=held
            )
        case "rate" if isinstance(blocker.what, tuple):
            return Explanation("rate", f"waits for the rate of key {str(blocker.what[1])!r}", "raise the rate")
        case "quota":
            return Explanation("quota", "the tenant's quota is used up", "an administrator raises the plan's quota")
        case _:
            return _no_room(planner, shape, key)


def _no_room(planner: Planner, shape: Shape, key: LineKey) -> Explanation:
    """The node that misses least, and what it misses."""
    rooms = planner.nodes.some_candidates(key.shape)
    nearest = min(rooms, key=lambda room: sum(_missing(shape, room).values()))
    missing = _missing(shape, nearest)
    if not missing:
        return Explanation("no_capacity", f"waits for room; {nearest.name} is kept or taken", "add nodes, or wait")
    needs = ", ".join(_amount(name, shape.needs[name]) for name in missing)
    free = ", ".join(_amount(name, max(nearest.free.get(name, 0), 0)) for name in missing)
    return Explanation("no_capacity", f"waits for {needs}; {free} free on {nearest.name}", "add nodes, or wait")


def _missing(shape: Shape, room: NodeRoom) -> dict[str, float]:
    """By resource, which part of the need is not free."""
    return {
        name: 1 - max(room.free.get(name, 0), 0) / amount
        for name, amount in shape.needs.items()
        if room.free.get(name, 0) < amount
    }


def _nowhere(shape: Shape, rooms: list[NodeRoom]) -> Explanation:
    """No node could ever run it as things are: says what the nodes lack."""
    if not rooms:
        return Explanation("no_node", "no node is connected", "start one: headway agent, or headway worker MODULE:app")
    able = [room for room in rooms if shape.kind in room.kinds]
    if shape.function is not None and not any(shape.function in room.functions for room in able):
        what = f"no connected worker offers {shape.function}"
        return Explanation("no_node", what, "start one that does: headway worker MODULE:app")
    if not able:
        return Explanation("no_node", f"no connected node runs a {shape.kind}", "start one: headway agent")
    for name, amount in shape.needs.items():
        largest = max(room.capacity.get(name, 0) for room in able)
        if largest < amount:
            what = f"needs {_amount(name, amount)}; the largest node has {_amount(name, largest)}"
            return Explanation("no_node", what, "ask for less, or add a larger node")
    for constraint in shape.constraints:
        if not any(holds(constraint, room.labels) for room in able):
            return Explanation("no_node", f"no node has {said(constraint)}", "label a node, or ask for less")
    return Explanation("no_node", "no node has all that it needs at once", "ask for less, or add a node that has")


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount / 1000:g} cpu"
    if name in ("memory", "disk"):
        return f"{amount / 2**20:g} MiB {name}"
    return f"{amount} {name}"
