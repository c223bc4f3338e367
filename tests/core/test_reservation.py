"""A node is kept for a wide task as long as that helps it to start, and no longer."""

from __future__ import annotations

from headway.core.explain import explain
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency
from headway.core.placement import Shape
from headway.core.policy import Policy
from headway.core.queue import LineKey
from tests.core.test_plan import BIG, CALL, FAR, SMALL, Cluster

AT_ONCE = Policy(promotion_margin_seconds=0, reserve_after_seconds=0)
KEYED = Shape("command", {"cpu": 4000}, "premium", concurrency=(Concurrency("k", 1),))
HOLDER = Shape("command", {"cpu": 100}, "basic", concurrency=(Concurrency("k", 1),))


def with_a_node_kept(wide: Shape) -> tuple[Cluster, list[int]]:
    """A node whose small tasks have passed a wide one for a while, and the last of them that runs there."""
    cluster = Cluster(AT_ONCE).node(1, cpu=4000)
    running = cluster.ready(SMALL, count=8, cap=100.0)
    cluster.plan()
    cluster.ready(wide, start_by=FAR - 1)
    cluster.ready(SMALL, cap=100.0)
    cluster.plan()
    cluster.now = 2.0
    cluster.end(running.pop(0))
    running += cluster.plan()  # passes the wide one
    cluster.now = 3.0
    cluster.plan()
    return cluster, running


def code(cluster: Cluster, shape: Shape) -> str:
    key = LineKey(1, Lane.NORMAL, cluster.numbers[repr(shape)])
    line = cluster.planner.line(key)
    assert line is not None
    return explain(cluster.planner, key, line.first, now=cluster.now).code


def test_those_kept_out_start_in_the_round_in_which_the_wide_one_does():
    """Kept for a call, which needs no cpu; the command is looked at first, and due first."""
    cluster = Cluster(AT_ONCE).node(1, cpu=500, workers=1)
    call, command = *cluster.ready(CALL, start_by=FAR - 5), *cluster.ready(SMALL, start_by=FAR - 5)
    cluster.plan()
    waits = cluster.ready(CALL, start_by=FAR - 1)
    cluster.plan()
    cluster.now = 1.0
    cluster.end(command)
    also_waits = cluster.ready(SMALL, start_by=FAR, cap=1000.0)
    passing = cluster.plan()
    assert passing == also_waits
    cluster.now = 2.0
    cluster.plan()
    assert cluster.planner.reservations.all()
    (kept_out,) = cluster.ready(SMALL, start_by=FAR - 9, cap=1000.0)
    cluster.end(*passing)
    cluster.plan()
    assert code(cluster, SMALL) == "reserved"
    cluster.end(call)
    assert code(cluster, SMALL) == "ready"  # its turn comes with the call's
    assert sorted(cluster.plan()) == sorted([*waits, kept_out])


def test_a_wide_task_that_starts_elsewhere_gives_up_the_node_kept_for_it():
    cluster, running = with_a_node_kept(BIG)
    (kept_out,) = cluster.ready(SMALL, cap=1000.0)
    cluster.end(running[0])
    assert cluster.plan() == []
    assert code(cluster, SMALL) == "reserved"
    cluster.node(2, cpu=4000)
    assert code(cluster, SMALL) == "ready"
    assert kept_out in cluster.plan()
    assert not cluster.planner.reservations.all()


def test_no_node_is_kept_for_what_a_limit_holds_back():
    cluster, running = with_a_node_kept(KEYED)
    cluster.node(2, cpu=100)
    (holder,) = cluster.ready(HOLDER, start_by=FAR - 10)
    assert cluster.plan() == [holder]
    (kept_out,) = cluster.ready(SMALL, cap=1000.0)
    cluster.end(*running)
    assert cluster.plan() == [kept_out]
    assert not cluster.planner.reservations.all()


def test_a_node_is_kept_for_nobody_once_the_wide_task_is_cancelled():
    cluster, running = with_a_node_kept(BIG)
    (kept_out,) = cluster.ready(SMALL, cap=1000.0)
    cluster.end(running[0])
    assert cluster.plan() == []
    (wide,) = [line.first.id for line in cluster.planner.lines() if line.shape == BIG]
    cluster.planner.drop([wide])
    assert cluster.plan() == [kept_out]


def test_no_node_is_kept_for_what_waits_for_the_peak_to_end():
    cluster = Cluster(AT_ONCE).node(1, cpu=4000)
    cluster.ready(SMALL, count=5)
    cluster.plan()
    cluster.ready(BIG, lane=Lane.OFFPEAK)
    cluster.plan()  # under the line, and no room
    cluster.ready(SMALL, count=3)
    cluster.plan()
    cluster.now = 1.0
    cluster.plan()
    assert cluster.planner.peak.is_peak
    assert not cluster.planner.reservations.all()
