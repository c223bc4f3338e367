"""The leader's decisions about whom to pause: only about what a node owns, handed over once, counted and explained."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.lifecycle import Lane
from headway.core.nodes import Nodes
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.policy import Policy
from headway.core.queue import LineKey, ReadyTask
from headway.scheduler.books import Books, Holding
from headway.scheduler.preempting import Order, Preempting
from headway.wire import Key

PATIENT = Shape("command", {"cpu": 1000}, "basic", preemptible=True)
FIXED = Shape("command", {"cpu": 1000}, "basic")


class Pool:
    """A planner, its books and what decides about pausing, with a clock that the test turns."""

    def __init__(self, shape: Shape = PATIENT) -> None:
        self.now = 0.0
        nodes = Nodes()
        self.books = Books(nodes, lambda: self.now)
        self.planner = Planner(nodes, Policy(promotion_margin_seconds=0), running_on=self.books.running_on)
        self.preempting = Preempting(planner=self.planner, books=self.books, now=lambda: self.now)
        self.orders: list[Order] = []
        self.preempting.carry_out = self.orders.extend
        self._ids: Iterator[int] = iter(range(1, 1000))
        nodes.learn(1, shape)
        nodes.learn(2, FIXED)
        room = NodeRoom(7, "n7", capacity={"cpu": 2000}, kinds=["command"], functions=[], windows={})
        self.planner.join(room, self.now)

    def start(self, shape: int = 1, *, tenant: int = 1, lane: Lane = Lane.NORMAL, attempt: int = 1) -> int:
        """Offers a task, and enters in the books whatever the planner starts."""
        task = next(self._ids)
        self.planner.offer(LineKey(tenant, lane, shape), [ReadyTask(1e6, 600_000, task)])
        for placement in self.planner.plan(self.now, most=10):
            for one in placement.tasks:
                holding = Holding(attempt, 1, placement.key, placement.express, self.now + 600)
                self.books.enter(placement.node, (placement.key.tenant, one.id), holding)
        return task

    def with_urgent_work_waiting(self) -> int:
        """Two tasks run since long, and something urgent of another tenant has found no room for two seconds."""
        first = self.start(attempt=3)
        self.now = 90.0
        self.start()
        self.now = 100.0
        self.start(2, tenant=2, lane=Lane.URGENT)
        self.now = 102.0
        return first


def test_the_attempt_that_the_node_owns_is_named_with_the_reason_and_counted():
    pool = Pool()
    first = pool.with_urgent_work_waiting()
    assert pool.preempting.run_once() == pool.orders
    (order,) = pool.orders
    assert (order.node, order.key) == (7, Key(1, first, 3))
    assert order.decision.beneficiary == LineKey(2, Lane.URGENT, 2)
    assert "urgent work that found no room" in order.decision.message
    assert pool.preempting.decided == {("urgent", "freeze"): 1}


def test_it_is_handed_over_once():
    pool = Pool()
    pool.with_urgent_work_waiting()
    pool.preempting.run_once()
    pool.now += 1.0
    assert pool.preempting.run_once() == []


def test_while_nobody_carries_it_out_nothing_is_decided():
    pool = Pool()
    pool.with_urgent_work_waiting()
    pool.preempting.carry_out = None
    assert pool.preempting.run_once() == []
    assert not pool.preempting.decided


def test_what_does_not_allow_it_is_left_alone():
    pool = Pool(FIXED)
    pool.with_urgent_work_waiting()
    assert pool.preempting.run_once() == []


def test_what_was_struck_off_the_books_is_not_decided_about():
    pool = Pool()
    first = pool.with_urgent_work_waiting()
    pool.books.strike(pool.planner, [(1, first, 3)], 7)
    assert pool.books.feedback.run(first) is None
    pool.books.strike_node(pool.planner, 7)
    assert len(pool.books.feedback) == 0


def test_one_that_could_not_be_moved_may_be_asked_again():
    pool = Pool()
    first = pool.with_urgent_work_waiting()
    pool.preempting.run_once()
    pool.preempting.stays(Key(1, first, 3))
    pool.now += 31.0
    assert [order.key.task for order in pool.preempting.run_once()] == [first]
