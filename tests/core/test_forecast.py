"""The forecast against what really happens: a pool at work under a clock of its own, durations from a seed."""

from __future__ import annotations

import heapq
import random

import pytest

from headway.core.demand import RATIO_MAX
from headway.core.explain import no_holders
from headway.core.forecast import Flow
from headway.core.lifecycle import Lane
from headway.core.outlook import Outlook, Surveyor
from headway.core.placement import Shape
from headway.core.policy import Plan, Policy
from headway.core.queue import LineKey, ReadyTask
from tests.core.test_plan import CALL, FAR, GOLD, SMALL, Cluster

MEAN_SECONDS = 4.0


class Pool(Cluster):
    """A cluster whose tasks end by themselves, and a surveyor that watches it."""

    def __init__(self, policy: Policy | None = None, *, seed: int = 1) -> None:
        super().__init__(policy)
        self.flow = Flow()
        self.surveyor = Surveyor(self.planner, self.flow, behind=lambda _: 0, running_on=self.running_on)
        self.chance = random.Random(seed)
        self.ends: list[tuple[float, int]] = []
        self.outlook: Outlook = self.surveyor.survey(0.0)

    def run(self, seconds: float) -> None:
        """Lets time pass: what is due ends, what fits starts, and each second somebody looks."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            while self.ends and self.ends[0][0] <= self.now:
                _, task = heapq.heappop(self.ends)
                placement = next(p for p, one in self.running if one.id == task)
                self.flow.ended(self.nodes, placement.key.shape, 1)
                self.end(task)
            for task in self.plan(10_000):
                heapq.heappush(self.ends, (self.now + self.chance.expovariate(1 / MEAN_SECONDS), task))
            if self.now % 1.0 == 0.0:
                self.outlook = self.surveyor.survey(self.now)

    def forecast(self, shape: Shape = SMALL, *, tenant: int, lane: Lane = Lane.NORMAL, start_by: float = FAR) -> float:
        """What admission would be told of a new task."""
        number = self.numbers.get(repr(shape), 0)
        wait = self.outlook.waits().seconds(
            tenant, lane, shape.tier, number, shape.kind, start_by=start_by, now=self.now
        )
        assert wait is not None
        return wait

    def until_started(self, task: int) -> float:
        begun = self.now
        while task not in self.began:
            self.run(0.25)
            assert self.now < begun + 2000
        return self.began[task] - begun


def assert_near(predicted: float, actual: float) -> None:
    """Within a quarter, or two tasks' length where that is more."""
    assert abs(predicted - actual) <= max(actual / 4, 2 * MEAN_SECONDS), (predicted, actual)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("backlog", [0, 20, 400])
def test_of_a_steady_pool_with_one_tenant_the_start_is_known(seed: int, backlog: int):
    pool = Pool(seed=seed).node(1, cpu=4000).node(2, cpu=4000)
    assert isinstance(pool, Pool)
    pool.ready(count=400 + backlog)
    pool.run(100.0)
    predicted = pool.forecast(tenant=1)
    (task,) = pool.ready(start_by=FAR + 1)
    assert_near(predicted, pool.until_started(task))


@pytest.mark.parametrize("seed", range(3))
def test_each_of_several_tenants_is_told_its_own_start(seed: int):
    pool = Pool(seed=seed, policy=Policy(weights={"premium": 2.0}, history_weight=0.0))
    pool.node(1, cpu=8000)
    for tenant, shape, count in ((1, SMALL, 900), (2, SMALL, 330), (3, GOLD, 600)):
        pool.ready(shape, tenant=tenant, count=count)
    pool.run(60.0)
    predicted = {tenant: pool.forecast(shape, tenant=tenant) for tenant, shape in ((1, SMALL), (2, SMALL), (3, GOLD))}
    newcomer = pool.forecast(tenant=4)
    tasks = {tenant: pool.ready(shape, tenant=tenant, start_by=FAR + 1)[0]
             for tenant, shape in ((1, SMALL), (2, SMALL), (3, GOLD), (4, SMALL))}  # fmt: skip
    assert_near(newcomer, pool.until_started(tasks[4]))
    began = {}
    start = pool.began[tasks[4]]
    for tenant in (2, 3, 1):
        pool.until_started(tasks[tenant])
        began[tenant] = pool.began[tasks[tenant]] - start
    for tenant, wait in predicted.items():
        assert_near(wait, began[tenant])


def test_what_is_due_earlier_than_the_tenants_own_backlog_is_told_so():
    pool = Pool().node(1, cpu=4000)
    assert isinstance(pool, Pool)
    pool.ready(count=400, start_by=FAR)
    pool.run(60.0)
    assert pool.forecast(tenant=1, start_by=FAR - 500) < 5
    assert pool.forecast(tenant=1) > 100


def test_where_there_is_room_nothing_waits_and_other_resources_do_not_matter():
    pool = Pool().node(1, cpu=4000, workers=4)
    assert isinstance(pool, Pool)
    pool.ready(count=300)
    pool.ready(CALL, count=4)
    pool.run(40.0)
    pool.ready(CALL, count=4)
    pool.run(30.0)
    assert pool.forecast(tenant=9) < 2 * MEAN_SECONDS < pool.forecast(tenant=1)
    assert pool.forecast(CALL, tenant=1) == 0.0


def test_before_anything_ended_nothing_is_foretold():
    pool = Pool().node(1, cpu=1000)
    assert isinstance(pool, Pool)
    pool.ready(count=100)
    pool.plan()
    outlook = pool.surveyor.survey(1.0)
    assert outlook.waits().is_short
    assert outlook.waits().seconds(1, Lane.NORMAL, "basic", 1, "command", start_by=FAR, now=0.0) is None


def test_off_peak_work_is_foretold_by_its_latest_start_at_the_latest():
    pool = Pool().node(1, cpu=4000)
    assert isinstance(pool, Pool)
    pool.ready(count=2000)
    pool.run(60.0)
    assert pool.forecast(tenant=2, lane=Lane.OFFPEAK, start_by=pool.now + 105) == 100.0


def test_urgent_work_of_others_delays_by_no_more_than_its_share():
    policy = Policy(plans={1: Plan(urgent_share=0.5)})
    pool = Pool(policy).node(1, cpu=8000)
    assert isinstance(pool, Pool)
    pool.ready(tenant=1, lane=Lane.URGENT, count=1000)
    pool.ready(tenant=2, count=200)
    pool.run(60.0)
    predicted = pool.forecast(tenant=2)
    (task,) = pool.ready(tenant=2, start_by=FAR + 1)
    actual = pool.until_started(task)
    assert predicted == pytest.approx(actual, rel=0.5)


def test_a_waiting_task_is_told_when_it_starts_and_by_what_that_is_known():
    pool = Pool().node(1, cpu=4000)
    assert isinstance(pool, Pool)
    pool.ready(count=300)
    pool.run(40.0)
    (task,) = pool.ready(start_by=FAR + 1)
    pool.run(1.0)
    key = LineKey(1, Lane.NORMAL, pool.numbers[repr(SMALL)])
    look = pool.surveyor.look(key, ReadyTask(FAR + 1, 10_000, task), now=pool.now, holders=no_holders)
    assert look.estimate is not None
    assert look.position is not None
    assert (look.explanation.code, look.estimate.basis) == ("no_capacity", "observed")
    assert_near(look.estimate.seconds, pool.until_started(task))


def test_the_demand_of_a_pool_with_twice_too_much_to_do_is_seen_and_costs_no_walk_over_tasks():
    pool = Pool().node(1, cpu=1000)
    assert isinstance(pool, Pool)
    pool.ready(count=5000)
    pool.run(120.0)
    by_window = {one.window: one for one in pool.outlook.ratios if one.tier is None}
    assert by_window["1m"].ratio < 0.01
    assert pool.outlook.nodes_wanted > 100
    assert len(pool.outlook.lines) == 1
    empty = Pool().node(1, cpu=1000)
    assert isinstance(empty, Pool)
    assert empty.outlook.ratios[0].ratio == RATIO_MAX


def test_lines_of_shapes_that_are_not_known_yet_are_looked_at_without_harm():
    pool = Pool().node(1, cpu=1000)
    assert isinstance(pool, Pool)
    pool.ready(count=10)
    pool.run(2.0)
    assert pool.planner.peak.is_peak
    pool.planner.offer(LineKey(2, Lane.OFFPEAK, 999), [ReadyTask(FAR, 1000, 77)])
    pool.planner.offer(LineKey(2, Lane.NORMAL, 998), [ReadyTask(FAR, 1000, 78)])
    outlook = pool.surveyor.survey(pool.now)
    assert {one.shape for one in outlook.lines} == {1, 998, 999}
    look = pool.surveyor.look(LineKey(2, Lane.OFFPEAK, 999), ReadyTask(FAR, 1000, 77), now=pool.now, holders=no_holders)
    assert look.explanation.code == "ready"
