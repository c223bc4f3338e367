"""The state machine has one truth: every pair of state and event, through Python's table and through PostgreSQL."""

import pytest

from headway.core.lifecycle import MOVES, STATUS, Event, State
from tests.contract.happening import happen
from tests.store.shop import Shop

UNFINISHED = [state for state in State if state < State.DONE]
OVER = [State.DONE, State.FAILED, State.CANCELLED]


async def brought_to(shop: Shop, state: State) -> int:
    """A task in a state, over or not."""
    if state in UNFINISHED:
        return await shop.task(state)
    task = await shop.task(State.READY if state == State.CANCELLED else State.CLAIMED)
    ending = {State.DONE: Event.SUCCEED, State.FAILED: Event.FAIL, State.CANCELLED: Event.CANCEL}
    await happen(shop, task, ending[state])
    return task


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
async def test_the_database_moves_as_the_table_says(shop: Shop, state: State, event: Event):
    task = await brought_to(shop, state)
    assert await shop.state_of(task) == state
    await happen(shop, task, event)
    assert await shop.state_of(task) == MOVES.get((state, event), state)


def test_every_state_has_a_word_for_clients():
    assert set(STATUS) == set(State)


def test_no_move_leaves_what_is_over():
    assert not [pair for pair in MOVES if pair[0] in OVER]
