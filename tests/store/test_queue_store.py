"""Claims, ends and reads of the hot table."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from headway.core.lifecycle import Lane, State
from headway.core.queue import LineKey
from headway.store.queue import BEGINNING
from headway.wire import Key
from tests.store.shop import SHAPE, TENANT, Shop, a_failure, an_end

T = TypeVar("T")
LINE = LineKey(TENANT, Lane.NORMAL, SHAPE)


async def test_a_claim_gives_what_a_runner_needs(shop: Shop):
    task = await shop.task()
    (claimed,) = await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert (claimed.id, claimed.attempt, claimed.node, claimed.kind) == (task, 1, shop.node, "command")
    assert (claimed.cap_ms, claimed.grace_ms, claimed.spec) == (30_000, 5000, '{"command":["/bin/true"]}')


async def test_a_task_is_claimed_once_however_many_try(shop: Shop):
    ids = await shop.tasks_ready(50)
    wanted = [(TENANT, task, shop.node) for task in ids]
    claims = await asyncio.gather(*(shop.queue.claim(shop.epoch, wanted) for _ in range(4)))
    assert sorted(one.id for claim in claims for one in claim) == ids


async def test_a_stale_leader_claims_nothing(shop: Shop):
    task = await shop.task()
    await shop.cluster.resign(shop.epoch)
    assert await shop.cluster.elect("another", 60.0) == shop.epoch + 1
    assert await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)]) == []
    assert await shop.state_of(task) == State.READY


async def test_an_election_waits_for_claims_under_way(shop: Shop):
    """The claim holds the leadership row: no new epoch begins behind its back, and afterwards it sees the claim."""
    task = await shop.task()
    pool = shop.database._pool  # pyright: ignore[reportPrivateUsage]
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch("select from leadership where pool = 1 for share")
        await shop_expires(shop)
        election = asyncio.create_task(shop.cluster.elect("another", 60.0))
        await until_blocked(shop)
        assert not election.done()
        await transaction.commit()
    assert await election == shop.epoch + 1
    assert await shop.state_of(task) == State.READY


async def shop_expires(shop: Shop) -> None:
    """Time passes for the leader's lease, by the database's clock."""
    await shop.database.execute(
        "create or replace function clock_now() returns timestamptz language sql stable as "
        "$$ select statement_timestamp() + interval '10 minutes' $$"
    )


async def until_blocked(shop: Shop) -> None:
    blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while not (await shop.database.fetch(blocked))[0][0]:
        await asyncio.sleep(0)


async def test_a_cancel_that_meets_a_claim_is_not_lost(shop: Shop):
    task = await shop.task()
    claim = "update queue set state = 2, attempt = 1, claims = 1, node = $1, epoch = $2, claimed_at = clock_now()"
    found = await meeting(shop, claim, [shop.node, shop.epoch], shop.queue.cancel(TENANT, [task]))
    assert found == {task: (Key(TENANT, task, 1), shop.node)}
    assert await shop.state_of(task) == State.CANCELLING


async def test_what_is_given_back_while_it_is_cancelled_ends(shop: Shop):
    task = await shop.task(State.CLAIMED)
    await meeting(shop, "update queue set state = 4", [], shop.queue.release([(TENANT, task, 1)]))
    assert await shop.state_of(task) == State.CANCELLED


async def test_what_fails_while_it_is_cancelled_ends(shop: Shop):
    task = await shop.task(State.RUNNING)
    await meeting(shop, "update queue set state = 4", [], shop.queue.try_again([a_failure(task, status=None)]))
    assert await shop.state_of(task) == State.CANCELLED


async def meeting(shop: Shop, change: str, arguments: list[object], late: Coroutine[None, None, T]) -> T:
    """Runs a statement of the store that waits for the row another transaction has just changed."""
    pool = shop.database._pool  # pyright: ignore[reportPrivateUsage]
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute(change, *arguments)
            waiting = asyncio.create_task(late)
            await until_blocked(shop)
        return await waiting


async def test_a_late_result_changes_nothing(shop: Shop):
    task = await shop.task(State.CLAIMED)
    await shop.queue.try_again([a_failure(task, status=None, delay_ms=0)])
    await shop.queue.promote_due(10)
    await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert await shop.queue.finish([an_end(task, attempt=1)]) == []
    assert await shop.state_of(task) == State.CLAIMED
    assert await shop.queue.finish([an_end(task, attempt=2)]) == [(TENANT, task)]


async def test_a_repeated_result_changes_nothing(shop: Shop):
    task = await shop.task(State.CLAIMED)
    assert await shop.queue.finish([an_end(task)]) == [(TENANT, task)]
    assert await shop.queue.finish([an_end(task)]) == []
    assert [row["attempt"] for row in await shop.tasks.attempts(TENANT, task)] == [1]


async def test_giving_back_costs_no_attempt(shop: Shop):
    task = await shop.task(State.CLAIMED)
    ((line, ready),) = await shop.queue.release([(TENANT, task, 1)])
    assert (line, ready.id) == (LINE, task)
    (again,) = await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert again.attempt == 1


async def test_a_late_hand_back_cannot_take_a_later_claim_away(shop: Shop):
    """The number of an attempt that never began is used again; the count of claims is not."""
    task = await shop.task(State.CLAIMED)
    await shop.queue.release([(TENANT, task, 1)])
    (again,) = await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert (again.attempt, again.claims) == (1, 2)
    assert await shop.queue.release([(TENANT, task, 1)]) == []
    assert await shop.state_of(task) == State.CLAIMED


async def test_failures_and_losses_are_counted_apart(shop: Shop):
    task = await shop.task(State.CLAIMED)
    await shop.queue.try_again([a_failure(task, status=None, delay_ms=0)])
    await shop.queue.promote_due(10)
    await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    tries = (await shop.queue.tries([(TENANT, task)]))[TENANT, task]
    assert (tries.failures, tries.losses, tries.max_attempts) == (1, 0, 3)


async def test_another_tenant_cannot_cancel(shop: Shop):
    await shop.database.execute("insert into tenant values (2, 'other')")
    task = await shop.task()
    assert await shop.queue.cancel(2, [task]) == {}
    assert await shop.state_of(task) == State.READY


async def test_lines_are_read_in_order_from_where_the_last_read_ended(shop: Shop):
    late = await shop.task(seconds=90)
    early = await shop.tasks_ready(3, seconds=30)
    assert await shop.queue.ready_keys() == [LINE]
    first = await shop.queue.ready_after({LINE: BEGINNING}, 2)
    assert [task.id for _, task in first] == early[:2]
    rest = await shop.queue.ready_after({LINE: first[-1][1]}, 10)
    assert [task.id for _, task in rest] == [early[2], late]


async def test_every_line_is_found_however_many_tasks_each_has(shop: Shop):
    await shop.database.execute("insert into tenant values (2, 'two'), (3, 'three')")
    for tenant, count in ((1, 40), (2, 1), (3, 7)):
        await shop.tasks_ready(count, tenant=tenant)
    assert [key.tenant for key in await shop.queue.ready_keys()] == [1, 2, 3]


async def test_what_waits_behind_a_horizon_is_counted_up_to_a_bound(shop: Shop):
    await shop.tasks_ready(30)
    first = await shop.queue.ready_after({LINE: BEGINNING}, 10)
    horizon = first[-1][1]
    assert await shop.queue.ready_depths({LINE: BEGINNING}, 100) == {LINE: 30}
    assert await shop.queue.ready_depths({LINE: horizon}, 100) == {LINE: 20}
    assert await shop.queue.ready_depths({LINE: horizon}, 5) == {LINE: 5}
