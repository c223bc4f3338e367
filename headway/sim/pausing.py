"""Carries out what the feedback decides: frozen tasks stay in memory and go on when there is room; others write a
checkpoint, leave, and wait for another node.

A frozen task goes on ahead of whatever else waits, for it holds memory meanwhile; only what could have paused it comes
first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from headway.core.feedback import Preemption
from headway.core.placement import STAYS, Shape, number_of
from headway.core.queue import LineKey
from headway.core.resources import fits
from headway.sim.task import Run, Task

if TYPE_CHECKING:
    from headway.sim.simulation import Simulation

CHECKPOINT_SECONDS = 2.0
"""How long a task takes to write its checkpoint and leave."""


class Pausing:
    """The paused tasks of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.frozen = 0
        self._on_node: dict[int, deque[Task]] = {}
        self._kept_by: dict[int, tuple[LineKey, Shape]] = {}
        self._made_room = False

    def carry_out(self, preemption: Preemption) -> None:
        """A task is paused."""
        simulation = self._simulation
        run = simulation.on_node[preemption.run.node][preemption.run.task]
        run.task.paused += 1
        if preemption.how == "freeze":
            simulation.measures.freezes += 1
            self._freeze(run)
        else:
            simulation.measures.checkpoints += 1
            simulation.at(simulation.now + CHECKPOINT_SECONDS, lambda: self._leave(run))

    def has_made_room(self) -> bool:
        """Whether somebody was frozen since this was last asked."""
        made, self._made_room = self._made_room, False
        return made

    def resume(self) -> None:
        """Lets those go on for whom there is room again."""
        simulation = self._simulation
        for node, tasks in list(self._on_node.items()):
            room = simulation.brain.nodes.get(node)
            assert room is not None
            for _ in range(len(tasks)):
                task = tasks[0]
                shape = task.account.stream.shape
                gone = {name: need for name, need in shape.needs.items() if name not in STAYS}
                if not fits(gone, room.free) or simulation.brain.presses(room, shape, simulation.now):
                    break
                tasks.popleft()
                self._thaw(task, node)
            if not tasks:
                del self._on_node[node]

    def lose(self, node: int) -> None:
        """A node died, with those that were frozen on it."""
        simulation = self._simulation
        for task in self._on_node.pop(node, ()):
            self.frozen -= 1
            simulation.brain.ended(node, self._kept(task)[0], task.id, simulation.now, express=False)
            simulation.lose_task(task)

    def kept(self, node: int) -> list[Shape]:
        """What frozen tasks hold on a node."""
        return [self._kept(task)[1] for task in self._on_node.get(node, ())]

    def _freeze(self, run: Run) -> None:
        simulation, task = self._simulation, run.task
        simulation.stop(run)
        task.left -= simulation.now - run.began
        task.cap_left -= simulation.now - run.began
        simulation.brain.adopt(run.node, self._kept(task)[0], simulation.now)
        self._on_node.setdefault(run.node, deque()).append(task)
        self.frozen += 1
        self._made_room = True

    def _thaw(self, task: Task, node: int) -> None:
        simulation, now = self._simulation, self._simulation.now
        self.frozen -= 1
        simulation.brain.ended(node, self._kept(task)[0], task.id, now, express=False)
        simulation.brain.adopt(node, task.account.stream.key, now)
        simulation.measures.resumed(task.account, now)
        simulation.launch(Run(task, node, now, express=False))

    def _leave(self, run: Run) -> None:
        """It has written its checkpoint; any node may go on with it, with as long a wait as it tolerated before."""
        if run.is_over:
            return
        simulation, task = self._simulation, run.task
        simulation.stop(run)
        task.left -= simulation.now - run.began
        task.cap_left = task.cap_ms / 1000
        simulation.offer_again(task, simulation.now + task.account.stream.tolerance)

    def _kept(self, task: Task) -> tuple[LineKey, Shape]:
        """What a frozen task is to the planner: something that needs what stays."""
        stream = task.account.stream
        known = self._kept_by.get(stream.number)
        if known is None:
            needs = {name: need for name, need in stream.shape.needs.items() if name in STAYS}
            shape = msgspec.structs.replace(stream.shape, needs=needs, preemptible=False, rates=())
            key = LineKey(stream.tenant, stream.lane, number_of(shape)[0])
            self._simulation.brain.nodes.learn(key.shape, shape)
            known = self._kept_by[stream.number] = (key, shape)
        return known
