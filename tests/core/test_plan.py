"""The planner: order, fairness, room, limits; nothing hidden, nothing promised twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.constraints import Constraint
from headway.core.deferral import LOOK_SECONDS
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency, Rate
from headway.core.nodes import Nodes
from headway.core.place import Placement
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.policy import Plan, Policy
from headway.core.queue import LineKey, ReadyTask
from headway.core.reservation import Running
from tests.core.cases import cases

SMALL = Shape("command", {"cpu": 500}, "basic")
BIG = Shape("command", {"cpu": 4000}, "premium")
CALL = Shape("function", {"workers": 1}, "basic", "shop:charge")
GOLD = Shape("command", {"cpu": 500}, "premium")
FAR = 10_000.0


class Cluster:
    """A pool that remembers what runs, and a clock that the test turns."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.now = 0.0
        self.numbers: dict[str, int] = {}
        self.nodes = Nodes()
        self.running: list[tuple[Placement, ReadyTask]] = []
        self.began: dict[int, float] = {}
        self.planner = Planner(self.nodes, policy or Policy(), running_on=self.running_on)
        self.ids = iter(range(1, 1_000_000))

    def running_on(self, node: int) -> list[Running]:
        return [
            Running(self.began[task.id] + task.cap_ms / 1000, p.key.shape) for p, task in self.running if p.node == node
        ]

    def node(
        self, number: int = 1, *, cpu: int = 1000, workers: int = 0, window: int = 0,
        labels: dict[str, str] | None = None, **special: int,
    ) -> Cluster:  # fmt: skip
        room = NodeRoom(
            number, f"n{number}", capacity={"cpu": cpu, "workers": workers, **special}, kinds=["command", "function"],
            functions=["shop:charge"], windows={"command": window, "function": window}, labels=labels,
        )  # fmt: skip
        self.planner.join(room, self.now)
        return self

    def ready(
        self, shape: Shape = SMALL, *, tenant: int = 1, lane: Lane = Lane.NORMAL, start_by: float = FAR, count: int = 1,
        cap: float = 10.0,
    ) -> list[int]:  # fmt: skip
        number = self.numbers.setdefault(repr(shape), len(self.numbers) + 1)
        self.nodes.learn(number, shape)
        tasks = [ReadyTask(start_by, round(cap * 1000), next(self.ids)) for _ in range(count)]
        self.planner.offer(LineKey(tenant, lane, number), tasks)
        return [task.id for task in tasks]

    def plan(self, most: int = 1000) -> list[int]:
        placed = self.planner.plan(self.now, most=most)
        self.running += [(p, task) for p in placed for task in p.tasks]
        self.began.update({task.id: self.now for p in placed for task in p.tasks})
        return [task.id for p in placed for task in p.tasks]

    def tenants(self, most: int = 1000) -> Counter[int]:
        before = len(self.running)
        self.plan(most)
        return Counter(p.key.tenant for p, _ in self.running[before:])

    def end(self, *ids: int) -> None:
        for placement, task in [entry for entry in self.running if entry[1].id in ids]:
            self.running.remove((placement, task))
            self.planner.ended(placement.node, placement.key, 1, self.now, express=placement.express)

    def where(self, task: int) -> int:
        return next(p.node for p, one in self.running if one.id == task)


def test_the_earliest_start_by_goes_first():
    cluster = Cluster().node()
    late, early, middle = (cluster.ready(start_by=FAR + n)[0] for n in (30, 10, 20))
    assert cluster.plan() == [early, middle]
    cluster.end(early)
    assert cluster.plan() == [late]


def test_of_two_due_alike_the_shorter_cap_goes_first():
    cluster = Cluster().node(cpu=500)
    long, short = cluster.ready(cap=60), cluster.ready(cap=5)
    assert cluster.plan() == short
    assert long


def test_a_planner_that_begins_anew_knows_of_nobody_without_room():
    """A new leadership: what found no room under the last one waited for ever, though the node was empty by then."""
    cluster = Cluster().node(cpu=500)
    waiting = cluster.ready(count=3)
    assert cluster.plan() == waiting[:1]
    cluster.planner.leave(1, cluster.now)
    cluster.planner.clear()
    cluster.running.clear()
    again = cluster.ready()
    assert cluster.plan() == []
    cluster.node(cpu=500)
    assert cluster.plan() == again


def test_an_urgent_task_overtakes_a_normal_one_that_is_due_earlier():
    cluster = Cluster(Policy(promotion_margin_seconds=1)).node(cpu=500)
    cluster.ready(start_by=50.0)
    urgent = cluster.ready(lane=Lane.URGENT, start_by=99.0)
    assert cluster.plan() == urgent


def test_a_task_whose_slack_is_gone_overtakes_everything_normal():
    cluster = Cluster().node(cpu=500)
    cluster.ready(tenant=1, start_by=FAR, count=50)
    cluster.plan(1)
    pressed = cluster.ready(tenant=2, start_by=FAR + 1, lane=Lane.OFFPEAK)
    cluster.now = FAR
    cluster.end(*[task.id for _, task in cluster.running])
    cluster.ready(tenant=3, start_by=FAR + 100)
    started = cluster.plan(1)
    assert started != pressed  # the first tenant's are overdue by more
    for _ in range(60):
        cluster.end(*[task.id for _, task in cluster.running])
        started = cluster.plan(1)
        if started == pressed:
            return
    raise AssertionError("the off-peak task starved")


def test_declaring_everything_urgent_does_not_pay():
    policy = Policy(plans={1: Plan(urgent_share=0.25)})
    cluster = Cluster(policy).node(cpu=4000)
    cluster.ready(tenant=1, lane=Lane.URGENT, count=100)
    cluster.ready(tenant=2, lane=Lane.NORMAL, count=100)
    shares = cluster.tenants()
    assert shares[1] <= 4
    assert shares[2] >= 4


def test_a_noisy_tenant_cannot_starve_a_quiet_one():
    cluster = Cluster().node(cpu=2000)
    cluster.ready(tenant=1, count=1000, start_by=FAR - 100)
    cluster.ready(tenant=2, count=1)
    assert cluster.tenants()[2] == 1


@pytest.mark.parametrize("waiting", [10, 1_000, 100_000])
def test_however_much_a_tenant_has_waiting_another_is_delayed_by_one_round(waiting: int):
    cluster = Cluster().node(cpu=2000)
    cluster.ready(tenant=1, count=waiting, start_by=FAR - 100)
    cluster.plan()
    quiet = cluster.ready(tenant=2)
    assert cluster.plan() == []
    cluster.end(cluster.running[0][1].id)
    assert cluster.plan() == quiet


def test_tiers_share_by_weight_and_tenants_of_a_tier_equally():
    cluster = Cluster(Policy(weights={"basic": 1, "premium": 3})).node(cpu=20_000)
    for tenant in (1, 2):
        cluster.ready(SMALL, tenant=tenant, count=100)
    cluster.ready(GOLD, tenant=3, count=100)
    shares = cluster.tenants()
    assert (shares[1], shares[2], shares[3]) == (5, 5, 30)


def test_nobody_idles_a_node_for_fairness():
    cluster = Cluster().node(cpu=20_000)
    cluster.ready(tenant=1, count=100)
    assert cluster.tenants()[1] == 40


def test_what_was_used_before_counts_against_a_tenant_until_it_fades():
    cluster = Cluster(Policy(half_life_seconds=10)).node(cpu=1000)
    ran = cluster.ready(tenant=1, count=2)
    cluster.plan()
    cluster.now = 20.0
    cluster.end(*ran)
    cluster.ready(tenant=1, count=4, start_by=FAR - 1)
    cluster.ready(tenant=2, count=4)
    assert cluster.tenants(1)[2] == 1


def test_a_task_that_fits_nowhere_hides_nobody():
    cluster = Cluster().node()
    cluster.ready(BIG, start_by=1000.0)
    small = cluster.ready(SMALL, start_by=2000.0)
    assert cluster.plan() == small
    assert len(cluster.planner) == 1


def test_a_wide_task_gets_a_node_and_short_ones_fill_in_behind_it():
    cluster = Cluster(Policy(promotion_margin_seconds=0)).node(cpu=4000)
    first = cluster.ready(SMALL, count=8, cap=100.0)
    cluster.plan()
    wide = cluster.ready(BIG, start_by=FAR - 1)
    cluster.ready(SMALL, count=20, cap=1000.0)
    cluster.plan()
    cluster.now = 2.0
    cluster.end(first[0])
    assert len(cluster.plan()) == 1  # passes the wide one
    cluster.now = 5.0
    cluster.plan()
    assert cluster.planner.reservations.all()
    cluster.end(first[1])
    long_ones = cluster.plan()
    assert long_ones == []  # a cap of 1,000 s would outlast the reservation
    short = cluster.ready(SMALL, cap=1.0)
    assert cluster.plan() == short
    cluster.end(*[task.id for _, task in cluster.running])
    assert wide[0] in cluster.plan()


def test_the_tightest_fit_is_taken_and_special_nodes_are_kept_for_who_needs_them():
    cluster = Cluster().node(1, cpu=8000).node(2, cpu=1000).node(3, cpu=1000, gpu=2)
    (small,) = cluster.ready(SMALL)
    needs_gpu = Shape("command", {"cpu": 500, "gpu": 1}, "basic")
    (special,) = cluster.ready(needs_gpu)
    cluster.plan()
    assert (cluster.where(small), cluster.where(special)) == (2, 3)


def test_constraints_must_hold_and_preferences_may():
    cluster = Cluster().node(1, labels={"zone": "a"}).node(2, labels={"zone": "b", "ssd": "yes"})
    only_b = Shape("command", {"cpu": 1}, "basic", constraints=(Constraint("zone", "in", ("b", "c")),))
    not_b = Shape("command", {"cpu": 1}, "basic", constraints=(Constraint("zone", "!=", ("b",)),))
    rather_ssd = Shape("command", {"cpu": 1}, "basic", preferred=(Constraint("ssd", "exists"),))
    nowhere = Shape("command", {"cpu": 1}, "basic", constraints=(Constraint("zone", "=", ("z",)),))
    ids = [cluster.ready(shape)[0] for shape in (only_b, not_b, rather_ssd, nowhere)]
    started = cluster.plan()
    assert [cluster.where(task) for task in ids[:3]] == [2, 1, 2]
    assert ids[3] not in started


def test_spread_puts_each_on_another_node_while_there_is_one():
    cluster = Cluster().node(1, cpu=4000).node(2, cpu=4000).node(3, cpu=4000)
    ids = cluster.ready(Shape("command", {"cpu": 500}, "basic", spread="web"), count=3)
    cluster.plan()
    assert {cluster.where(task) for task in ids} == {1, 2, 3}


def test_an_exclusive_task_has_its_node_alone():
    cluster = Cluster().node(1, cpu=4000)
    alone = cluster.ready(Shape("command", {"cpu": 500}, "basic", exclusive=True), start_by=FAR - 9)
    other = cluster.ready(SMALL)
    assert cluster.plan() == alone
    cluster.end(*alone)
    assert cluster.plan() == other


def test_a_concurrency_key_holds_back_its_own_and_nobody_else():
    one_at_a_time = Shape("command", {"cpu": 1}, "basic", concurrency=(Concurrency("customer-7", 1),))
    cluster = Cluster().node(cpu=9000)
    first, second = cluster.ready(one_at_a_time, count=2, start_by=FAR - 9)
    free = cluster.ready(SMALL, count=3)
    assert cluster.plan() == [first, *free]
    assert cluster.plan() == []
    cluster.end(first)
    assert cluster.plan() == [second]


def test_a_rate_lets_so_many_start_in_any_window():
    slow = Shape("command", {"cpu": 1}, "basic", rates=(Rate("mail", 3, 60.0),))
    cluster = Cluster().node(cpu=9000)
    cluster.ready(slow, count=10)
    assert len(cluster.plan()) == 3
    cluster.now = 59.0
    assert cluster.plan() == []
    cluster.now = 60.0
    assert len(cluster.plan()) == 3


def test_a_quota_bounds_what_a_tenant_runs_at_once():
    cluster = Cluster(Policy(plans={1: Plan(quota={"running": 2}), 2: Plan(quota={"cpu": 1500})})).node(cpu=20_000)
    cluster.ready(tenant=1, count=9)
    cluster.ready(tenant=2, count=9)
    assert cluster.tenants() == {1: 2, 2: 3}
    cluster.end(cluster.running[0][1].id)
    assert len(cluster.plan()) == 1


def test_paused_tenants_and_pools_wait_and_go_on():
    cluster = Cluster(Policy(paused_tenants=frozenset({1}))).node(cpu=20_000)
    cluster.ready(tenant=1)
    other = cluster.ready(tenant=2)
    assert cluster.plan() == other
    cluster.planner.set_policy(Policy(paused=True))
    assert cluster.plan() == []
    cluster.planner.set_policy(Policy())
    assert len(cluster.plan()) == 1


def test_off_peak_work_starts_under_the_line_and_waits_above_it():
    cluster = Cluster().node(cpu=10_000)
    cluster.ready(SMALL, lane=Lane.OFFPEAK, count=40)
    assert len(cluster.plan()) == 16  # 8 of 10 cores
    cluster.ready(SMALL, lane=Lane.NORMAL, count=3)
    assert len(cluster.plan()) == 3
    cluster.end(*[task.id for _, task in cluster.running[:4]])
    assert cluster.plan() == []  # still above where peak ends
    cluster.end(*[task.id for _, task in cluster.running[:4]])
    assert len(cluster.plan()) == 5


def test_a_window_is_filled_beyond_what_fits_and_no_further():
    cluster = Cluster().node(workers=2, window=5)
    ids = cluster.ready(CALL, count=20)
    assert len(cluster.plan()) == 7
    cluster.end(*ids[:3])
    assert len(cluster.plan()) == 3


def test_a_new_node_is_used_at_once():
    cluster = Cluster().node(1, cpu=500)
    cluster.ready(SMALL, count=3)
    assert len(cluster.plan()) == 1
    cluster.node(2, cpu=500)
    assert len(cluster.plan()) == 1


SHAPES = [
    SMALL, BIG, CALL, GOLD,
    Shape("command", {"cpu": 300}, "basic", concurrency=(Concurrency("k", 2),)),
    Shape("command", {"cpu": 700}, "regular", exclusive=True),
    Shape("command", {"cpu": 200}, "regular", spread="s"),
]  # fmt: skip
waiting = st.lists(
    st.tuples(st.sampled_from(SHAPES), st.integers(1, 4), st.sampled_from(list(Lane)), st.floats(0, 100)), max_size=40
)
sizes = st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=5)


@cases(300)
@given(waiting, sizes, st.integers(1, 50), st.data())
def test_no_task_starts_twice_none_is_lost_and_no_node_is_overbooked(
    tasks: list[tuple[Shape, int, Lane, float]], nodes: list[tuple[int, int, int]], most: int, data: st.DataObject
):
    cluster = Cluster()
    for number, (cpu, workers, window) in enumerate(nodes, 1):
        cluster.node(number, cpu=cpu, workers=workers, window=window)
    offered = [cluster.ready(shape, tenant=tenant, lane=lane, start_by=due)[0] for shape, tenant, lane, due in tasks]
    started: list[int] = []
    for _ in range(6):
        cluster.now += data.draw(st.sampled_from([0.0, 0.5, 5.0, 200.0]))
        started += cluster.plan(most)
        gone = data.draw(st.lists(st.sampled_from([t.id for _, t in cluster.running] or [0]), unique=True, max_size=5))
        cluster.end(*gone)
        for room in cluster.nodes.all():
            held = room.capacity["cpu"] - room.free["cpu"]
            assert held <= room.capacity["cpu"] + 4000 * room.windows["command"]
        assert Counter(p.node for p, _ in cluster.running) == +Counter({r.node: r.count for r in cluster.nodes.all()})
    assert len(started) == len(set(started))
    assert len(started) + len(cluster.planner) == len(offered)
    for key in ("k",):
        assert (
            sum(p.key.tenant == 1 and bool(cluster.nodes.shape(p.key.shape).concurrency) for p, _ in cluster.running)
            <= 2
        )
        assert key


@cases(200)
@given(waiting)
def test_everything_starts_in_the_end_when_there_is_room_in_the_end(tasks: list[tuple[Shape, int, Lane, float]]):
    cluster = Cluster().node(1, cpu=8000, workers=2)
    offered = [cluster.ready(s, tenant=t, lane=lane, start_by=due)[0] for s, t, lane, due in tasks]
    started: set[int] = set()
    for _ in range(len(offered) + 60):
        cluster.now += 2.0
        started.update(cluster.plan())
        cluster.end(*[task.id for _, task in cluster.running])
        if len(started) == len(offered):
            return
    raise AssertionError(f"{len(offered) - len(started)} tasks starved: {list(cluster.planner.lines())}")


def test_what_asks_for_none_of_something_starts_where_there_is_none():
    pool = Cluster().node()
    (task,) = pool.ready(Shape("command", {"cpu": 500, "gpu": 0}, "basic"))
    assert pool.plan() == [task]


def test_a_busy_gpu_puts_off_only_what_needs_one():
    pool = Cluster().node(1, cpu=4000, gpu=2)
    pool.ready(Shape("command", {"cpu": 500, "gpu": 2}, "basic"))
    pool.plan()
    needs_it = pool.ready(Shape("command", {"cpu": 500, "gpu": 0}, "premium"), lane=Lane.OFFPEAK)
    needs_none = pool.ready(Shape("command", {"cpu": 500}, "premium"), lane=Lane.OFFPEAK)
    pool.ready(Shape("command", {"cpu": 500, "gpu": 1}, "regular"), lane=Lane.OFFPEAK)
    assert sorted(pool.plan()) == sorted([*needs_it, *needs_none])


@cases(60)
@given(
    st.integers(1, 8), st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=1, max_size=4),
    st.integers(1, 4),
)  # fmt: skip
def test_nothing_is_late_for_having_been_put_off_while_there_was_room(
    slots: int, lots: list[tuple[int, int]], tenants: int
):
    """A pool at its peak all day with some slots free: whatever could be done there in time is."""
    pool = Cluster(Policy(plans=dict.fromkeys(range(1, 9), Plan(urgent_share=0.1)))).node(1, cpu=45_000 + 500 * slots)
    pool.ready(Shape("command", {"cpu": 45_000}, "basic"), cap=1e6)
    pool.plan()
    whole = sum(count * seconds for count, seconds in lots)
    longest = max(seconds for _, seconds in lots)
    due = whole / slots + 2 * longest + 4 * LOOK_SECONDS + 10
    for number, (count, seconds) in enumerate(lots):
        pool.ready(SMALL, tenant=1 + number % tenants, lane=Lane.OFFPEAK, count=count, start_by=due, cap=float(seconds))
    first = pool.plan()
    assert not first or sum(count for count, _ in lots) > slots, "none need start yet"
    while len(pool.planner) and pool.now < due + 1000:
        pool.now += 1.0
        pool.end(*[task.id for _, task in pool.running if pool.began[task.id] + task.cap_ms / 1000 <= pool.now])
        pool.plan()
    assert max(pool.began.values()) <= due
