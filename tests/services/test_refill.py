"""What the leader holds of the queue, while others put tasks there unheard."""

from __future__ import annotations

from headway.core.lifecycle import Lane
from headway.core.nodes import Nodes
from headway.core.plan import Planner
from headway.core.policy import Policy
from headway.core.queue import LineKey
from headway.scheduler.refill import GLANCE_TASKS, GLANCES, Refill
from tests.store.shop import SHAPE, TENANT, Shop

LINE = LineKey(TENANT, Lane.NORMAL.value, SHAPE)
HELD = 3 * GLANCE_TASKS


class Held:
    """A planner without nodes, and what fills it."""

    def __init__(self, shop: Shop) -> None:
        self.planner = Planner(Nodes(), Policy(), running_on=lambda _: [])
        self.refill = Refill(shop.queue, self.planner)

    def count(self) -> int:
        line = self.planner.line(LINE)
        return 0 if line is None else len(line)


async def test_a_glance_finds_what_is_due_first_and_whole_lines_that_were_not_there(shop: Shop):
    held = Held(shop)
    await shop.tasks_ready(HELD, seconds=60)
    assert await held.refill.discover(everything=False) == held.count() == HELD
    (urgent,) = await shop.tasks_ready(1, seconds=30)
    assert await held.refill.discover(everything=False) == 1
    line = held.planner.line(LINE)
    assert line is not None and line.first.id == urgent
    assert await held.refill.discover(everything=False) == 0


async def test_where_a_glance_ends_among_what_is_new_all_of_the_line_is_read(shop: Shop):
    held = Held(shop)
    await shop.tasks_ready(HELD, seconds=60)
    await held.refill.discover()
    await shop.tasks_ready(2 * GLANCE_TASKS, seconds=30)
    assert await held.refill.discover(everything=False) == 2 * GLANCE_TASKS
    assert held.count() == HELD + 2 * GLANCE_TASKS


async def test_what_is_put_far_back_unheard_is_found_after_some_looks_and_at_once_when_it_is_said(shop: Shop):
    held = Held(shop)
    await shop.tasks_ready(HELD, seconds=60)
    await held.refill.discover()
    await shop.tasks_ready(1, seconds=90)
    assert [await held.refill.discover(everything=False) for _ in range(GLANCES)] == [0] * (GLANCES - 1) + [1]
    await shop.tasks_ready(1, seconds=90)
    assert await held.refill.discover() == 1


async def test_a_line_that_ran_empty_is_filled_again_by_a_glance(shop: Shop):
    held = Held(shop)
    await held.refill.discover()
    ids = await shop.tasks_ready(HELD, seconds=60)
    await held.refill.discover()
    held.planner.drop(ids)
    assert held.count() == 0
    assert await held.refill.discover(everything=False) == held.count() == HELD
