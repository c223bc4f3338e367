"""Migrations: once, in order, by one at a time, and never on a schema that is not theirs."""

import asyncio

import asyncpg
import pytest

from headway.store.migrate import SLICED, MigrationFault, migrate, shipped


async def test_a_second_run_changes_nothing(empty_database_url: str):
    assert await migrate(empty_database_url) == [f"{m.version:04} {m.name}" for m in shipped()]
    assert await migrate(empty_database_url) == []


async def test_first_starts_at_once_apply_each_migration_once(empty_database_url: str):
    applied = await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))
    assert sorted(name for one in applied for name in one) == [f"{m.version:04} {m.name}" for m in shipped()]


async def run(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_a_changed_migration_stops_the_start(database_url: str):
    await run(database_url, "update migration set checksum = 'another' where version = 1")
    with pytest.raises(MigrationFault, match="was changed after it had been applied"):
        await migrate(database_url)


async def test_a_newer_schema_stops_the_start(database_url: str):
    await run(database_url, "insert into migration (version, name, checksum) values (9999, 'future', 'x')")
    with pytest.raises(MigrationFault, match="newer one"):
        await migrate(database_url)


async def test_partitions_are_there_for_now_and_the_time_to_come(database_url: str):
    sliced = ", ".join(f"'{table}'" for table in SLICED)
    counted = f"select count(*) from pg_inherits where inhparent::regclass::text in ({sliced})"
    assert await run(database_url, counted) == 3 * len(SLICED)
