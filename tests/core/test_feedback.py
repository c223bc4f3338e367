"""Levels, and who is paused for whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.core.feedback import Feedback, Preemption, Run, level
from headway.core.lifecycle import Lane
from headway.core.placement import STAYS, Shape
from headway.core.policy import Policy
from headway.core.queue import LineKey
from headway.core.resources import fits, give
from tests.core.cases import cases
from tests.core.test_plan import Cluster

LONG = Shape("command", {"cpu": 1000, "memory": 100}, "basic", preemptible=True)
FIXED = Shape("command", {"cpu": 1000, "memory": 100}, "basic", exclusive=False)
THIN = Shape("command", {"cpu": 1000}, "basic")
FAT = Shape("command", {"cpu": 1000, "memory": 300}, "basic")
POLICY = Policy(promotion_margin_seconds=0)


class Pool(Cluster):
    """A cluster whose preemptible tasks are known to the feedback."""

    def __init__(self, policy: Policy = POLICY) -> None:
        super().__init__(policy)
        self.feedback = Feedback(self.nodes)

    def busy(self, shape: Shape = LONG, *, count: int = 1, paused_before: int = 0) -> list[int]:
        started = [self.ready(shape, cap=7200.0)[0] for _ in range(count)]
        self.plan()
        for placement, task in self.running:
            if task.id in started and self.nodes.shape(placement.key.shape).preemptible:
                run = Run(task.id, placement.key, placement.node, began=self.now, paused_before=paused_before)
                self.feedback.began(run)
        return started

    def wait(self, shape: Shape = THIN, *, lane: Lane = Lane.URGENT, cap: float = 600.0) -> LineKey:
        self.ready(shape, lane=lane, tenant=2, cap=cap)
        self.plan()
        return LineKey(2, lane, self.numbers[repr(shape)])

    def preempted(self) -> list[Preemption]:
        return self.feedback.decide(self.planner.without_room(), self.planner.policy, self.now)


def a_pool(policy: Policy = POLICY) -> Pool:
    pool = Pool(policy)
    pool.node(1, cpu=2000, memory=400)
    return pool


def test_a_task_sinks_a_level_with_each_quantum_it_uses_up():
    depths = [level(seconds, Policy()) for seconds in (0, 9.9, 10, 69.9, 70, 669, 670, 99_999)]
    assert depths == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_deepest_is_paused_for_what_is_urgent():
    pool = a_pool()
    (deep,) = pool.busy()
    pool.now = 100.0
    pool.busy()
    pool.now = 110.0
    key = pool.wait()
    assert pool.preempted() == []  # not at once
    pool.now = 112.0
    (chosen,) = pool.preempted()
    assert (chosen.run.task, chosen.how, chosen.level, chosen.code) == (deep, "freeze", 2, "urgent")
    assert chosen.beneficiary == key
    assert "level 2 after 112 s" in chosen.message


def test_of_those_equally_deep_the_one_with_the_youngest_checkpoint_goes():
    pool = a_pool()
    first, second = pool.busy(count=2)
    run = pool.feedback.run(second)
    assert run is not None
    run.checkpoint_at = 90.0
    pool.now = 100.0
    pool.wait(FAT)
    pool.now = 102.0
    assert [one.run.task for one in pool.preempted()][:1] == [second]
    assert first


def test_memory_that_cannot_stay_means_a_checkpoint():
    pool = a_pool()
    pool.busy(count=2)
    pool.now = 100.0
    pool.wait(FAT)
    pool.now = 102.0
    (chosen,) = pool.preempted()
    assert chosen.how == "checkpoint"


def test_short_work_may_pause_others_and_long_patient_work_may_not():
    for cap, expected in ((5.0, ["short"]), (600.0, [])):
        pool = a_pool()
        pool.busy(count=2)
        pool.now = 100.0
        pool.wait(lane=Lane.NORMAL, cap=cap)
        pool.now = 102.0
        assert [one.code for one in pool.preempted()] == expected


def test_nobody_is_paused_before_the_least_run_nor_beyond_its_budget_nor_unasked():
    for shape, paused_before, began in ((LONG, 0, 99.0), (LONG, 3, 0.0), (FIXED, 0, 0.0)):
        pool = a_pool()
        pool.now = began
        pool.busy(shape, count=2, paused_before=paused_before)
        pool.now = 100.0
        pool.wait()
        pool.now = 102.0
        assert pool.preempted() == []


def test_the_pool_has_a_budget_and_nobody_is_paused_twice_for_the_same():
    pool = a_pool(Policy(promotion_margin_seconds=0, preemptions_per_minute=1, preempt_patience_seconds=10))
    pool.busy(count=2)
    pool.now = 100.0
    pool.wait()
    pool.now = 102.0
    assert len(pool.preempted()) == 1
    pool.now = 103.0
    assert pool.preempted() == []
    pool.now = 111.0
    assert pool.preempted() == []  # patience is over, the budget is not back
    pool.now = 163.0
    assert len(pool.preempted()) == 1


def test_the_next_need_not_wait_once_those_who_were_paused_have_left():
    pool = a_pool()
    pool.busy(count=2)
    pool.now = 100.0
    pool.wait()
    pool.now = 102.0
    (chosen,) = pool.preempted()
    assert pool.preempted() == []
    pool.feedback.ended(chosen.run.task)
    (following,) = pool.preempted()
    assert following.run.task != chosen.run.task


def test_what_is_about_to_be_late_does_not_wait_although_others_like_it_have_just_had_room():
    pool = a_pool()
    (first, _) = pool.busy(count=2)
    pool.now = 100.0
    pool.ready(THIN, lane=Lane.URGENT, tenant=2, start_by=101.0, count=2)
    pool.plan()
    pool.now = 100.4
    pool.end(first)
    assert len(pool.plan()) == 1
    assert pool.preempted() == []
    pool.now = 100.5
    (chosen,) = pool.preempted()
    assert chosen.code == "urgent"


def test_what_ended_is_paused_no_more():
    pool = a_pool()
    first, second = pool.busy(count=2)
    assert pool.feedback.ended(first) is not None
    assert pool.feedback.ended(first) is None
    assert (len(pool.feedback), pool.feedback.run(second) is not None) == (1, True)


runs = st.lists(st.tuples(st.floats(0, 900), st.integers(0, 3)), min_size=1, max_size=12)


@cases(300)
@given(runs, st.integers(1, 6), st.integers(0, 900), st.sampled_from(["urgent", "short", "patient"]))
def test_whoever_is_paused_may_be_and_their_leaving_makes_the_room(
    ages: list[tuple[float, int]], cpu: int, memory: int, kind: str
):
    pool = Pool()
    pool.node(1, cpu=1000 * len(ages), memory=100 * len(ages))
    for began, paused_before in sorted(ages):
        pool.now = began
        pool.busy(paused_before=paused_before)
    pool.now = 1000.0
    shape = Shape("command", {"cpu": 1000 * cpu, "memory": memory}, "basic")
    pool.wait(shape, lane=Lane.URGENT if kind == "urgent" else Lane.NORMAL, cap=5.0 if kind == "short" else 3600.0)
    pool.now = 1002.0
    chosen = pool.preempted()
    if kind == "patient" or not chosen:
        assert not chosen
        return
    room = pool.nodes.get(1)
    assert room is not None
    free = dict(room.free)
    for one in chosen:
        assert one.run.paused_before < 3
        assert pool.now - one.run.began >= 5.0
        needs = pool.nodes.shape(one.run.key.shape).needs
        give(free, {name: amount for name, amount in needs.items() if one.how == "checkpoint" or name not in STAYS})
    assert fits(shape.needs, free)
