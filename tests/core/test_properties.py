"""Whatever happens to a pool, in whatever order: what is promised of every decision.

`happenings` says what can happen, `facts` what is true, `judge` what is right: no node and no limit is over-committed,
nothing waits that could start, nothing that presses is passed, turns are fair, reasons are true, and nothing is known
that the facts alone do not tell. `found` are the sequences that once led to something wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.lifecycle import Lane
from headway.core.placement import Shape
from headway.core.policy import Plan, Policy
from headway.core.queue import LineKey
from tests.core.cases import cases
from tests.core.facts import EVERYTHING, MACHINES, SHAPES
from tests.core.found import FOUND
from tests.core.happenings import (
    Cancel,
    Decree,
    Finish,
    Happening,
    Join,
    Lapse,
    Learn,
    Leave,
    Pause,
    Pool,
    Resize,
    Round,
    Submit,
    Tidy,
    Wait,
)
from tests.core.test_plan import Cluster

DECREES = [
    Decree("paused", True), Decree("paused", False), Decree("paused_tenants", frozenset()),
    Decree("paused_tenants", frozenset({1})), Decree("paused_tenants", frozenset({2, 3})),
    Decree("paused_names", frozenset()), Decree("paused_names", frozenset({(1, "encode"), (3, "encode")})),
    Decree("peak_line", 0.3), Decree("peak_line", 0.8), Decree("peak_line", 1.5), Decree("peak_hysteresis", 0.0),
    Decree("promotion_margin_seconds", 0.0), Decree("promotion_margin_seconds", 300.0),
    Decree("reserve_after_seconds", 0.0), Decree("weights", {"premium": 3.0, "regular": 0.5}), Decree("weights", {}),
    Decree("plans", {}), Decree("plans", {1: Plan(0.25, {"running": 3})}),
    Decree("plans", {1: Plan(0.0), 2: Plan(1.0, {"cpu": 2000})}),
    Decree("plans", {2: Plan(0.1, {"cpu": 1200, "running": 2}), 3: Plan(0.5)}),
    Decree("history_weight", 0.5), Decree("half_life_seconds", 10.0),
    Decree("preempt_after_seconds", 0.0), Decree("least_run_seconds", 0.0),
]  # fmt: skip
nodes = st.integers(1, 4)
machines = st.integers(0, len(MACHINES) - 1)
places = st.integers(0, 40)
submits = st.builds(
    Submit,
    st.integers(0, len(SHAPES) - 1),
    tenant=st.integers(1, 3),
    lane=st.sampled_from([Lane.NORMAL, Lane.NORMAL, *Lane]),
    slack=st.sampled_from([900.0, 60.0, 3.0, 0.5]),
    cap=st.sampled_from([10.0, 1.0, 100.0, 1000.0]),
    many=st.sampled_from([1, 2, 5, 20]),
)
rounds = st.builds(Round, st.sampled_from([EVERYTHING, EVERYTHING, 3, 1]), st.sampled_from([True, True, False]))
ends = st.builds(Finish, places, st.sampled_from([1, 3, 40]), st.booleans())
waits = st.builds(Wait, st.sampled_from([0.3, 2.0, 7.0, 61.0, 300.0]))
comings_and_goings = st.one_of(
    st.builds(Join, nodes, machines),
    st.builds(Leave, nodes),
    st.builds(Lapse, nodes),
    st.builds(Resize, nodes, st.sampled_from([0, 1, 5])),
)
others = st.one_of(
    st.sampled_from(DECREES),
    st.builds(Cancel, places, st.sampled_from([1, 3, 40])),
    st.builds(Learn, st.integers(0, len(SHAPES) - 1)),
    st.just(Tidy()),
    st.just(Pause()),
)
happenings = st.lists(
    st.one_of(submits, submits, submits, rounds, rounds, ends, ends, waits, comings_and_goings, others), max_size=40
)
beginnings = st.lists(st.builds(Join, nodes, machines), min_size=1, max_size=4)


def pool_after(beginning: list[Join], then: list[Happening]) -> Pool:
    """A pool to which all that happened, and a round without bound at the end."""
    pool = Pool()
    for one in [*beginning, *then, Round()]:
        pool.happen(one)
    return pool


@cases(300)
@given(beginnings, happenings)
def test_whatever_happens_every_decision_is_right(beginning: list[Join], then: list[Happening]):
    pool_after(beginning, then)


@pytest.mark.parametrize("then", FOUND.values(), ids=list(FOUND))
def test_what_once_went_wrong_is_right(then: list[Happening]):
    pool_after([], then)


@cases(60)
@given(beginnings, happenings)
def test_the_same_happenings_lead_to_the_same_plans(beginning: list[Join], then: list[Happening]):
    assert pool_after(beginning, then).plans == pool_after(beginning, then).plans


def test_the_order_of_sets_decides_nothing():
    """Two interpreters that put strings into sets in another order plan alike."""
    words = [sys.executable, "-m", "tests.core.replay", "60"]
    told = {
        subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
    assert told != {b""}


NARROW, MIDDLE, WIDE = (Shape("command", {"cpu": cpu}, "basic") for cpu in (300, 500, 1500))
CPU = 16_000


@cases(15)
@given(
    st.lists(st.tuples(st.sampled_from([NARROW, MIDDLE, WIDE]), st.integers(1, 30)), min_size=2, max_size=4),
    st.sampled_from([0.0, 0.5]),
)
@example([(NARROW, 2), (WIDE, 16)], 0.0)  # whoever a node was kept for took two turns on it
def test_equal_tenants_get_equal_shares_however_wide_and_long_their_tasks_are(
    tenants: list[tuple[Shape, int]], history_weight: float
):
    """Over time nobody is further below an equal part than the widest task is of the pool. Whoever asks for little may
    be above by more: room in pieces of which nobody else has a use is theirs."""
    pool = Cluster(Policy(history_weight=history_weight, half_life_seconds=60.0))
    for node in range(4):
        pool.node(node + 1, cpu=CPU // 4)
    had: Counter[int] = Counter()
    for second in range(240):
        for tenant, (shape, seconds) in enumerate(tenants, 1):
            line = pool.planner.line(LineKey(tenant, Lane.NORMAL, pool.numbers.get(repr(shape), 0)))
            if line is None or len(line) < 60:
                pool.ready(shape, tenant=tenant, count=100, start_by=1e6, cap=float(seconds))
        pool.plan(EVERYTHING)
        pool.now += 1.0
        if second >= 60:
            for placement, _ in pool.running:
                had[placement.key.tenant] += pool.nodes.shape(placement.key.shape).needs["cpu"]
        pool.end(*[task.id for _, task in pool.running if pool.began[task.id] + task.cap_ms / 1000 <= pool.now])
    equal = sum(had.values()) / len(tenants)
    for tenant in range(1, len(tenants) + 1):
        assert (equal - had[tenant]) / 180 <= WIDE.needs["cpu"], f"tenant {tenant}: {had}"
