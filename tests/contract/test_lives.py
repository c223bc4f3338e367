"""Whole lives, by chance: whatever is said of a task, in whatever order, database and table agree after each step."""

from __future__ import annotations

import random

import pytest

from headway.core.lifecycle import MOVES, Event, State
from tests.contract.happening import happen
from tests.store.shop import Shop

STEPS = 120
LIKELY = 0.8
"""How often what is said is something that moves the task."""


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
