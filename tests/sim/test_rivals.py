"""What Headway is compared with does well what it stands for; and what is simulated of Headway, its planner decides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headway.scheduler.books
import headway.scheduler.leader
import headway.sim.brain
from headway.core.feedback import Feedback
from headway.core.place import Placement
from headway.core.plan import Planner
from headway.sim.brain import Headway
from headway.sim.rivals import Rival
from headway.sim.running import POLICIES, RunningOn
from headway.sim.simulation import Simulation
from tests.sim.scenarios import a_world, row, simulated

CROWDED = """
    name: crowded
    horizon: 20m
    failures: {mean_time_between: 20m, repair: 1m}
    nodes: [{count: 3, resources: {cpu: 4, memory: 8Gi}}]
    tenants:
      - name: heavy
        work:
          - name: flood
            arrive: {kind: once, size: 300}
            duration: {kind: lognormal, median: 20s, sigma: 0.8, most: 2m}
            execution_cap: 3m
            delay_tolerance: 20m
            resources: {cpu: 1, memory: 1Gi}
          - name: one-at-a-time
            arrive: {kind: once, size: 10}
            duration: {kind: fixed, seconds: 10s}
            execution_cap: 20s
            resources: {cpu: 1, memory: 1Gi}
            concurrency: [{key: database, limit: 1}]
      - name: light
        quota: {running: 2}
        work:
          - name: now-and-then
            arrive: {kind: poisson, rate: 10 per minute}
            duration: {kind: fixed, seconds: 5s}
            delay_tolerance: 10m
            execution_cap: 10s
            resources: {cpu: 1, memory: 1Gi}
      - name: wide
        work:
          - name: whole-node
            arrive: {kind: once, size: 3}
            duration: {kind: fixed, seconds: 30s}
            delay_tolerance: 20m
            execution_cap: 1m
            resources: {cpu: 4, memory: 4Gi}
"""
RIVALS = sorted(set(POLICIES) - {"headway"})


@pytest.mark.parametrize("policy", RIVALS)
def test_no_rival_over_commits_or_forgets_anything(policy: str):
    found = simulated(CROWDED, policy)
    assert found.started == found.arrived
    assert row(found, "heavy").lost > 0


def test_each_decides_by_what_it_is_named_for():
    waits = {policy: row(simulated(CROWDED, policy), "light").wait.mean for policy in POLICIES}
    assert waits["fifo"] > 20 * waits["fair-share"]
    assert waits["priority"] > 20 * waits["fair-share"]  # of one class, who came first goes first
    assert waits["fair-share"] < 10


def test_what_is_urgent_goes_first_by_priority_and_does_not_by_arrival():
    text = CROWDED.replace("delay_tolerance: 10m", "delay_tolerance: 1s")
    waits = {policy: row(simulated(text, policy), "light", "urgent").wait.mean for policy in ("fifo", "priority")}
    assert waits["fifo"] > 10 * waits["priority"]


def test_backfill_keeps_a_node_for_what_is_wide():
    waits = {policy: row(simulated(CROWDED, policy), "wide").wait.most for policy in ("fifo", "fair-share")}
    assert waits["fair-share"] < waits["fifo"] / 2


@pytest.mark.parametrize("policy", RIVALS)
def test_who_comes_first_among_equals_starts_first(policy: str):
    starts: list[int] = []

    def watched(running_on: RunningOn) -> Rival:
        brain = POLICIES[policy](world, running_on)
        assert isinstance(brain, Rival)
        decide = brain.plan

        def plan(now: float) -> list[Placement]:
            placed = decide(now)
            starts.extend(task.id for one in placed for task in one.tasks)
            return placed

        brain.plan = plan
        return brain

    world = a_world(
        """
        name: equals
        horizon: 1m
        nodes: [{count: 1, resources: {cpu: 2, memory: 8Gi}}]
        tenants:
          - name: one
            work:
              - name: same
                arrive: {kind: poisson, rate: 3 per second}
                duration: {kind: exponential, mean: 1s}
                resources: {cpu: 1, memory: 1Gi}
        """
    )
    Simulation(world, watched).run()
    assert len(starts) > 100
    assert starts == sorted(starts)


# ── the same core ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_leader_and_simulator_speak_to_the_planner_by_the_same_entry_points():
    def entries(*files: Path) -> set[str]:
        return {"".join(name) for file in files for name in re.findall(r"planner\.(\w+)|\.(offer)\(", file.read_text())}

    leader = entries(*Path(headway.scheduler.__path__[0]).glob("*.py"))
    simulator = entries(Path(headway.sim.brain.__file__))
    assert {"offer", "plan", "join", "leave", "ended", "adopt", "without_room"} <= simulator & leader
    assert simulator - leader <= {"limits"}  # when a rate opens: the leader asks every quarter of a second instead


def test_leader_and_simulator_are_decided_for_by_the_same_planner_and_the_same_feedback():
    world = a_world(CROWDED)
    decided = Simulation(world, lambda running_on: Headway(world.policy, running_on)).brain
    assert isinstance(decided, Headway)
    assert type(decided.planner) is Planner is vars(headway.scheduler.leader)["Planner"]
    assert type(decided.feedback) is Feedback is vars(headway.scheduler.books)["Feedback"]
    assert decided.plan.__func__.__code__.co_names == ("planner", "fresh_lines", "plan")  # and adds nothing
