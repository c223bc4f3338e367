"""Every event of the lifecycle as the statement that says it."""

from __future__ import annotations

from headway.core.lifecycle import Event
from headway.wire import Key
from tests.store.shop import TENANT, Shop, a_failure, an_end


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
