"""What decides in a simulation: Headway's own core, or something it is compared with. All speak the planner's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headway.core.feedback import Feedback, Preemption, Run
from headway.core.lifecycle import Lane
from headway.core.nodes import Footprint, Nodes
from headway.core.place import Placement
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.policy import Policy
from headway.core.queue import LineKey, ReadyTask
from headway.core.reservation import Running

RunningOn = Callable[[int], Iterable[Running]]


class Brain(Protocol):
    """Decides which task starts next, and where."""

    nodes: Nodes

    def __len__(self) -> int:
        """How many tasks wait."""
        ...

    def join(self, room: NodeRoom, now: float) -> None:
        """A node is there."""
        ...

    def leave(self, node: int, now: float) -> None:
        """A node is gone."""
        ...

    def offer(self, key: LineKey, tasks: list[ReadyTask], now: float) -> None:
        """Tasks are ready."""
        ...

    def began(self, run: Run) -> None:
        """A preemptible task runs."""
        ...

    def ended(self, node: int, key: LineKey, task: int, now: float, *, express: bool) -> None:
        """A task does not run any more."""
        ...

    def adopt(self, node: int, key: LineKey, now: float) -> None:
        """A task holds room on a node that nobody decided about."""
        ...

    def plan(self, now: float) -> list[Placement]:
        """What starts now."""
        ...

    def pauses(self, now: float) -> list[Preemption]:
        """What is paused now, for what finds no room."""
        ...

    def presses(self, room: NodeRoom, shape: Shape, now: float) -> bool:
        """Whether something that may pause others waits for what a paused task would take."""
        ...

    def opens_at(self) -> float | None:
        """When to look again although nothing happened."""
        ...


class Headway:
    """The planner and the feedback that the leader of a pool runs."""

    def __init__(self, policy: Policy, running_on: RunningOn) -> None:
        self.nodes = Nodes()
        self.planner = Planner(self.nodes, policy, running_on=running_on)
        self.feedback = Feedback(self.nodes)
        self.join = self.planner.join
        self.leave = self.planner.leave
        self.began = self.feedback.began

    def __len__(self) -> int:
        return len(self.planner)

    def offer(self, key: LineKey, tasks: list[ReadyTask], now: float) -> None:
        """Tasks are ready."""
        self.planner.offer(key, tasks)

    def ended(self, node: int, key: LineKey, task: int, now: float, *, express: bool) -> None:
        """A task does not run any more."""
        if len(self.feedback):
            self.feedback.ended(task)
        self.planner.ended(node, key, 1, now, express=express)

    def adopt(self, node: int, key: LineKey, now: float) -> None:
        """A frozen task keeps its room, or goes on."""
        self.planner.adopt(node, key, 1, now, express=False)

    def plan(self, now: float) -> list[Placement]:
        """What starts now."""
        self.planner.fresh_lines()  # a leader reads their shapes from the database; all are known here
        return self.planner.plan(now, most=1 << 40)

    def pauses(self, now: float) -> list[Preemption]:
        """What is paused now, for what finds no room."""
        if not len(self.feedback):
            return []
        return self.feedback.decide(self.planner.without_room(), self.planner.policy, now)

    def presses(self, room: NodeRoom, shape: Shape, now: float) -> bool:
        """Whether something urgent waits for what a paused task would take: it comes first."""
        margin = self.planner.policy.promotion_margin_seconds
        return any(
            (line.key.lane == Lane.URGENT or line.first.start_by - margin <= now) and _may_go(footprint, room)
            for footprint, line in self.planner.without_room()
        )

    def opens_at(self) -> float | None:
        """When the next rate lets one through."""
        return self.planner.limits.next_opening()


def _may_go(footprint: Footprint, room: NodeRoom) -> bool:
    return room.could_run(footprint.shape)
