"""Feedback from what runs: levels, and who is paused so that something more pressing can start.

A running preemptible task sinks a level with each quantum it uses up (10 s, then 60 s, then 600 s), over all its
attempts. When a task that is urgent, or would run short, finds no room for a while, the deepest of them is paused, of
those equally deep the one that loses least since its last checkpoint: frozen where its memory can stay, else asked to
write a checkpoint and leave. A least run, a budget for each task and one for the pool keep it from becoming a habit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from headway.core.lifecycle import Lane
from headway.core.nodes import LOOK_AT, Footprint, Nodes
from headway.core.placement import NodeRoom, Shape, ceded
from headway.core.policy import Policy
from headway.core.queue import Line, LineKey
from headway.core.resources import fits, give

VICTIMS_MAX = 8
"""More than this many are not paused for one task."""


class Run:
    """A running task that may be paused."""

    __slots__ = ("began", "checkpoint_at", "is_leaving", "key", "node", "paused_before", "ran_before", "task")

    def __init__(
        self, task: int, key: LineKey, node: int, *, began: float, ran_before: float = 0.0, paused_before: int = 0
    ) -> None:
        self.task = task
        self.key = key
        self.node = node
        self.began = began
        self.ran_before = ran_before
        self.paused_before = paused_before
        self.checkpoint_at = began
        """Until when its work is safe."""
        self.is_leaving = False

    def ran(self, now: float) -> float:
        """Seconds it has run, earlier attempts included."""
        return self.ran_before + now - self.began


class Preemption(NamedTuple):
    """A decision to pause a task, and why."""

    run: Run
    how: Literal["freeze", "checkpoint"]
    level: int
    beneficiary: LineKey
    code: Literal["urgent", "short"]
    message: str


class Feedback:
    """What runs and may be paused, and how much pausing there has been."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._runs: dict[int, dict[int, Run]] = {}
        self._where: dict[int, int] = {}
        self._cursor = 0
        self._expected: dict[int, tuple[float, set[int]]] = {}
        """Footprints that somebody was paused for, until when those are waited for, and who of them has not left."""
        self._spent = 0.0
        self._spent_at = 0.0

    def __len__(self) -> int:
        return len(self._where)

    def began(self, run: Run) -> None:
        """A preemptible task runs."""
        self._runs.setdefault(run.node, {})[run.task] = run
        self._where[run.task] = run.node

    def ended(self, task: int) -> Run | None:
        """It ended or was paused."""
        node = self._where.pop(task, None)
        if node is None:
            return None
        runs = self._runs[node]
        run = runs.pop(task)
        if not runs:
            del self._runs[node]
        if run.is_leaving:
            self._left(task)
        return run

    def _left(self, task: int) -> None:
        """One who was paused is gone; with the last of them nobody is waited for any more."""
        for footprint, (_, leaving) in self._expected.items():
            leaving.discard(task)
            if not leaving:
                del self._expected[footprint]
                return

    def run(self, task: int) -> Run | None:
        """A running preemptible task."""
        node = self._where.get(task)
        return self._runs[node][task] if node is not None else None

    def decide(self, waiting: Iterable[tuple[Footprint, Line]], policy: Policy, now: float) -> list[Preemption]:
        """Whom to pause, for those that found no room: the first line of each closed footprint."""
        self._fade(policy, now)
        found: list[Preemption] = []
        for footprint, line in waiting if self._where else ():
            if self._spent >= policy.preemptions_per_minute:
                break
            code = deserves(footprint, line, policy, now)
            if code is None or self._is_expected(footprint, now):
                continue
            chosen = self._choose(footprint, line, policy, now, code)
            if chosen:
                leaving = {preemption.run.task for preemption in chosen}
                self._expected[footprint.number] = (now + policy.preempt_patience_seconds, leaving)
                self._spent += len(chosen)
                found += chosen
        return found

    def _is_expected(self, footprint: Footprint, now: float) -> bool:
        """Whether those who were paused for it are still to leave."""
        expected = self._expected.get(footprint.number)
        return expected is not None and expected[0] > now

    def _choose(
        self, footprint: Footprint, line: Line, policy: Policy, now: float, code: Literal["urgent", "short"]
    ) -> list[Preemption]:
        """On the node where it costs least: few, deep ones, with little to lose."""
        best: tuple[tuple[int, int, float], list[Run], bool] | None = None
        for room in self._some_nodes(footprint.shape):
            for freezes in (True, False):
                runs = self._enough(room, footprint.shape, policy, now, freezes=freezes)
                if runs:
                    cost = _cost(runs, policy, now, freezes=freezes)
                    if best is None or cost < best[0]:
                        best = (cost, runs, freezes)
        if best is None:
            return []
        _, runs, freezes = best
        return [_preemption(run, line.key, policy, now, code, freezes=freezes) for run in runs]

    def _enough(self, room: NodeRoom, shape: Shape, policy: Policy, now: float, *, freezes: bool) -> list[Run]:
        """The runs of a node to pause so that the shape fits, deepest first; none when it cannot be done."""
        able = [
            run for run in self._runs[room.node].values()
            if _may_be_paused(run, policy, now) and _gives_room(self._nodes.shape(run.key.shape), freezes=freezes)
        ]  # fmt: skip
        able.sort(key=lambda run: (-level(run.ran(now), policy), now - run.checkpoint_at, run.task))
        free, chosen = dict(room.free), list[Run]()
        for run in able[:VICTIMS_MAX]:
            needs = self._nodes.shape(run.key.shape).needs
            give(free, ceded(needs) if freezes else needs)
            chosen.append(run)
            if fits(shape.needs, free):
                return chosen
        return []

    def _some_nodes(self, shape: Shape) -> list[NodeRoom]:
        """A bounded number of nodes that run something preemptible and could run the shape; others each time."""
        numbers = list(self._runs)
        found: list[NodeRoom] = []
        for step in range(min(len(numbers), 8 * LOOK_AT)):
            room = self._nodes.get(numbers[(self._cursor + step) % len(numbers)])
            if room is not None and not room.is_closed and room.kept_for is None and room.could_run(shape):
                found.append(room)
                if len(found) == LOOK_AT:
                    break
        self._cursor += LOOK_AT
        return found

    def _fade(self, policy: Policy, now: float) -> None:
        """What was spent of the pool's budget comes back evenly over a minute."""
        self._spent = max(self._spent - (now - self._spent_at) * policy.preemptions_per_minute / 60.0, 0.0)
        self._spent_at = now


def level(ran_seconds: float, policy: Policy) -> int:
    """How many quanta a task has used up."""
    number = 0
    for quantum in policy.quanta_seconds:
        if ran_seconds < quantum:
            break
        ran_seconds -= quantum
        number += 1
    return number


def deserves(footprint: Footprint, line: Line, policy: Policy, now: float) -> Literal["urgent", "short"] | None:
    """Whether others may be paused for the head of a line, and as what it deserves that."""
    if footprint.closed_at is None:
        return None
    head, has_waited = line.first, now - footprint.closed_at >= policy.preempt_after_seconds
    if line.key.lane == Lane.URGENT or head.start_by - policy.promotion_margin_seconds <= now:
        return "urgent" if has_waited or head.start_by - policy.preempt_after_seconds / 2 <= now else None
    is_short = line.key.lane != Lane.OFFPEAK and head.cap_ms <= policy.quanta_seconds[0] * 1000
    return "short" if is_short and has_waited else None


def _may_be_paused(run: Run, policy: Policy, now: float) -> bool:
    return (
        not run.is_leaving
        and now - run.began >= policy.least_run_seconds
        and run.paused_before < policy.preemptions_per_task
    )


def _gives_room(shape: Shape, *, freezes: bool) -> bool:
    """Whether others have something of it when it is paused so; of an exclusive one not before it leaves."""
    return not shape.exclusive if freezes else not shape.frozen_only


def _cost(runs: list[Run], policy: Policy, now: float, *, freezes: bool) -> tuple[int, int, float]:
    shallowest = min(level(run.ran(now), policy) for run in runs)
    lost = 0.0 if freezes else sum(now - run.checkpoint_at for run in runs)
    return len(runs), -shallowest, lost


def _preemption(
    run: Run, beneficiary: LineKey, policy: Policy, now: float, code: Literal["urgent", "short"], *, freezes: bool
) -> Preemption:
    run.is_leaving = True
    how = "freeze" if freezes else "checkpoint"
    depth = level(run.ran(now), policy)
    message = f"paused ({how}) at level {depth} after {run.ran(now):.0f} s, for {code} work that found no room"
    return Preemption(run, how, depth, beneficiary, code, message)
