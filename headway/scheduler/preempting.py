"""Who is paused for what is pressing, by the leader: decides, counts and says why, and hands the decisions over.

The promise: a decision is made only about an attempt that a node owns by the leader's books at that moment, and only
while somebody is there to carry it out. Nobody is decided about twice: an attempt that was is leaving, until it is
struck off the books (it left, or ended first), or `stays` says that it could not be moved.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import structlog

from headway.core.feedback import Preemption
from headway.core.plan import Planner
from headway.scheduler.books import Books
from headway.wire import Key

LOOK_SECONDS = 0.25
"""How often it is looked for who has found no room for a while; the core waits a second before it pauses anybody."""
_log = structlog.get_logger("headway.scheduler")


class Order(NamedTuple):
    """One attempt to pause, where it runs, and the decision with its reason."""

    node: int
    key: Key
    decision: Preemption


class Preempting:
    """Turns the brain's decisions into orders."""

    def __init__(self, *, planner: Planner, books: Books, now: Callable[[], float]) -> None:
        self._planner = planner
        self._books = books
        self._now = now
        self.carry_out: Callable[[list[Order]], None] | None = None
        """Pauses the attempts on their nodes; while nobody does, nothing is decided. Must not wait."""
        self.decided: Counter[tuple[str, str]] = Counter()
        """How many decisions there were, by for what (`urgent`, `short`) and how (`freeze`, `checkpoint`)."""

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.run_once()

    def run_once(self) -> list[Order]:
        """One look; answers what was handed over. Costs nothing while nothing that runs may be paused."""
        if self.carry_out is None or not len(self._books.feedback):
            return []
        planner = self._planner
        decisions = self._books.feedback.decide(planner.without_room(), planner.policy, self._now())
        orders = [order for decision in decisions if (order := self._order(decision)) is not None]
        for order in orders:
            self._tell(order)
        if orders:
            self.carry_out(orders)
        return orders

    def stays(self, key: Key) -> None:
        """An attempt that was to be paused goes on: it could not be, or not in time. It may be asked again."""
        run = self._books.feedback.run(key.task)
        if run is not None:
            run.is_leaving = False

    def _order(self, decision: Preemption) -> Order | None:
        run = decision.run
        holding = self._books.find(run.node, (run.key.tenant, run.task))
        return None if holding is None else Order(run.node, Key(run.key.tenant, run.task, holding.attempt), decision)

    def _tell(self, order: Order) -> None:
        one = order.decision
        self.decided[one.code, one.how] += 1
        _log.info(
            "preempted", task=order.key.task, attempt=order.key.attempt, tenant=order.key.tenant, node=order.node,
            how=one.how, level=one.level, code=one.code, why=one.message, for_tenant=one.beneficiary.tenant,
            for_shape=one.beneficiary.shape,
        )  # fmt: skip
