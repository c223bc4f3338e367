"""Paused names in the database: counted as changes, and found among what waits in bounded parts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headway.core.lifecycle import State
from headway.store.accounts import AccountStore, TierChange
from headway.store.rows import Named
from tests.store.shop import SHAPE, TENANT, Shop


@pytest.fixture
def accounts(shop: Shop) -> AccountStore:
    return AccountStore(shop.database, 1)


async def version(accounts: AccountStore) -> int:
    rows = await accounts.policy()
    assert rows is not None
    return rows.version


async def test_a_pause_and_its_end_are_changes_of_the_policy(accounts: AccountStore):
    before = await version(accounts)
    paused = await accounts.pause_name(TENANT, "encode-*", "key:a", 10)
    assert paused is not None
    rows = await accounts.policy(before)
    assert rows is not None
    assert rows.paused_names == {(TENANT, "encode-*")}
    assert await accounts.resume_name(TENANT, "encode-*")
    assert not await accounts.resume_name(TENANT, "encode-*")
    rows = await accounts.policy(rows.version)
    assert rows is not None
    assert rows.paused_names == frozenset()


async def test_what_is_paused_stays_as_it_was_paused(accounts: AccountStore):
    first = await accounts.pause_name(TENANT, "encode", "key:a", 10)
    assert await accounts.pause_name(TENANT, "encode", "key:b", 10) == first
    assert await accounts.paused_names(TENANT) == [first]


async def test_names_paused_are_bounded(accounts: AccountStore):
    assert await accounts.pause_name(TENANT, "a", "key:a", 2)
    assert await accounts.pause_name(TENANT, "b", "key:a", 2)
    assert await accounts.pause_name(TENANT, "c", "key:a", 2) is None
    assert await accounts.pause_name(TENANT, "b", "key:a", 2)


async def test_names_are_found_part_by_part(shop: Shop):
    ids = await shop.tasks_ready(5)
    (later,) = await shop.tasks_ready(1, scheduled=True)
    found, after = await shop.queue.named(TENANT, ["noop"], [], 0, 3)
    assert ([one.task for one in found], after) == (ids[:3], ids[2])
    found, after = await shop.queue.named(TENANT, [], ["no"], ids[2], 30)
    assert (found[-1], after) == (Named(later, SHAPE, "noop"), later)
    assert await shop.queue.named(TENANT, ["no"], ["op"], 0, 30) == ([], later)
    assert await shop.queue.named(TENANT, ["noop"], [], later, 30) == ([], None)
    assert await shop.queue.named(2, ["noop"], [], 0, 30) == ([], None)


async def test_a_new_shape_stays_with_a_task_whatever_state_it_is_in(shop: Shop):
    made = {state: await shop.task(state) for state in (State.READY, State.SCHEDULED, State.CLAIMED, State.RUNNING)}
    ready = await shop.queue.reshape(TENANT, list(made.values()), [99] * 4)
    assert [(line.shape, task.id) for line, task in ready] == [(99, made[State.READY])]
    assert {one.shape for one in (await shop.queue.named(TENANT, ["noop"], [], 0, 9))[0]} == {99}
    assert [await shop.state_of(task) for task in made.values()] == list(made)
    assert await shop.queue.reshape(2, [made[State.READY]], [7]) == []


async def test_a_claim_tells_the_name(shop: Shop):
    (task,) = await shop.tasks_ready(1)
    (claimed,) = await shop.queue.claim(shop.epoch, [(TENANT, task, shop.node)])
    assert claimed.name == "noop"


async def test_a_tier_keeps_its_price_to_the_last_decimal_and_its_profile(accounts: AccountStore):
    tier = await accounts.tier("basic")
    assert tier is not None
    assert (tier.price, tier.profile) == (0, "sandboxed")
    await accounts.keep_tier("basic", TierChange(price=Decimal("0.123456"), profile="hostile"))
    await accounts.keep_tier("basic", TierChange(weight=3))
    tier = await accounts.tier("basic")
    assert tier is not None
    assert (tier.price, tier.profile, tier.weight) == (Decimal("0.123456"), "hostile", 3)


async def test_only_nodes_that_were_seen_within_a_day_are_known(shop: Shop):
    for name, capacity in (("there", '{"cpu": 8000}'), ("lately", '{"cpu": 4000}'), ("long-gone", '{"cpu": 64000}')):
        node = await shop.cluster.join_node(name, "a", capacity, "{}", "[]", 60.0, "h")
        if name != "there":
            await shop.cluster.leave_node(node, "a")
    aged = "update node set seen_at = clock_now() - interval '23 hours' where name = 'lately'"
    await shop.database.execute(aged)
    await shop.database.execute(aged.replace("23", "25").replace("lately", "long-gone"))
    assert await shop.cluster.known_capacities() == {"there": {"cpu": 8000}, "lately": {"cpu": 4000}}
