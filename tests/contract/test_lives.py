"""Whole lives, by chance: whatever is said of a task, in whatever order, database and table agree after each step."""

from __future__ import annotations

import random

import pytest

from headway.core.lifecycle import MOVES, Event, State
from headway.wire import Key
from tests.store.shop import TENANT, Shop, a_failure, an_end

STEPS = 120
LIKELY = 0.8
"""How often what is said is something that moves the task."""


async def happen(shop: Shop, task: int, event: Event) -> None:
    """The event's statement, said of the task's attempt of this moment."""
    row = await shop.database.fetchrow("select attempt, claims from queue where id = $1", task)
    attempt, claims = (1, 1) if row is None else (max(row["attempt"], 1), row["claims"])
    key = Key(TENANT, task, attempt)
    match event:
        case Event.DUE:
            await shop.database.execute("update queue set eligible_at = clock_now() where id = $1 and state = 0", task)
            await shop.queue.promote_due(10)
        case Event.CLAIM:
            await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
        case Event.START:
            await shop.queue.start([key])
        case Event.GIVE_BACK:
            await shop.queue.release([(TENANT, task, claims)])
        case Event.SUCCEED:
            await shop.queue.finish([an_end(task, attempt=attempt)])
        case Event.FAIL:
            await shop.queue.finish([a_failure(task, attempt=attempt)])
        case Event.RETRY:
            await shop.queue.try_again([a_failure(task, attempt=attempt, status=None)])
        case Event.CANCEL:
            await shop.queue.cancel(TENANT, [task])
        case Event.PAUSE:
            await shop.steering.pause(TENANT, task, "paused")
        case Event.RESUME:
            await shop.steering.resume(TENANT, task, "resumed")
        case Event.FREEZE:
            await shop.steering.freeze([(key, "stands still")])
        case Event.THAW:
            await shop.steering.thaw([key])
        case Event.GIVE_WAY:
            await shop.steering.give_way([a_failure(task, attempt=attempt, status=None)])


@pytest.mark.parametrize("seed", range(6))
async def test_a_life_goes_as_the_table_says(shop: Shop, seed: int):
    chance = random.Random(seed)
    seen: set[tuple[State, Event]] = set()
    task, state = await shop.task(State.READY), State.READY
    for step in range(STEPS):
        moving = [event for one, event in MOVES if one == state]
        event = chance.choice(moving if chance.random() < LIKELY else list(Event))
        await happen(shop, task, event)
        after = MOVES.get((state, event), state)
        assert await shop.state_of(task) == after, f"seed {seed}, step {step}: {state.name} {event.name}"
        seen.add((state, event))
        state = after
        if state >= State.DONE:
            task, state = await shop.task(State.READY), State.READY
    assert len(seen) > 20
