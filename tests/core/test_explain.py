"""Every task that waits says why, and the reason is the one that holds it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.core.constraints import Constraint
from headway.core.explain import Explanation, explain, position
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency, Rate
from headway.core.placement import Shape
from headway.core.policy import Plan, Policy
from headway.core.queue import LineKey
from tests.core.cases import cases
from tests.core.test_plan import BIG, CALL, FAR, GOLD, SMALL, Cluster


def why(cluster: Cluster, shape: Shape, *, lane: Lane = Lane.NORMAL, tenant: int = 1) -> Explanation:
    key = LineKey(tenant, lane, cluster.numbers[repr(shape)])
    line = cluster.planner.line(key)
    assert line is not None
    return explain(cluster.planner, key, line.last, now=cluster.now)


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


def test_what_must_be_shut_in_waits_where_that_cannot_be_and_says_so():
    cluster = Cluster().node(1)
    closed = Shape("command", {"cpu": 1}, "basic", profile="sandboxed")
    cluster.ready(closed)
    assert cluster.plan() == []
    told = why(cluster, closed)
    assert (told.code, told.blockers[0].name) == ("no_profile", "sandboxed")
    assert "headway doctor" in told.helps[0]


def test_without_room_the_nearest_node_and_the_place_in_line_are_told():
    cluster = Cluster().node(1, cpu=700).node(2, cpu=900)
    cluster.ready(SMALL, count=5)
    cluster.plan()
    reason = why(cluster, SMALL)
    assert reason.code == "no_capacity"
    assert [(one.name, one.needed, one.free, one.node) for one in reason.blockers] == [("cpu", 0.5, 0.4, "n2")]
    assert reason.message == "waits for 0.5 cpu; 0.4 cpu free on n2"


def test_limits_tell_which_and_who_holds_them():
    cluster = Cluster(Policy(plans={2: Plan(quota={"running": 1})})).node(cpu=9000)
    keyed = Shape("command", {"cpu": 1}, "basic", concurrency=(Concurrency("customer-7", 2),))
    rated = Shape("command", {"cpu": 1}, "basic", rates=(Rate("mail", 1),))
    cluster.ready(keyed, count=3)
    cluster.ready(rated, count=2)
    cluster.ready(SMALL, tenant=2, count=2)
    cluster.plan()
    key = LineKey(1, Lane.NORMAL, cluster.numbers[repr(keyed)])
    waits = cluster.planner.line(key)
    assert waits is not None
    named = explain(cluster.planner, key, waits.first, now=0.0, holders=lambda tenant, name: [7, 8])
    (blocker,) = named.blockers
    assert (named.code, blocker.name, blocker.held, blocker.limit) == ("concurrency", "customer-7", 2, 2)
    assert blocker.holders == ("7", "8")
    (blocker,) = why(cluster, rated).blockers
    assert (blocker.code, blocker.name, blocker.until) == ("rate", "mail", 60.0)
    (blocker,) = why(cluster, SMALL, tenant=2).blockers
    assert (blocker.code, blocker.name, blocker.limit, blocker.held) == ("quota", "running", 1, 1)


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


def test_everything_that_blocks_is_told_and_the_most_telling_first():
    keyed = Shape("command", {"cpu": 500}, "basic", concurrency=(Concurrency("k", 1),))
    cluster = Cluster().node(cpu=500)
    cluster.ready(keyed, count=2)
    cluster.plan()
    cluster.planner.set_policy(Policy(paused=True, paused_tenants=frozenset({1})))
    reason = why(cluster, keyed)
    assert [one.code for one in reason.blockers] == ["pool_paused", "tenant_paused", "concurrency"]
    assert reason.code == "pool_paused"


def test_a_node_with_room_that_is_kept_for_a_wide_task_is_named():
    cluster = Cluster(Policy(promotion_margin_seconds=0)).node(cpu=4000)
    first = cluster.ready(SMALL, count=8, cap=100.0)
    cluster.plan()
    cluster.ready(BIG)
    cluster.ready(SMALL, count=20, cap=1000.0)
    cluster.plan()
    cluster.now = 2.0
    cluster.end(first[0])
    cluster.plan()
    cluster.now = 5.0
    cluster.plan()
    cluster.end(first[1])
    cluster.plan()
    reason = why(cluster, SMALL)
    assert (reason.code, reason.blockers[0].node, reason.blockers[0].until) == ("reserved", "n1", 1002.0)


def test_urgent_work_beyond_its_share_says_so():
    cluster = Cluster(Policy(plans={1: Plan(urgent_share=0.25)})).node(cpu=2000)
    cluster.ready(lane=Lane.URGENT, count=9)
    cluster.plan()
    assert "urgent_budget" in [one.code for one in why(cluster, SMALL, lane=Lane.URGENT).blockers]


def test_the_position_counts_the_line_the_tenant_and_everybodys_turn():
    cluster = Cluster().node(cpu=500)
    cluster.ready(tenant=1, count=5)
    cluster.ready(GOLD, tenant=1, count=2, start_by=FAR - 9)
    cluster.ready(tenant=2, count=100)
    cluster.ready(tenant=3, count=1)
    cluster.ready(lane=Lane.URGENT, tenant=4, count=2)
    key = LineKey(1, Lane.NORMAL, cluster.numbers[repr(SMALL)])
    line = cluster.planner.line(key)
    assert line is not None
    found = position(cluster.planner, key, line.last, now=0.0, behind=lambda key: 0)
    assert (found.line, found.tenant, found.complete) == (4, 6, True)
    assert found.pool == 6 + 2 + 7 + 1  # its tenant's, the urgent, as many turns of the second, all of the third
    assert not position(cluster.planner, key, line.last, now=0.0, behind=lambda key: 3).complete


# ── what is said is so ────────────────────────────────────────────────────────────────────────────────────────────────

KEYED = Shape("command", {"cpu": 300}, "basic", concurrency=(Concurrency("k", 2),))
RATED = Shape("command", {"cpu": 300}, "basic", rates=(Rate("r", 2, 60.0),))
ALONE = Shape("command", {"cpu": 700}, "regular", exclusive=True)
PICKY = Shape("command", {"cpu": 100}, "basic", constraints=(Constraint("zone", "=", ("b",)),))
ALL = [SMALL, BIG, CALL, GOLD, KEYED, RATED, ALONE, PICKY]
policies = st.builds(
    Policy,
    paused=st.sampled_from([False] * 7 + [True]),
    paused_tenants=st.sampled_from([frozenset[int]()] * 5 + [frozenset({1})]),
    plans=st.dictionaries(
        st.integers(1, 3),
        st.builds(
            Plan,
            urgent_share=st.sampled_from([0.0, 0.25, 1.0]),
            quota=st.sampled_from([{}, {}, {"running": 2}, {"cpu": 900}, {"cpu": 600, "running": 3}]),
        ),
    ),
    peak_line=st.sampled_from([0.3, 0.8]),
    reserve_after_seconds=st.sampled_from([0.0, 1.0]),
)
waiting = st.lists(
    st.tuples(st.sampled_from(ALL), st.integers(1, 3), st.sampled_from(list(Lane)), st.sampled_from([1.0, 900.0, FAR])),
    min_size=1,
    max_size=30,
)
sizes = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3)), min_size=1, max_size=4)


def relieve(cluster: Cluster, code: str, shape: Shape) -> None:
    """Takes the named condition away, and nothing else of consequence."""
    policy, number = cluster.planner.policy, cluster.numbers[repr(shape)]
    match code:
        case "pool_paused":
            policy = replace(policy, paused=False)
        case "tenant_paused":
            policy = replace(policy, paused_tenants=frozenset())
        case "quota":
            policy = replace(policy, plans={n: replace(p, quota={}) for n, p in policy.plans.items()})
        case "urgent_budget":
            policy = replace(policy, plans={n: Plan(1.1, p.quota) for n in (1, 2, 3) for p in [policy.plan(n)]})
        case "off_peak":
            policy = replace(policy, peak_line=2.0, peak_hysteresis=0.0)
        case "concurrency":
            cluster.nodes.learn(number, replace(shape, concurrency=()))
        case "rate":
            cluster.nodes.learn(number, replace(shape, rates=()))
        case "no_node" | "no_capacity":
            for node in range(91, 191):  # more than there are tasks, for some want one to themselves
                cluster.node(node, cpu=90_000, workers=90, labels={"zone": "b"})
        case "reserved":
            for room in cluster.nodes.all():
                room.kept_for = None
        case _:
            assert code == "ready"
    cluster.planner.set_policy(policy)


@cases(400)
@given(waiting, sizes, policies, st.data())
def test_what_is_named_holds_the_task_and_whoever_takes_it_away_starts_it_or_changes_the_code(
    tasks: list[tuple[Shape, int, Lane, float]], nodes: list[tuple[int, int]], policy: Policy, data: st.DataObject
):
    cluster = Cluster(policy)
    for number, (cpu, workers) in enumerate(nodes, 1):
        cluster.node(number, cpu=cpu, workers=workers)
    for shape, tenant, lane, due in tasks:
        cluster.ready(shape, tenant=tenant, lane=lane, start_by=due, count=3)
    for _ in range(data.draw(st.integers(0, 4))):
        cluster.plan(data.draw(st.sampled_from([1, 5, 1000])))
        cluster.now += data.draw(st.sampled_from([0.0, 2.0, 61.0]))
        running = [task.id for _, task in cluster.running]
        cluster.end(*data.draw(st.lists(st.sampled_from(running or [0]), unique=True, max_size=4)))
    shapes = {cluster.numbers[repr(shape)]: shape for shape in ALL if repr(shape) in cluster.numbers}
    cluster.plan(0)  # time alone changes for whom nodes are kept, and a round finds that out
    lines = [line for line in cluster.planner.lines() if line]
    if not lines:
        return
    said = {one.first.id: explain(cluster.planner, one.key, one.first, now=cluster.now) for one in lines}
    again = {one.first.id: explain(cluster.planner, one.key, one.first, now=cluster.now) for one in lines}
    assert said == again, "to ask changes nothing"
    line = data.draw(st.sampled_from(lines))
    key, task = line.key, line.first
    for started in cluster.plan(100_000):
        assert started not in said or said[started].code in ("ready", "urgent_budget"), said[started]
    if task.id not in cluster.planner:
        return
    before = explain(cluster.planner, key, task, now=cluster.now)
    relieve(cluster, before.code, shapes[key.shape])
    started = cluster.plan(100_000)
    if task.id not in started:
        after = explain(cluster.planner, key, task, now=cluster.now)
        assert after.code != before.code, f"{before} and still {after}"
