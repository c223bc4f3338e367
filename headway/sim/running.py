"""From a scenario and the name of a policy to what came of it."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.reservation import Running
from headway.sim.brain import Brain, Headway
from headway.sim.outcome import Outcome, outcome
from headway.sim.rivals import FairShare, Fifo, Priority
from headway.sim.simulation import Simulation
from headway.sim.world import World

RunningOn = Callable[[int], list[Running]]
POLICIES: dict[str, Callable[[World, RunningOn], Brain]] = {
    "headway": lambda world, running_on: Headway(world.policy, running_on),
    "fair-share": lambda world, running_on: FairShare(world.policy, running_on),
    "priority": lambda world, running_on: Priority(world.policy, running_on),
    "fifo": lambda world, running_on: Fifo(world.policy, running_on),
}
"""What can decide, by the name it is asked for."""


def simulation(world: World, policy: str, *, checks: bool = False) -> Simulation:
    """A simulation that has not begun."""
    make = POLICIES[policy]
    return Simulation(world, lambda running_on: make(world, running_on), checks=checks)


def simulate(world: World, policy: str = "headway", *, checks: bool = False) -> Outcome:
    """The whole simulation."""
    one = simulation(world, policy, checks=checks)
    one.run()
    return outcome(one, policy)
