"""For every test: a real PostgreSQL, one per session and xdist worker, and a fresh database per test.

A test that takes `database_url` owns a migrated database without rows, cloned from a template.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from headway.store.blobs import BlobStore
from headway.store.cluster import ClusterStore
from headway.store.database import Database
from headway.store.embedded import EmbeddedPostgres
from headway.store.postgres_binaries import Binaries, find_binaries
from headway.store.queue import QueueStore
from headway.store.shelf.directory import DirectoryShelf
from headway.store.steering import SteeringStore
from headway.store.tasks import TaskStore
from tests.store.shop import Shop

TEMPLATE = "migrated"
# Nothing here outlives the session, so nothing waits for a disk.
FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "autovacuum": "off",
}


@dataclass(frozen=True, slots=True)
class TestServer:
    """The session's PostgreSQL and the loop it belongs to."""

    __test__ = False

    postgres: EmbeddedPostgres
    runner: asyncio.Runner

    def execute(self, statement: str) -> None:
        """Run one statement in the server's own database."""
        self.runner.run(_execute(self.postgres.dsn, statement))

    def dsn(self, database: str) -> str:
        return self.postgres.dsn.replace("@/headway?", f"@/{database}?")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The PostgreSQL programs the tests run."""
    found = find_binaries(os.environ)
    assert isinstance(found, Binaries), found.reason
    return found


@pytest.fixture(scope="session")
def postgres(binaries: Binaries) -> Iterator[TestServer]:
    """A server without a schema; take `database_url` unless you test PostgreSQL itself."""
    with tempfile.TemporaryDirectory(prefix="headway-tests-") as directory, asyncio.Runner() as runner:
        server = EmbeddedPostgres(Path(directory), binaries=binaries, settings=FAST_SETTINGS)
        runner.run(server.start())
        try:
            yield TestServer(server, runner)
        finally:
            runner.run(server.stop())


@pytest.fixture(scope="session")
def migrated_template(postgres: TestServer) -> str:
    """The name of a database that holds the whole schema and no rows; never connect to it."""
    from headway.store.migrate import migrate  # here, so that tests without a database do not need it

    postgres.execute(f"create database {TEMPLATE}")
    postgres.runner.run(migrate(postgres.dsn(TEMPLATE)))
    return TEMPLATE


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def database_url(postgres: TestServer, migrated_template: str, _numbers: Iterator[int]) -> Iterator[str]:
    """The DSN of a migrated database that only this test sees."""
    name = f"test_{next(_numbers)}"
    postgres.execute(f"create database {name} template {migrated_template} strategy file_copy")
    yield postgres.dsn(name)
    postgres.execute(f"drop database {name} with (force)")


@pytest.fixture
def empty_database_url(postgres: TestServer, _numbers: Iterator[int]) -> Iterator[str]:
    """The DSN of a database without any schema, for tests of migration itself."""
    name = f"empty_{next(_numbers)}"
    postgres.execute(f"create database {name}")
    yield postgres.dsn(name)
    postgres.execute(f"drop database {name} with (force)")


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def shop(database_url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    """The stores on a fresh database, with a leader's epoch and a node."""
    database = await Database.open(database_url, size=4)
    cluster = ClusterStore(database, 1)
    epoch = await cluster.elect("test", 60.0)
    assert epoch is not None
    node = await cluster.join_node("n1", "first", "{}", "{}", "[]", 60.0, "home")
    try:
        yield Shop(
            database,
            cluster,
            TaskStore(database, 1),
            QueueStore(database, 1),
            SteeringStore(database, 1),
            BlobStore(database, 1, DirectoryShelf(tmp_path / "shelf")),
            epoch,
            node,
        )
    finally:
        await database.close()
