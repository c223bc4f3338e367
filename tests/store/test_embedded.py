"""The supervisor on a real PostgreSQL: it starts cold and warm, survives kills, and leaves nothing behind."""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from headway.store.data_dir import Held, HeldBy, lock_data_dir
from headway.store.embedded import LOG_BYTES_MAX, EmbeddedPostgres
from headway.store.postgres_binaries import Binaries, Missing, PostgresUnavailable, find_binaries

PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    """Where data directories go. Not `tmp_path`, which nobody but root may enter: where root has no user
    namespaces, PostgreSQL runs as somebody else."""
    with tempfile.TemporaryDirectory(prefix="headway-tests-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.fixture
def place(ground: Path) -> Path:
    """A directory that does not exist yet."""
    return ground / secrets.token_hex(4)


@pytest.fixture(scope="module")
def made_once(binaries: Binaries, ground: Path) -> Path:
    """A data directory after its first start and stop; the tests copy it, for initdb takes half a second."""
    data_dir = ground / "made_once"

    async def start_and_stop() -> None:
        async with running(data_dir, binaries) as server:
            await execute(server, "create table kept (n int primary key)")

    asyncio.run(start_and_stop())
    return data_dir


@pytest.fixture
def data_dir(made_once: Path, place: Path) -> Path:
    return Path(shutil.copytree(made_once, place, ignore=shutil.ignore_patterns("run")))


async def test_a_cold_start_makes_a_database_only_its_owner_can_read(binaries: Binaries, place: Path):
    async with running(place, binaries) as server:
        assert await value(server, "select current_user || '@' || current_database()") == "headway@headway"
        assert await value(server, "show listen_addresses") == ""
        assert await value(server, "show fsync") == "on"
        assert await value(server, "show server_encoding") == "UTF8"
    assert place.stat().st_mode & 0o077 in (0, 0o011)  # 0o011 where root must drop to a user
    assert (place / "postgres.password").stat().st_mode & 0o077 == 0
    assert (place / "run").stat().st_mode & 0o077 == 0


async def test_nobody_gets_in_without_the_password(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries) as server:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(server.dsn, password="wrong")


async def test_postgres_is_never_root_and_is_a_direct_child(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries) as server:
        assert psutil.Process(server.pid).ppid() == os.getpid()
        assert await value(server, "select (pg_stat_file('postmaster.pid')).size > 0")
        status = Path(f"/proc/{server.pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status


async def test_a_warm_start_finds_the_rows_of_the_last_run(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries) as server:
        await execute(server, "insert into kept values (1)")
    async with running(data_dir, binaries) as server:
        assert await value(server, "select n from kept") == 1


async def test_a_killed_postmaster_comes_back_with_every_committed_row(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries) as server, supervised(server):
        for n in range(3):
            await execute(server, f"insert into kept values ({n})")
            await kill_and_wait_for_the_next(server)
        assert await value(server, "select count(*) from kept") == 3


async def test_stop_leaves_no_process_and_no_socket(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries) as server:
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        assert len(family) > 1
    assert not [process for process in family if process.is_running()]
    assert not list((data_dir / "run").iterdir())
    assert not (data_dir / "postgres" / "postmaster.pid").exists()
    assert server.pid is None


async def test_stop_ends_a_server_that_waits_for_clients(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries) as server:
        client = await asyncpg.connect(server.dsn)
    assert server.pid is None
    client.terminate()


async def test_a_second_holder_is_refused_and_told_who_holds(data_dir: Path, binaries: Binaries):
    async with running(data_dir, binaries):
        with pytest.raises(PostgresUnavailable, match=f"in use by process {os.getpid()}"):
            await EmbeddedPostgres(data_dir, binaries=binaries).start()
        assert lock_data_dir(data_dir) == HeldBy(data_dir, os.getpid())
    lock = lock_data_dir(data_dir)
    assert isinstance(lock, Held)
    lock.release()


async def test_a_caller_may_bring_its_own_lock(data_dir: Path, binaries: Binaries):
    lock = lock_data_dir(data_dir)
    assert isinstance(lock, Held)
    server = EmbeddedPostgres(data_dir, binaries=binaries, lock=lock)
    await server.start()
    await server.stop()
    assert lock_data_dir(data_dir) == HeldBy(data_dir, os.getpid())
    lock.release()


async def test_postgres_dies_with_a_killed_supervisor_and_the_next_one_starts(data_dir: Path, binaries: Binaries):
    with supervisor_elsewhere(data_dir) as (supervisor, postmaster):
        supervisor.kill()
        assert psutil.wait_procs([postmaster], timeout=PATIENCE_SECONDS)[0]
    async with running(data_dir, binaries) as server:
        assert await value(server, "select n from kept") == 7


async def test_an_orphan_that_outlived_its_supervisor_is_ended_by_the_next(data_dir: Path, binaries: Binaries):
    with supervisor_elsewhere(data_dir) as (supervisor, postmaster):
        postmaster.suspend()  # so that it cannot act on its parent's death
        supervisor.kill()
        supervisor.wait()
        postmaster.resume()
        async with running(data_dir, binaries) as server:
            assert await value(server, "select n from kept") == 7
        assert not postmaster.is_running() or postmaster.status() == psutil.STATUS_ZOMBIE


async def test_a_pid_that_a_stranger_has_by_now_does_not_stop_the_start(data_dir: Path, binaries: Binaries):
    (data_dir / "postgres" / "postmaster.pid").write_text(f"{os.getppid()}\n{data_dir}\n0\n5432\n\n\n0 0\n")
    async with running(data_dir, binaries) as server:
        assert await value(server, "select 1") == 1


async def test_an_initdb_cut_short_is_begun_again(binaries: Binaries, place: Path):
    (place / "postgres.new" / "base").mkdir(parents=True)
    async with running(place, binaries) as server:
        assert await value(server, "select 1") == 1
    assert not (place / "postgres.new").exists()


async def test_a_path_too_long_for_a_socket_gets_a_short_one_and_keeps_it(data_dir: Path, binaries: Binaries):
    deep = data_dir.rename(data_dir.with_name("x" * 100))
    dsns: list[str] = []
    for _ in range(2):
        async with running(deep, binaries) as server:
            assert await value(server, "select 1") == 1
            dsns.append(server.dsn)
    assert dsns[0] == dsns[1]
    Path((deep / "socket_dir").read_text()).rmdir()


async def test_a_directory_of_another_major_version_is_refused(data_dir: Path, binaries: Binaries):
    (data_dir / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(PostgresUnavailable, match=r"made by PostgreSQL 14.*HEADWAY_PG_BIN"):
        await EmbeddedPostgres(data_dir, binaries=binaries).start()


async def test_a_server_that_cannot_start_says_what_its_log_says(data_dir: Path, binaries: Binaries):
    server = EmbeddedPostgres(data_dir, binaries=binaries, settings={"shared_buffers": "nonsense"})
    with pytest.raises(PostgresUnavailable, match=r'invalid value for parameter "shared_buffers"'):
        await server.start()
    lock = lock_data_dir(data_dir)
    assert isinstance(lock, Held), "a failed start keeps no lock"
    lock.release()


async def test_a_lost_password_is_named_and_not_replaced(data_dir: Path, binaries: Binaries):
    (data_dir / "postgres.password").unlink()
    with pytest.raises(PostgresUnavailable, match=r"postgres\.password is gone"):
        await EmbeddedPostgres(data_dir, binaries=binaries).start()


async def test_the_log_is_bounded(data_dir: Path, binaries: Binaries):
    (data_dir / "postgres.log").write_bytes(b"x" * (LOG_BYTES_MAX + 1))
    async with running(data_dir, binaries):
        assert (data_dir / "postgres.log").stat().st_size < LOG_BYTES_MAX
    assert (data_dir / "postgres.log.1").exists()


def test_missing_binaries_say_where_and_what_next(tmp_path: Path):
    found = find_binaries({"HEADWAY_PG_BIN": str(tmp_path)})
    assert found == Missing(f"HEADWAY_PG_BIN is {tmp_path}, but {tmp_path} holds no `initdb`.")


def test_binaries_that_do_not_run_or_are_too_old_are_refused(tmp_path: Path):
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.9'\n")
    broken = find_binaries({"HEADWAY_PG_BIN": str(tmp_path)})
    assert isinstance(broken, Missing)
    assert "does not run" in broken.reason
    for name in ("postgres", "initdb"):
        (tmp_path / name).chmod(0o755)
    old = find_binaries({"HEADWAY_PG_BIN": str(tmp_path)})
    assert isinstance(old, Missing)
    assert "needs 15 or newer" in old.reason


@asynccontextmanager
async def running(data_dir: Path, binaries: Binaries) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(data_dir, binaries=binaries)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def supervised(server: EmbeddedPostgres) -> AsyncIterator[None]:
    run = asyncio.create_task(server.run())
    try:
        yield
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


@contextmanager
def supervisor_elsewhere(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A supervisor in another process that has committed one row, and its postmaster."""
    program = """
        import asyncio, os, sys
        from pathlib import Path
        import asyncpg
        from headway.store.embedded import EmbeddedPostgres
        from headway.store.postgres_binaries import find_binaries

        async def main():
            server = EmbeddedPostgres(Path(sys.argv[1]), binaries=find_binaries(os.environ))
            await server.start()
            connection = await asyncpg.connect(server.dsn)
            await connection.execute("insert into kept values (7)")
            print(server.pid, flush=True)
            await server.run()

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        postmaster = psutil.Process(int(supervisor.stdout.readline()))
        try:
            yield supervisor, postmaster
        finally:
            supervisor.kill()


async def kill_and_wait_for_the_next(server: EmbeddedPostgres) -> None:
    killed = server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while server.pid in (killed, None) or not await accepts(server):
            await asyncio.sleep(0.01)


async def accepts(server: EmbeddedPostgres) -> bool:
    try:
        return await value(server, "select true")
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError):
        return False


async def execute(server: EmbeddedPostgres, statement: str) -> None:
    await value(server, statement)


async def value(server: EmbeddedPostgres, query: str) -> Any:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()
