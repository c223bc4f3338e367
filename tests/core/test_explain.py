"""Every task that waits says why, and the reason is the one that holds it."""

from __future__ import annotations

from headway.core.constraints import Constraint
from headway.core.explain import Explanation, explain
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency, Rate
from headway.core.placement import Shape
from headway.core.policy import Plan, Policy
from headway.core.queue import LineKey
from tests.core.test_plan import BIG, CALL, SMALL, Cluster


def why(cluster: Cluster, shape: Shape, *, lane: Lane = Lane.NORMAL, tenant: int = 1) -> Explanation:
    key = LineKey(tenant, lane, cluster.numbers[repr(shape)])
    line = cluster.planner.line(key)
    assert line is not None
    return explain(cluster.planner, key, line.last)


def test_without_nodes_it_says_how_to_start_one():
    cluster = Cluster()
    cluster.ready()
    cluster.plan()
    assert why(cluster, SMALL).code == "no_node"


def test_a_function_that_nobody_offers_is_named():
    cluster = Cluster().node(workers=2)
    odd = Shape("function", {"workers": 1}, "basic", "shop:refund")
    cluster.ready(odd)
    cluster.plan()
    assert "shop:refund" in why(cluster, odd).message


def test_what_is_too_large_for_every_node_says_how_large_they_are():
    cluster = Cluster().node(cpu=2000)
    cluster.ready(BIG)
    cluster.plan()
    assert why(cluster, BIG).message == "needs 4 cpu; the largest node has 2 cpu"


def test_a_label_that_no_node_has_is_named():
    cluster = Cluster().node(labels={"zone": "a"})
    picky = Shape("command", {"cpu": 1}, "basic", constraints=(Constraint("zone", "in", ("b", "c")),))
    cluster.ready(picky)
    cluster.plan()
    assert why(cluster, picky).message == "no node has zone in b, c"


def test_without_room_the_nearest_node_and_the_place_in_line_are_told():
    cluster = Cluster().node(1, cpu=700).node(2, cpu=900)
    cluster.ready(SMALL, count=5)
    cluster.plan()
    reason = why(cluster, SMALL)
    assert (reason.code, reason.ahead) == ("no_capacity", 2)
    assert reason.message == "waits for 0.5 cpu; 0.4 cpu free on n2"


def test_limits_tell_which_and_who_holds_them():
    cluster = Cluster(Policy(plans={2: Plan(quota={"running": 1})})).node(cpu=9000)
    keyed = Shape("command", {"cpu": 1}, "basic", concurrency=(Concurrency("customer-7", 2),))
    rated = Shape("command", {"cpu": 1}, "basic", rates=(Rate("mail", 1),))
    cluster.ready(keyed, count=3)
    cluster.ready(rated, count=2)
    cluster.ready(SMALL, tenant=2, count=2)
    cluster.plan()
    assert (why(cluster, keyed).code, why(cluster, keyed).held_by) == ("concurrency", 2)
    assert why(cluster, rated).code == "rate"
    assert why(cluster, SMALL, tenant=2).code == "quota"


def test_pauses_and_peaks_are_told():
    cluster = Cluster(Policy(paused_tenants=frozenset({2}))).node(cpu=1000)
    cluster.ready(SMALL, lane=Lane.OFFPEAK, count=5)
    cluster.ready(SMALL, tenant=2)
    cluster.plan()
    assert why(cluster, SMALL, lane=Lane.OFFPEAK).code == "off_peak"
    assert why(cluster, SMALL, tenant=2).code == "tenant_paused"
    cluster.planner.set_policy(Policy(paused=True))
    assert why(cluster, SMALL, tenant=2).code == "pool_paused"


def test_functions_in_a_full_worker_wait_for_room():
    cluster = Cluster().node(workers=1)
    cluster.ready(CALL, count=2)
    cluster.plan()
    assert why(cluster, CALL).message == "waits for 1 workers; 0 workers free on n1"
