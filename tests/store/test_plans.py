"""Every statement is valid on the real schema, and the hot ones keep their plan whatever the statistics say.

Statistics of a table that changes by the second always lie. So each hot statement is planned as the servers plan it
(pinned connection, one plan for any batch size) on tables never analyzed, analyzed while empty, and analyzed while tiny
but grown since; then run with 1, 500 and 5,000 ids.
"""

import json

import asyncpg
import pytest

from headway.store.database import PINNED, Database
from headway.store.statements import all_statements
from tests.store.shop import TENANT, Shop

HOT = [
    "queue.claim", "queue.start", "queue.release", "queue.finish", "queue.try_again", "queue.cancel",
    "queue.promote_due", "queue.ready_keys", "queue.ready_after", "queue.ready_depths", "queue.tries", "tasks.get",
    "tasks.finished",
]  # fmt: skip
BIG_TABLES = ("queue", "task", "attempt")


async def test_every_statement_is_valid_on_the_schema(database_url: str):
    connection = await asyncpg.connect(database_url, server_settings=PINNED)
    try:
        for sql in all_statements().values():
            await connection.prepare(sql)
    finally:
        await connection.close()


def scans(plan: dict[str, object]) -> list[dict[str, object]]:
    """Every scan of a big table in a plan."""
    inner = [found for child in plan.get("Plans", []) for found in scans(child)]  # type: ignore[attr-defined]
    relation = str(plan.get("Relation Name", ""))
    if relation.split("_")[0] in BIG_TABLES and "Scan" in str(plan["Node Type"]):
        inner.append(plan)
    return inner


async def plan_of(database: Database, statement: str) -> dict[str, object]:
    pool = database._pool  # pyright: ignore[reportPrivateUsage]
    async with pool.acquire() as connection:
        sql = all_statements()[statement]
        count = len((await connection.prepare(sql)).get_parameters())
        await connection.execute(f"prepare probe as {sql}")
        nulls = ", ".join(["null"] * count)
        (row,) = await connection.fetch(f"explain (format json) execute probe({nulls})")
        await connection.execute("deallocate probe")
    return json.loads(row[0])[0]["Plan"]


async def assert_indexed(database: Database, statement: str) -> None:
    for scan in scans(await plan_of(database, statement)):
        where = f"{statement}: {scan['Node Type']} on {scan['Relation Name']}"
        assert scan["Node Type"] in ("Index Scan", "Index Only Scan"), where
        condition = str(scan.get("Index Cond", ""))
        by_key = "tenant" in condition and "id" in condition
        by_prefix = scan["Index Name"] in ("queue_ready", "queue_scheduled")
        assert by_key or by_prefix, f"{where} with only {condition}"


@pytest.mark.parametrize("statement", HOT)
async def test_a_hot_statement_uses_its_key_on_any_statistics(shop: Shop, statement: str):
    await assert_indexed(shop.database, statement)
    await shop.database.execute("analyze")
    await assert_indexed(shop.database, statement)
    await shop.tasks_ready(3)
    await shop.database.execute("analyze")
    await shop.tasks_ready(6000)
    await assert_indexed(shop.database, statement)


@pytest.mark.parametrize("count", [1, 500, 5000])
async def test_a_claim_costs_the_same_per_task_at_any_batch_size(shop: Shop, count: int):
    """The buffers a claim touches grow with the batch and not with the table behind it."""
    await shop.database.execute("analyze")
    ids = (await shop.tasks_ready(6000))[:count]
    pool = shop.database._pool  # pyright: ignore[reportPrivateUsage]
    sql = "explain (analyze, buffers, format json) " + all_statements()["queue.claim"]
    async with pool.acquire() as connection:
        (row,) = await connection.fetch(sql, 1, shop.epoch, [TENANT] * count, ids, [shop.node] * count)
    plan = json.loads(row[0])[0]["Plan"]
    assert plan["Actual Rows"] == count
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 60 * count + 500
