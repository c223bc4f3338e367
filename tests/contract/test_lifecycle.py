"""The state machine has one truth: every pair of state and event, through Python's table and through PostgreSQL."""

import pytest

from headway.core.lifecycle import MOVES, STATUS, Event, State
from headway.wire import Key
from tests.store.shop import TENANT, Shop, a_failure, an_end

UNFINISHED = [state for state in State if state < State.DONE]
OVER = [State.DONE, State.FAILED, State.CANCELLED]


async def happen(shop: Shop, task: int, event: Event) -> None:
    """The event's statement, said of the task's first attempt."""
    key = Key(TENANT, task, 1)
    match event:
        case Event.DUE:
            await shop.database.execute("update queue set eligible_at = clock_now() where id = $1 and state = 0", task)
            await shop.queue.promote_due(10)
        case Event.CLAIM:
            await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
        case Event.START:
            await shop.queue.start([key])
        case Event.GIVE_BACK:
            await shop.queue.release([(TENANT, task, 1)])
        case Event.SUCCEED:
            await shop.queue.finish([an_end(task)])
        case Event.FAIL:
            await shop.queue.finish([a_failure(task)])
        case Event.RETRY:
            await shop.queue.try_again([a_failure(task, status=None)])
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
            await shop.steering.give_way([a_failure(task, status=None)])


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
