"""What runs where: the leader's account of every attempt that a node owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.core.feedback import Feedback, Run
from headway.core.forecast import Flow
from headway.core.nodes import Nodes
from headway.core.placement import Shape
from headway.core.plan import Planner
from headway.core.queue import LineKey
from headway.core.reservation import Running
from headway.wire import Key

Task = tuple[int, int]
"""Tenant and id."""


class Holding(NamedTuple):
    """An attempt that a node owns."""

    attempt: int
    claims: int
    line: LineKey
    express: bool
    ends_by: float
    began: float | None = None
    """Of one that a node brought along: since when it runs; else it begins when it is entered."""
    ran_before: float = 0.0
    """Seconds that earlier attempts ran."""
    paused_before: int = 0
    """How often it was paused for others."""
    awake: LineKey | None = None
    """Of one that stands still: the line it holds room for when it goes on; `line` is then what it keeps."""


class Books:
    """Attempts by node and task; the planner hears of those that are struck off."""

    def __init__(self, nodes: Nodes, now: Callable[[], float]) -> None:
        self._known = nodes
        self._now = now
        self.flow = Flow()
        """How fast attempts come to their end."""
        self.feedback = Feedback(nodes)
        """What runs and may be paused."""
        self._nodes: dict[int, dict[Task, Holding]] = {}

    def __len__(self) -> int:
        return sum(len(holdings) for holdings in self._nodes.values())

    def clear(self) -> None:
        """Forgets all: the leadership begins anew."""
        self._nodes.clear()
        self.feedback = Feedback(self._known)

    def enter(self, node: int, task: Task, holding: Holding) -> None:
        """Notes an attempt whose room the planner has booked."""
        self._nodes.setdefault(node, {})[task] = holding
        if self._known.shape(holding.line.shape).preemptible:
            began = self._now() if holding.began is None else holding.began
            self.feedback.began(Run(
                task[1], holding.line, node, began=began, ran_before=holding.ran_before,
                paused_before=holding.paused_before,
            ))  # fmt: skip

    def running_on(self, node: int) -> list[Running]:
        """What occupies a node, and until when at the latest."""
        return [Running(one.ends_by, one.line.shape) for one in self._nodes.get(node, {}).values()]

    def holders(self, tenant: int, key: str, shape_of: Callable[[int], Shape]) -> list[int]:
        """The tasks of a tenant that hold a concurrency key, oldest first."""
        shapes = {n for n in self.shapes() if any(limit.key == key for limit in shape_of(n).concurrency)}
        return sorted(
            task
            for holdings in self._nodes.values()
            for (owner, task), one in holdings.items()
            if owner == tenant and one.line.shape in shapes
        )

    def shapes(self) -> set[int]:
        """The shapes of everything that runs."""
        holdings = [one for holdings in self._nodes.values() for one in holdings.values()]
        return {one.line.shape for one in holdings} | {one.awake.shape for one in holdings if one.awake is not None}

    def holding(self, node: int, tenant: int, task: int, attempt: int) -> Holding | None:
        """An attempt, if that node owns it."""
        holding = self._nodes.get(node, {}).get((tenant, task))
        return holding if holding is not None and holding.attempt == attempt else None

    def find(self, node: int, task: Task) -> Holding | None:
        """Whatever attempt of a task the node owns."""
        return self._nodes.get(node, {}).get(task)

    def keys(self, node: int) -> list[Key]:
        """Everything that a node owns."""
        return [Key(*task, one.attempt) for task, one in self._nodes.get(node, {}).items()]

    def works_for(self, node: int, tenant: int) -> bool:
        """Whether the node owns an attempt of the tenant."""
        return any(task[0] == tenant for task in self._nodes.get(node, {}))

    def stand(self, planner: Planner, node: int, task: Task, *, paused: int = 0) -> None:
        """An attempt stands still: others may have what it uses up by the second. `paused`: whether for their sake."""
        holding = self._nodes[node][task]
        if holding.awake is not None:
            return
        still = holding.line._replace(shape=self._known.standing(holding.line.shape))
        now = self._now()
        self._swap(planner, node, holding, still, now)
        run = self.feedback.ended(task[1])
        ran = holding.ran_before if run is None else run.ran(now)
        self._nodes[node][task] = holding._replace(
            line=still, awake=holding.line, ran_before=ran, paused_before=holding.paused_before + paused
        )

    def go_on(self, planner: Planner, node: int, task: Task) -> None:
        """An attempt that stood still has its room again."""
        holding = self._nodes[node][task]
        assert holding.awake is not None
        now = self._now()
        self._swap(planner, node, holding, holding.awake, now)
        self.enter(node, task, holding._replace(line=holding.awake, awake=None, began=now))

    def _swap(self, planner: Planner, node: int, holding: Holding, line: LineKey, now: float) -> None:
        planner.ended(node, holding.line, 1, now, express=holding.express)
        planner.adopt(node, line, 1, now, express=holding.express)

    def strike(self, planner: Planner, tasks: Iterable[tuple[int, int, int]], node: int) -> list[Holding | None]:
        """Removes (tenant, task, attempt) that the node owns and frees what they held; None for what was not there."""
        holdings = self._nodes.get(node, {})
        found: list[Holding | None] = []
        gone: Counter[tuple[LineKey, bool]] = Counter()
        for tenant, task, attempt in tasks:
            holding = holdings.get((tenant, task))
            if holding is None or holding.attempt != attempt:
                found.append(None)
                continue
            del holdings[tenant, task]
            self.feedback.ended(task)
            gone[holding.line, holding.express] += 1
            found.append(holding)
        now = self._now()
        for (line, express), count in gone.items():
            self.flow.ended(planner.nodes, line.shape, count)
            planner.ended(node, line, count, now, express=express)
        return found

    def strike_node(self, planner: Planner, node: int) -> None:
        """Forgets what a node owned."""
        now = self._now()
        holdings = self._nodes.pop(node, {})
        for _, task in holdings if len(self.feedback) else ():
            self.feedback.ended(task)
        gone = Counter((one.line, one.express) for one in holdings.values())
        for (line, express), count in gone.items():
            planner.ended(node, line, count, now, express=express)
