"""Pauses, changes and the events they write, on the real schema."""

from __future__ import annotations

from headway.core.amend import Amended
from headway.core.lifecycle import Lane, State
from headway.store.events import EventRow, EventStore, Place
from headway.store.rows import End
from headway.wire import Key, Outcome
from tests.store.shop import TENANT, Shop, a_failure, an_end


async def told(shop: Shop, task: int | None = None, after: Place | None = None) -> list[EventRow]:
    store = EventStore(shop.database, 1)
    return await store.after(TENANT, after or Place(), task=task, kinds=None, most=100)


async def kinds(shop: Shop, task: int) -> list[str]:
    return [event.kind for event in await told(shop, task)]


async def test_an_end_that_is_well_is_no_event(shop: Shop):
    task = await shop.task(State.RUNNING)
    await shop.queue.finish([an_end(task)])
    assert await kinds(shop, task) == []


async def test_an_attempt_that_overstayed_is_told_in_the_statement_that_ends_it(shop: Shop):
    last, again = await shop.task(State.RUNNING), await shop.task(State.RUNNING)
    await shop.queue.finish([an_end(last, outcome=Outcome.CAPPED, status=3)])
    await shop.queue.try_again([an_end(again, outcome=Outcome.CAPPED, status=None)])
    (one,), (other,) = await told(shop, last), await told(shop, again)
    assert (one.kind, one.status, one.attempt) == ("cap_exceeded", 3, 1)
    assert (other.kind, other.status, other.attempt) == ("cap_exceeded", None, 1)


async def test_a_late_end_tells_nothing(shop: Shop):
    task = await shop.task(State.RUNNING)
    await shop.queue.finish([a_failure(task, attempt=7)])
    await shop.queue.try_again([a_failure(task, attempt=7, status=None)])
    await shop.steering.give_way([a_failure(task, attempt=7, status=None)])
    assert await kinds(shop, task) == []


async def test_every_other_fate_is_told(shop: Shop):
    task = await shop.task(State.RUNNING)
    key = Key(TENANT, task, 1)
    await shop.steering.freeze([(key, "for urgent work")])
    await shop.steering.pause(TENANT, task, "by key:a")
    await shop.steering.resume(TENANT, task, "by key:a")
    await shop.steering.thaw([key])
    await shop.steering.give_way([a_failure(task, status=None)])
    await shop.queue.cancel(TENANT, [task])
    said = ["preempted", "paused", "resumed", "resumed", "checkpointed", "cancelled"]
    assert await kinds(shop, task) == said


async def test_events_are_read_on_from_a_place_and_by_one_tenant(shop: Shop):
    first = await shop.task(State.RUNNING)
    await shop.queue.finish([a_failure(first)])
    (seen,) = await told(shop)
    second = await shop.task(State.RUNNING)
    await shop.queue.finish([a_failure(second)])
    assert [event.task for event in await told(shop, after=seen.place)] == [second]
    assert await EventStore(shop.database, 1).after(TENANT + 1, Place(), task=None, kinds=None, most=9) == []
    only = await EventStore(shop.database, 1).after(TENANT, Place(), task=None, kinds=["retried"], most=9)
    assert only == []


async def test_the_order_is_that_of_numbers_and_not_of_their_digits(shop: Shop):
    insert = (
        "insert into event (pool, tenant, id, tx, kind, attempt, code, message) "
        "values (1, 1, $1, $2::text::xid8, 'x', 0, '', '')"
    )
    task = await shop.task()
    for tx in ("9", "10", "100"):
        await shop.database.execute(insert, task, tx)
    assert [event.place.tx for event in await told(shop)] == [9, 10, 100]
    assert [event.place.tx for event in await told(shop, after=Place(9, 10**9))] == [10, 100]


async def test_an_event_is_not_shown_while_an_earlier_one_may_still_come(shop: Shop):
    """The order of commits is not the order of numbers: a reader must not step over what is not there yet."""
    slow, quick = await shop.task(State.READY), await shop.task(State.READY)
    pool = shop.database._pool  # pyright: ignore[reportPrivateUsage]
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "insert into event (pool, tenant, id, kind, attempt, code, message) values (1, 1, $1, 'x', 0, '', '')", slow
        )
        await shop.queue.cancel(TENANT, [quick])
        assert await told(shop) == []
        await transaction.commit()
    assert [event.task for event in await told(shop)] == [slow, quick]


async def test_a_task_that_gave_way_has_the_rest_of_its_cap_left_and_its_checkpoint(shop: Shop):
    task = await shop.task(State.RUNNING)
    assert not await shop.steering.keep_checkpoint(Key(TENANT, task, 1), "sha256:abc"), "there is no such blob"
    blob = "insert into blob (pool, tenant, digest, size, body) values (1, 1, $1, 1, 'x')"
    for digest in ("sha256:old", "sha256:abc"):
        await shop.database.execute(blob, digest)
        assert await shop.steering.keep_checkpoint(Key(TENANT, task, 1), digest)
    uses = await shop.database.fetch("select digest from blob_use where id = $1", task)
    assert [row["digest"] for row in uses] == ["sha256:abc"], "the last one is needed, and no other"
    assert not await shop.steering.keep_checkpoint(Key(TENANT, task, 2), "sha256:of-nobody")
    await shop.steering.give_way([_left(task, ran_ms=20_000)])
    await shop.queue.promote_due(10)
    (claimed,) = await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert (claimed.attempt, claimed.cap_ms, claimed.checkpoint) == (2, 10_000, "sha256:abc")
    (tries,) = (await shop.queue.tries([(TENANT, task)])).values()
    assert (tries.failures, tries.losses) == (0, 0)
    await shop.queue.finish([an_end(task, attempt=2)])
    assert await shop.database.fetch("select digest from blob_use where id = $1", task) == []


async def test_a_failure_gives_the_next_attempt_its_whole_cap_again(shop: Shop):
    task = await shop.task(State.RUNNING)
    await shop.steering.give_way([_left(task, ran_ms=20_000)])
    await shop.queue.promote_due(10)
    await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    await shop.queue.try_again([a_failure(task, attempt=2, status=None, delay_ms=0)])
    await shop.queue.promote_due(10)
    (claimed,) = await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert claimed.cap_ms == 30_000


def _left(task: int, *, ran_ms: int) -> End:
    return End(TENANT, task, 1, Outcome.YIELDED, None, ran_ms, 85, 0, "preempted", "left", None, None, None)


async def test_time_in_a_pause_does_not_count_against_the_tolerance(shop: Shop):
    task = await shop.task(State.READY, seconds=60.0)
    await shop.steering.pause(TENANT, task, "")
    early = "update queue set eligible_at = eligible_at - interval '1 hour', start_by = start_by - interval '1 hour'"
    await shop.database.execute(f"{early} where id = $1", task)
    await shop.steering.resume(TENANT, task, "")
    left = "select extract(epoch from start_by - clock_now())::float8 as left from queue where id = $1"
    row = await shop.database.fetchrow(left, task)
    assert row is not None and 50 < row["left"] <= 60


async def test_a_change_is_kept_in_both_records_and_told_to_the_leader_once(shop: Shop):
    task = await shop.task(State.READY)
    assert await shop.steering.change(TENANT, task, Amended(execution_cap_ms=99_000, delay_tolerance_ms=500))
    (row,) = await shop.tasks.get(TENANT, [task])
    assert (row["execution_cap_ms"], row["delay_tolerance_ms"], row["lane"]) == (99_000, 500, Lane.URGENT)
    (changed,) = await shop.steering.changes()
    assert (changed.key.task, changed.line.lane, changed.left_ms) == (task, Lane.URGENT, 99_000)
    await shop.steering.change(TENANT, task, Amended(execution_cap_ms=98_000))
    await shop.steering.taken_in([changed])
    (again,) = await shop.steering.changes()
    assert again.left_ms == 98_000
    await shop.steering.taken_in([again])
    assert await shop.steering.changes() == []


async def test_a_task_that_is_over_or_of_somebody_else_is_not_changed(shop: Shop):
    over, waits = await shop.task(State.RUNNING), await shop.task()
    await shop.queue.finish([an_end(over)])
    assert not await shop.steering.change(TENANT, over, Amended(execution_cap_ms=5))
    assert not await shop.steering.change(TENANT + 1, waits, Amended(execution_cap_ms=5))
    assert await shop.steering.pause(TENANT + 1, waits, "") is None
    assert await shop.steering.resume(TENANT + 1, waits, "") is None
