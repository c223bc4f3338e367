"""Forward-only, numbered migrations, each applied once, in order, by one process at a time.

The lock is a row, not an advisory lock (poolers and distributed engines keep rows). A migration whose text changed
after it was applied stops the start: the schema would not be what the code was tested on.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from importlib.resources import files

import asyncpg
import msgspec
import structlog

from headway.core.ids import ID_MAX, first_id_at
from headway.store.database import GONE

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
SLICE_MS = 28 * 86_400_000
"""One partition holds the tasks born in 28 days: retention drops whole ones."""
SLICES_SECONDS = 6 * 3600.0
SLICED = ("task", "attempt", "log", "event", "blob_use", "artifact")

_log = structlog.get_logger("headway.store")

_FOUNDATION = """
create table if not exists migration_lock (lock smallint primary key check (lock = 1));
insert into migration_lock values (1) on conflict do nothing;
create table if not exists migration (
    version int primary key, name text not null, checksum text not null, applied_at timestamptz not null default now()
);
"""


class MigrationFault(Exception):
    """The database's schema and this program do not belong together; the message says what to do."""


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Of the text as shipped."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def shipped() -> list[Migration]:
    """The migrations this program carries, in order."""
    found = [
        Migration(int(match[1]), match[2], entry.read_text())
        for entry in (files("headway.store") / "migrations").iterdir()
        if (match := _FILE.fullmatch(entry.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


async def migrate(url: str) -> list[str]:
    """Brings the database up to this program's schema; answers what was applied."""
    connection = await asyncpg.connect(url)
    try:
        await _lay_foundation(connection)
        async with connection.transaction():
            await connection.execute("select lock from migration_lock for update")
            applied = await _apply_missing(connection, shipped())
            await ensure_slices(connection)
        return applied
    finally:
        await connection.close()


async def _lay_foundation(connection: asyncpg.Connection) -> None:
    """Two first starts at once may both find the tables missing; the slower one then finds them made."""
    if await connection.fetchval(
        "select to_regclass('migration') is not null and to_regclass('migration_lock') is not null"
    ):
        return
    try:
        await connection.execute(_FOUNDATION)
    except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError):
        await connection.execute(_FOUNDATION)


async def _apply_missing(connection: asyncpg.Connection, known: list[Migration]) -> list[str]:
    rows = await connection.fetch("select version, checksum from migration order by version")
    there = {row["version"]: row["checksum"] for row in rows}
    _check(there, known)
    missing = [migration for migration in known if migration.version not in there]
    for migration in missing:
        await connection.execute(migration.sql)
        await connection.execute(
            "insert into migration (version, name, checksum) values ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.checksum,
        )
    return [f"{migration.version:04} {migration.name}" for migration in missing]


def _check(there: dict[int, str], known: list[Migration]) -> None:
    by_version = {migration.version: migration for migration in known}
    for version, checksum in there.items():
        if version not in by_version:
            raise MigrationFault(
                f"The database is at schema {version:04}, which this version of Headway does not know. "
                "It was upgraded by a newer one: install that version, or use another database."
            )
        if by_version[version].checksum != checksum:
            raise MigrationFault(
                f"Migration {version:04}_{by_version[version].name} was changed after it had been applied here. "
                "Install the version of Headway that this database was made with, then upgrade."
            )


async def ensure_slices(connection: asyncpg.Connection) -> list[str]:
    """Makes the partitions for now and the next two slices of time, where they are missing."""
    now_ms = int(await connection.fetchval("select extract(epoch from clock_now()) * 1000"))
    made: list[str] = []
    for number in range(now_ms // SLICE_MS, now_ms // SLICE_MS + 3):
        low, high = first_id_at(number * SLICE_MS), min(first_id_at((number + 1) * SLICE_MS), ID_MAX)
        for table in SLICED:
            name = f"{table}_{number}"
            if await connection.fetchval("select to_regclass($1) is null", name):
                await connection.execute(
                    f"create table {name} partition of {table} for values from ({low}) to ({high})"
                )
                made.append(name)
    return made


async def keep_slices(url: str) -> None:
    """Makes the partitions of the time to come, hours before they are needed."""
    while True:
        await asyncio.sleep(SLICES_SECONDS)
        try:
            connection = await asyncpg.connect(url)
            try:
                async with connection.transaction():
                    await connection.execute("select lock from migration_lock for update")
                    await ensure_slices(connection)
            finally:
                await connection.close(timeout=5)
        except GONE as fault:
            _log.warning("slices_not_checked", why=str(fault))
