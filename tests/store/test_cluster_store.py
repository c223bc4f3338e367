"""Leadership, issuer numbers and nodes."""

from tests.store.shop import Shop

MARGIN_MS = 120_000


async def test_a_pool_has_one_leader_until_its_lease_runs_out(shop: Shop):
    assert await shop.cluster.elect("another", 60.0) is None
    assert await shop.cluster.renew(shop.epoch, 60.0)
    await shop.cluster.resign(shop.epoch)
    assert not await shop.cluster.renew(shop.epoch, 60.0)
    assert await shop.cluster.elect("another", 60.0) == shop.epoch + 1


async def test_a_restarted_server_need_not_wait_for_its_own_lease(shop: Shop):
    assert await shop.cluster.elect("test", 60.0) == shop.epoch + 1
    assert not await shop.cluster.renew(shop.epoch, 60.0)


async def test_two_gateways_never_share_a_number(shop: Shop):
    first = await shop.cluster.take_issuer("a", 60.0, MARGIN_MS)
    second = await shop.cluster.take_issuer("b", 60.0, MARGIN_MS)
    assert first is not None
    assert second is not None
    assert first[0] != second[0]


async def test_the_next_holder_may_not_stamp_what_the_last_one_may_have(shop: Shop):
    first = await shop.cluster.take_issuer("a", 60.0, MARGIN_MS)
    assert first is not None
    used_until_ms = int((await shop.cluster.hour()).timestamp() * 1000) + 150_000
    assert await shop.cluster.renew_issuer(first[0], "a", -1.0, used_until_ms)
    second = await shop.cluster.take_issuer("b", 60.0, MARGIN_MS)
    assert second == (first[0], used_until_ms)


async def test_a_node_keeps_its_number_across_restarts(shop: Shop):
    again = await shop.cluster.join_node("n1", "second", "{}", "{}", "[]", 60.0, "home")
    other = await shop.cluster.join_node("n2", "first", "{}", "{}", "[]", 60.0, "home")
    assert again == shop.node
    assert other != shop.node


async def test_a_number_whose_stamps_ran_far_ahead_rests_until_the_clock_caught_up(shop: Shop):
    first = await shop.cluster.take_issuer("a", 60.0, MARGIN_MS)
    assert first is not None
    a_year = int((await shop.cluster.hour()).timestamp() * 1000) + 366 * 86_400_000
    assert await shop.cluster.renew_issuer(first[0], "a", -1.0, a_year)
    second = await shop.cluster.take_issuer("b", 60.0, MARGIN_MS)
    assert second is not None
    assert second[0] != first[0]
