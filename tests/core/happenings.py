"""Everything that can happen to a pool, as data: told to the planner and written down as facts, then judged.

Tasks and nodes are named by their place among those there are, so any sequence of happenings makes sense, whatever is
left out of it.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple, TypeVar

import msgspec

from headway.core.feedback import Feedback
from headway.core.feedback import Run as Pausable
from headway.core.lifecycle import Lane
from headway.core.nodes import Nodes
from headway.core.place import Placement
from headway.core.plan import Planner
from headway.core.policy import Policy
from headway.core.queue import LineKey, ReadyTask
from tests.core import judge
from tests.core.facts import EVERYTHING, MACHINES, SHAPES, Facts, Machine, Run, placed_one_by_one, room_of

CALM = Policy(history_weight=0.0)


class Submit(NamedTuple):
    """Some tasks become ready."""

    shape: int
    tenant: int = 1
    lane: Lane = Lane.NORMAL
    slack: float = 900.0
    cap: float = 10.0
    many: int = 1


class Finish(NamedTuple):
    """Some that run end; they may be tried again."""

    first: int
    many: int = 1
    again: bool = False


class Join(NamedTuple):
    """A node comes, or comes back with what it ran."""

    node: int
    machine: int


class Leave(NamedTuple):
    """A node's session ends; what it runs goes on."""

    node: int


class Lapse(NamedTuple):
    """What a node ran that is away is given up, and tried again."""

    node: int


class Resize(NamedTuple):
    """A node holds more or less beyond what fits."""

    node: int
    window: int


class Decree(NamedTuple):
    """An operator changes the policy."""

    field: str
    value: object


class Wait(NamedTuple):
    """Time passes."""

    seconds: float


class Cancel(NamedTuple):
    """Some that wait are cancelled."""

    first: int
    many: int = 1


class Learn(NamedTuple):
    """The body of a shape is read."""

    shape: int


class Tidy(NamedTuple):
    """What nobody needs is forgotten."""


class Pause(NamedTuple):
    """Others are paused for what is pressing, and wait again."""


class Round(NamedTuple):
    """The planner plans."""

    most: int = EVERYTHING
    reads: bool = True
    """Whether the shapes of new lines were read before."""


Thing = TypeVar("Thing")
Happening = (
    Submit | Finish | Join | Leave | Lapse | Resize | Decree | Wait | Cancel | Learn | Tidy | Pause | Round
)  # fmt: skip


class Pool:
    """A planner and the facts, side by side."""

    def __init__(self, policy: Policy = CALM) -> None:
        self.facts = Facts(policy)
        self.nodes = Nodes()
        self.planner = Planner(self.nodes, policy, running_on=self.facts.running_on)
        self.feedback = Feedback(self.nodes)
        self.plans: list[list[Placement]] = []
        self._machines: dict[int, Machine] = {}
        """What each node was when it was last there."""
        self._ids = count(1)

    def happen(self, one: Happening) -> None:
        """One thing happens."""
        match one:
            case Submit():
                self._submit(one)
            case Finish():
                for run in _some(list(self.facts.running.values()), one.first, one.many):
                    self._end(run, again=one.again)
            case Join():
                self._join(one)
            case Leave():
                if self.facts.machines.pop(one.node, None) is not None:
                    self.planner.leave(one.node, self.facts.now)
            case Lapse():
                for run in list(self.facts.running.values()):
                    if run.node == one.node and one.node not in self.facts.machines:
                        self._end(run, again=True)
            case Resize():
                self._resize(one)
            case Decree():
                self._decree(one)
            case Wait():
                self.facts.now += one.seconds
            case Cancel():
                gone = [task.id for _, task in _some(sorted(self.facts.waiting.values()), one.first, one.many)]
                self.planner.drop(gone)
                for task in gone:
                    del self.facts.waiting[task]
            case Learn():
                self._learn(one.shape)
            case Tidy():
                self._tidy()
            case Pause():
                self._pause()
            case Round():
                for line in self.planner.fresh_lines() if one.reads else ():
                    self._learn(line.key.shape)
                self.round(one.most)

    def round(self, most: int = EVERYTHING) -> list[Placement]:
        """The planner plans, and is judged."""
        before = self.planner.reservations.all()
        placed = self.planner.plan(self.facts.now, most=most)
        self.plans.append(placed)
        judge.starts(self.facts, self.planner, placed, before, most)
        for placement, task in placed_one_by_one(placed):
            if SHAPES[placement.key.shape].preemptible:
                self.feedback.began(Pausable(task.id, placement.key, placement.node, began=self.facts.now))
        if most >= EVERYTHING:
            judge.what_waits(self.facts, self.planner)
        judge.books(self.facts, self.planner)
        return placed

    def _submit(self, one: Submit) -> None:
        key = LineKey(one.tenant, one.lane, one.shape)
        ids = [next(self._ids) for _ in range(one.many)]
        start_by = self.facts.now + one.slack
        tasks = [ReadyTask(start_by + number // 4 / 1024, round(one.cap * 1000), number) for number in ids]
        self.facts.waiting.update({task.id: (key, task) for task in tasks})
        self._ask(key)
        self.planner.offer(key, tasks)

    def _end(self, run: Run, *, again: bool) -> None:
        del self.facts.running[run.task.id]
        self.feedback.ended(run.task.id)
        self.planner.ended(run.node, run.key, 1, self.facts.now, express=run.express)
        if again:
            self.facts.waiting[run.task.id] = (run.key, run.task)
            self.planner.offer(run.key, [run.task])

    def _join(self, one: Join) -> None:
        """As the leader does it: what the node runs is struck off while it is away, and adopted when it is back."""
        facts, machine = self.facts, MACHINES[one.machine]
        if facts.machines.pop(one.node, None) is not None:
            self.planner.leave(one.node, facts.now)
        brought = [run for run in facts.running.values() if run.node == one.node]
        if machine != self._machines.get(one.node):  # not what it was: whatever ran there is lost
            for run in brought:
                self._end(run, again=True)
            brought = []
        for run in brought:
            self.planner.ended(one.node, run.key, 1, facts.now, express=run.express)
        facts.machines[one.node] = self._machines[one.node] = machine
        self.planner.join(room_of(one.node, machine), facts.now)
        for run in brought:
            self._learn(run.key.shape)
            self.planner.adopt(one.node, run.key, 1, facts.now, express=run.express)

    def _resize(self, one: Resize) -> None:
        machine = self.facts.machines.get(one.node)
        if machine is not None and machine.windows:
            windows = {"function": one.window, "command": one.window}
            self.facts.machines[one.node] = self._machines[one.node] = machine._replace(windows=windows)
            self.planner.resize_window(one.node, dict(windows))

    def _decree(self, one: Decree) -> None:
        self.facts.policy = msgspec.structs.replace(self.facts.policy, **{one.field: one.value})
        self.planner.set_policy(self.facts.policy)

    def _learn(self, shape: int) -> None:
        if not self.nodes.knows(shape):
            self.nodes.learn(shape, SHAPES[shape])
            self.planner.learned(shape)
        for key in self.facts.heads():
            self._ask(key)

    def _ask(self, key: LineKey) -> None:
        for rate in SHAPES[key.shape].rates if self.nodes.knows(key.shape) else ():
            self.facts.asked.setdefault((key.tenant, rate), self.facts.now)

    def _tidy(self) -> None:
        running = {run.key.shape for run in self.facts.running.values()}
        self.planner.tidy(running, self.facts.now)

    def _pause(self) -> None:
        found = self.feedback.decide(self.planner.without_room(), self.facts.policy, self.facts.now)
        for preemption in found:
            self._end(self.facts.running[preemption.run.task], again=True)


def _some(those: list[Thing], first: int, count: int) -> list[Thing]:
    start = first % len(those) if those else 0
    return those[start : start + count]
