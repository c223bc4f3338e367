"""The simulator: the core under a virtual clock, deterministic, and never more on a node than it has."""

from __future__ import annotations

import msgspec
import pytest

from headway.sim.histogram import Histogram
from headway.sim.running import simulate
from tests.sim.scenarios import an_example, row, simulated

NOISY = """
    name: noisy
    horizon: 10m
    nodes: [{count: 2, resources: {cpu: 4, memory: 16Gi}}]
    tenants:
      - name: noisy
        work:
          - name: flood
            arrive: {kind: once, size: 2000}
            duration: {kind: uniform, least: 1s, most: 9s}
            delay_tolerance: 2h
            execution_cap: 1m
            resources: {cpu: 1, memory: 1Gi}
      - name: quiet
        work:
          - name: now-and-then
            arrive: {kind: poisson, rate: 6 per minute}
            duration: {kind: fixed, seconds: 2s}
            delay_tolerance: 1m
            execution_cap: 1m
            resources: {cpu: 1, memory: 1Gi}
"""


def test_the_same_seed_gives_the_same_outcome_and_another_one_another():
    first, again = (msgspec.json.encode(simulate(an_example("quick"))) for _ in range(2))
    assert first == again
    assert msgspec.json.encode(simulate(an_example("quick", seed=2))) != first


def test_a_noisy_neighbour_delays_a_quiet_tenant_by_a_round_and_the_shortest_remainder():
    quiet = row(simulated(NOISY), "quiet")
    assert quiet.started > 40
    assert quiet.wait.p99 <= 2.0  # eight slots that end within 9 s each: some slot is free within a second or two


def test_nothing_is_over_committed_at_any_moment_of_a_crowded_pool_with_failing_nodes():
    found = simulated(
        """
        name: crowded
        horizon: 1h
        failures: {mean_time_between: 20m, repair: 2m}
        nodes: [{count: 6, resources: {cpu: 4, memory: 8Gi}}]
        tenants:
          - name: long
            work:
              - name: train
                arrive: {kind: poisson, rate: 6 per minute}
                duration: {kind: lognormal, median: 3m, sigma: 1}
                execution_cap: 1h
                delay_tolerance: 1h
                resources: {cpu: 2, memory: 1Gi}
                preemptible: true
                checkpoint_every: 1m
          - name: alarm
            work:
              - name: alarm
                arrive: {kind: bursts, every: 3m, size: 5}
                duration: {kind: fixed, seconds: 5s}
                execution_cap: 8s
                delay_tolerance: 1s
                resources: {cpu: 1, memory: 256Mi}
        """
    )
    assert found.freezes + found.checkpoints > 5
    assert found.resumes > 0
    assert row(found, "long").lost > 0
    assert found.lost_seconds > 0


def test_twice_the_nodes_are_half_as_busy():
    once, twice = (simulated(NOISY.replace("2000", "500"), nodes=nodes) for nodes in (2, 4))
    assert twice.nodes == 4
    assert once.utilization["cpu"] == pytest.approx(2 * twice.utilization["cpu"], rel=0.02)
    assert row(twice, "noisy").wait.p50 < 0.6 * row(once, "noisy").wait.p50


def test_what_outruns_its_cap_is_ended_by_it():
    found = simulated(
        """
        name: overrun
        horizon: 1m
        nodes: [{count: 1, resources: {cpu: 4, memory: 8Gi}}]
        tenants:
          - name: late
            work:
              - name: slow
                arrive: {kind: once, size: 4}
                duration: {kind: fixed, seconds: 30s}
                execution_cap: 10s
                resources: {cpu: 1, memory: 1Gi}
        """
    )
    assert (row(found, "late").capped, found.done) == (4, 0)


def test_off_peak_work_starts_below_the_peak_line_only():
    found = simulated(
        """
        name: off-peak
        horizon: 20m
        nodes: [{count: 10, resources: {cpu: 1, memory: 8Gi}}]
        tenants:
          - name: patient
            work:
              - name: reindex
                arrive: {kind: once, size: 100}
                duration: {kind: fixed, seconds: 60s}
                delay_tolerance: 1d
                off_peak: require
                resources: {cpu: 1, memory: 1Gi}
        """
    )
    assert found.utilization["cpu"] < 0.85
    assert row(found, "patient", "offpeak").missed == 0


def test_limits_hold_in_the_simulator():
    found = simulated(
        """
        name: one-at-a-time
        horizon: 100s
        nodes: [{count: 4, resources: {cpu: 8, memory: 8Gi}}]
        tenants:
          - name: mutual
            work:
              - name: exclusive
                arrive: {kind: once, size: 10}
                duration: {kind: fixed, seconds: 10s}
                resources: {cpu: 1, memory: 1Gi}
                concurrency: [{key: database, limit: 1}]
        """
    )
    assert row(found, "mutual").wait.most == pytest.approx(90, abs=1)


def test_what_is_in_time_is_never_drawn_as_late():
    """A bucket of the histogram is 2.2 % wide: its edge may be beyond the tolerance when nothing in it is."""
    for slack in (0.98, 0.99, 0.999, 1.0):
        found = Histogram()
        found.add(slack)
        assert found.steps() == [(slack, 1.0)]
