"""Accounts as rows: changed one after the other, counted, and read whole as of one moment."""

from __future__ import annotations

import asyncio

import pytest

from headway.core.refusal import Refused
from headway.store.accounts import AccountStore, PlanChange, PolicyRows, PoolChange, Tenant, TenantChange, TierChange
from headway.store.cluster import ApiKey
from tests.store.shop import TENANT, Shop


@pytest.fixture
def accounts(shop: Shop) -> AccountStore:
    return AccountStore(shop.database, 1)


async def policy(accounts: AccountStore, known: int = 0) -> PolicyRows:
    rows = await accounts.policy(known)
    assert rows is not None
    return rows


async def a_tenant(accounts: AccountStore, name: str) -> Tenant:
    made = await accounts.create_tenant(name, "default")
    assert isinstance(made, Tenant)
    return made


async def test_a_fresh_database_has_what_a_first_task_needs(accounts: AccountStore):
    there = await policy(accounts)
    assert there.plan_of(TENANT) == there.plans["default"]
    assert there.plans["default"].tiers is None
    assert {name: tier.weight for name, tier in there.tiers.items()} == {"basic": 1, "regular": 2, "premium": 4}
    assert (there.pool.name, there.pool.paused, there.pool.peak_line) == ("default", False, 0.8)


async def test_the_policy_is_read_again_only_after_a_change(accounts: AccountStore):
    before = await policy(accounts)
    assert await accounts.policy(before.version) is None
    changes = (
        lambda: accounts.create_tenant("acme", "default"),
        lambda: accounts.change_tenant("acme", TenantChange(paused=True)),
        lambda: accounts.create_plan("small", PlanChange(quota={"running": 2})),
        lambda: accounts.change_plan("small", PlanChange(urgent_share=0.5)),
        lambda: accounts.keep_tier("basic", TierChange(weight=3)),
        lambda: accounts.change_pool("default", PoolChange(paused=True)),
    )
    for change in changes:
        await change()
        after = await policy(accounts, before.version)
        assert after.version > before.version
        before = after
    assert [(tenant.name, tenant.paused) for tenant in before.tenants.values()] == [("default", False), ("acme", True)]
    assert (before.plans["small"].quota, before.plans["small"].urgent_share) == ({"running": 2}, 0.5)
    assert (before.tiers["basic"].weight, before.pool.paused) == (3, True)


async def test_tenants_made_at_once_get_numbers_of_their_own(accounts: AccountStore):
    made = await asyncio.gather(*(a_tenant(accounts, f"t{number}") for number in range(12)))
    assert sorted(tenant.tenant for tenant in made) == list(range(2, 14))


async def test_a_name_is_taken_once(accounts: AccountStore):
    twice = await asyncio.gather(*(accounts.create_tenant("acme", "default") for _ in range(3)))
    assert sum(made is None for made in twice) == 2
    assert await accounts.create_plan("default", PlanChange()) is None


async def test_a_plan_that_is_not_there_is_refused(accounts: AccountStore):
    no_plan = Refused("plan", "there is no plan 'gold'")
    assert await accounts.create_tenant("acme", "gold") == no_plan
    assert await accounts.change_tenant("default", TenantChange(plan="gold")) == no_plan
    assert await accounts.change_tenant("nobody", TenantChange(paused=True)) is None
    assert await accounts.change_plan("gold", PlanChange(urgent_share=0.5)) is None


async def test_what_a_change_does_not_mention_stays(accounts: AccountStore):
    await accounts.create_plan("small", PlanChange(tiers=["basic"], quota={"cpu": 4000}, resource_max={"cpu": 2000}))
    plan = await accounts.change_plan("small", PlanChange(urgent_share=0.5))
    assert plan is not None
    assert (plan.tiers, plan.quota, plan.resource_max, plan.urgent_share) == (
        ("basic",), {"cpu": 4000}, {"cpu": 2000}, 0.5,
    )  # fmt: skip
    plan = await accounts.change_plan("small", PlanChange(tiers=None, resource_max=None, quota={}))
    assert plan is not None
    assert (plan.tiers, plan.quota, plan.resource_max, plan.urgent_share) == (None, {}, None, 0.5)


async def test_a_new_tier_gets_caps_that_go_together(accounts: AccountStore):
    long = await accounts.keep_tier("long", TierChange(needs={"cpu": 1}, default_cap_ms=10 * 3_600_000))
    short = await accounts.keep_tier("short", TierChange(needs={"cpu": 1}, max_cap_ms=60_000))
    assert not isinstance(long, Refused)
    assert not isinstance(short, Refused)
    assert (long.default_cap_ms, long.max_cap_ms) == (36_000_000, 36_000_000)
    assert (short.default_cap_ms, short.max_cap_ms, short.weight) == (60_000, 60_000, 1)
    assert await accounts.keep_tier("basic", TierChange(max_cap_ms=1)) == Refused(
        "max_cap", "must not be shorter than default_cap"
    )
    refused = await accounts.keep_tier("empty", TierChange(weight=2))
    assert isinstance(refused, Refused)
    assert refused.path == "resources"


async def test_a_pool_keeps_its_hysteresis_under_its_line(accounts: AccountStore):
    refused = await accounts.change_pool("default", PoolChange(peak_line=0.05))
    assert isinstance(refused, Refused)
    changed = await accounts.change_pool("default", PoolChange(peak_line=0.7, half_life_seconds=60))
    assert not isinstance(changed, Refused)
    assert changed is not None
    assert (changed.peak_line, changed.peak_hysteresis, changed.half_life_seconds) == (0.7, 0.1, 60)


async def test_a_revoked_key_is_unknown_and_stays_revoked(accounts: AccountStore, shop: Shop):
    made = await accounts.create_key("abc", tenant="default", role="admin", digest=b"d", label="ci", created_by="key:x")
    assert made is not None
    assert await accounts.keys(None, None) == [made]
    assert not await accounts.revoke_key("abc", tenant=TENANT, role="client")
    assert await accounts.revoke_key("abc")
    assert not await accounts.revoke_key("abc")
    assert await shop.cluster.key("abc") is None
    assert not await shop.cluster.keep_key(ApiKey("abc", TENANT, "admin", b"d"))
    assert await shop.cluster.key("abc") is None
    assert await accounts.keys(None, None) == []


async def test_keys_are_listed_by_tenant_and_role(accounts: AccountStore):
    await a_tenant(accounts, "acme")
    for key_id, tenant, role in (("a", "acme", "client"), ("b", "acme", "node"), ("c", "default", "client")):
        await accounts.create_key(key_id, tenant=tenant, role=role, digest=b"d", label="", created_by="key:x")
    assert [key.id for key in await accounts.keys("acme", "client")] == ["a"]
    assert [key.id for key in await accounts.keys(None, None, "a", 1)] == ["b"]
    assert await accounts.create_key("d", tenant="no", role="client", digest=b"d", label="", created_by="x") is None
