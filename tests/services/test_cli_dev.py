"""The parts of `headway dev` that need no database: processes that come back, logs that stay small, keys,
ports.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import select
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from headway import cli
from headway.dev import files, process
from headway.dev.process import BoundedLog, GaveUp, Supervised
from headway.dev.readiness import ready_node
from headway.store.data_dir import Held, lock_data_dir

PATIENCE = 20.0
COUNTING = "import sys; print('up', flush=True); sys.stdin.readline(); print('told', flush=True); sys.stdin.read()"


class Line:
    """A log that can be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def write(self, piece: bytes) -> None:
        self.lines.append(piece.decode().strip())
        self._more.set()

    async def until(self, text: str, times: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.lines.count(text) < times:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def supervised(program: str, log: Line, said: list[str]) -> AsyncIterator[Supervised]:
    child = Supervised("server", [sys.executable, "-c", program], log, said.append)  # pyright: ignore[reportArgumentType]
    running = asyncio.ensure_future(child.run())
    try:
        yield child
    finally:
        await child.stop(5.0, asyncio.Event())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_killed_process_comes_back_and_is_told_again():
    log, said = Line(), list[str]()
    async with supervised(COUNTING, log, said) as child:
        child.release({"A": "1"})
        child.worked = True
        for times in (1, 2, 3):
            await log.until("told", times)
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        await log.until("told", 4)
    assert said.count("the server ended (killed by SIGKILL); starting it again") == 3


async def test_a_process_prepares_but_does_not_begin_before_it_is_released():
    log = Line()
    async with supervised(COUNTING, log, []) as child:
        await log.until("up", 1)
        assert "told" not in log.lines
        child.release({})
        await log.until("told", 1)


async def test_a_process_that_never_works_is_given_up_with_its_last_words():
    child = Supervised("server", [sys.executable, "-c", "exit('no such thing')"], Line(), [].append)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GaveUp, match="no such thing"):
        await asyncio.wait_for(child.run(), PATIENCE)


async def test_a_process_that_will_not_stop_is_killed_and_its_group_with_it():
    log, said = Line(), list[str]()
    program = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\nprint('up', flush=True)\nsignal.pause()"
    )
    child = Supervised("agent", [sys.executable, "-c", program], log, said.append)  # pyright: ignore[reportArgumentType]
    running = asyncio.ensure_future(child.run())
    await log.until("up", 1)
    grandchild = os.pidfd_open(int(log.lines[0]))
    hurry = asyncio.Event()
    hurry.set()
    await child.stop(600.0, hurry)
    await asyncio.wait_for(running, PATIENCE)
    assert said == ["the agent does not stop by itself; killing it"]
    try:  # the kernel needs a moment between the signal and the death
        assert select.select([grandchild], [], [], PATIENCE)[0]
    finally:
        os.close(grandchild)


async def test_errors_are_shown_at_once_and_tracebacks_by_their_last_line():
    log, said = Line(), list[str]()
    program = "print('2026 [info] no errors yet? fine'[:16], flush=True); 1 / 0"
    child = Supervised("server", [sys.executable, "-c", program], log, said.append)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GaveUp):
        await asyncio.wait_for(child.run(), PATIENCE)
    shown = [line for line in said if line.startswith("server: ")]
    assert shown == ["server: ZeroDivisionError: division by zero"] * process.FIRST_TRIES


def test_a_log_never_outgrows_its_bound(tmp_path: Path):
    log = BoundedLog(tmp_path / "logs" / "server.log")
    for _ in range(3):
        log.write(b"x" * (process.LOG_BYTES_MAX - 1))
    log.close()
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert sizes == {"server.log": process.LOG_BYTES_MAX - 1, "server.log.1": process.LOG_BYTES_MAX - 1}


def test_a_full_disk_costs_a_log_lines_and_nothing_else(tmp_path: Path):
    log = BoundedLog(tmp_path / "server.log")
    log.write(b"one\n")
    with no_file_beyond(8):
        for line in (b"two, which is torn\n", b"three\n", b"four\n"):
            log.write(line)
    log.write(b"five\n")
    log.write(b"six\n")
    log.close()
    kept = (tmp_path / "server.log").read_text().splitlines()
    assert kept == ["one", "two,", "[lines that could not be written: 3]", "five", "six"]


def test_a_log_without_space_for_its_next_file_finds_it_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "LOG_BYTES_MAX", 64)
    logs = tmp_path / "logs"
    log = BoundedLog(logs / "server.log")
    log.write(b"x" * 64)
    logs.rename(tmp_path / "away")
    log.write(b"lost\n")
    logs.mkdir()
    log.write(b"kept\n")
    log.close()
    assert (logs / "server.log").read_text().endswith("\nkept\n")


async def test_a_process_does_not_notice_that_neither_its_log_nor_the_terminal_can_be_written(tmp_path: Path):
    (tmp_path / "server.log").symlink_to("/dev/full")
    arrived = asyncio.Event()

    def say(text: str) -> None:
        if text == "server: error: all of it was read":
            arrived.set()
        raise OSError("No space left on device")

    program = "print('error: x\\n' * 50_000 + 'error: all of it was read', flush=True); import sys; sys.stdin.read()"
    log = BoundedLog(tmp_path / "server.log")
    child = Supervised("server", [sys.executable, "-c", program], log, say)
    running = asyncio.ensure_future(child.run())
    await asyncio.wait_for(arrived.wait(), PATIENCE)
    assert child.pid is not None
    await child.stop(5.0, asyncio.Event())
    await asyncio.wait_for(running, PATIENCE)
    log.close()


def test_a_shell_finds_the_server_after_one_line(tmp_path: Path):
    path = tmp_path / "a directory" / "env.sh"
    path.parent.mkdir()
    files.write_exports(path, "http://[::1]:8642", "hw_x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    words = f". {shlex.quote(str(path))} && env"
    printed = subprocess.check_output(["sh", "-c", words], text=True, env={"PATH": os.defpath}).splitlines()
    assert {"HEADWAY_URL=http://[::1]:8642", "HEADWAY_KEY=hw_x"} <= set(printed)


def test_keys_are_made_once_and_only_their_owner_reads_them(tmp_path: Path):
    keys = files.keep_keys(tmp_path / "keys.json")
    assert all(re.fullmatch(r"hw_[a-z2-7]{8}_[A-Za-z0-9_-]{43}", key) for key in keys)
    assert files.keep_keys(tmp_path / "keys.json") == keys
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_a_free_port_is_found_and_a_taken_one_refused():
    assert files.free_port("127.0.0.1", 0) > 0
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        files.free_port("127.0.0.1", taken.getsockname()[1])


async def test_a_server_that_does_not_answer_is_not_ready():
    port = files.free_port("127.0.0.1", 0)
    assert not await ready_node("127.0.0.1", port, "hw_x", "local", functions=False)


def test_a_second_dev_names_the_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    lock = lock_data_dir(tmp_path)
    assert isinstance(lock, Held)
    try:
        assert cli.execute(["dev", "--data", str(tmp_path), "--port", "0"]) == 5
    finally:
        lock.release()
    assert f"process {os.getpid()}" in capfd.readouterr().err


def test_a_taken_port_says_what_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert cli.execute(["dev", "--data", str(tmp_path), "--port", port]) == 7
    assert "--port 0" in capfd.readouterr().err


def test_without_a_home_a_directory_must_be_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert cli.execute(["dev"]) == 2
    assert "--data DIR" in capfd.readouterr().err


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """What is written beyond fails, as on a full disk (EFBIG: Python ignores SIGXFSZ)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("app", "why"),
    [
        ("nosuch.module:app", "ModuleNotFoundError: No module named 'nosuch'"),
        ("os:nothere", "AttributeError: module 'os' has no attribute 'nothere'"),
        ("os:path", "TypeError: os:path is a module, not a headway.App"),
        ("raises:app", "RuntimeError: no settings"),
    ],
)
def test_an_app_that_cannot_be_imported_is_named_at_once(tmp_path: Path, app: str, why: str):
    (tmp_path / "raises.py").write_text("raise RuntimeError('no settings')\n")
    words = [sys.executable, "-m", "headway.cli", "dev", "--data", str(tmp_path / "data"), "--port", "0", "--app", app]
    ended = subprocess.run(words, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert f"Error: the app {app} cannot be imported: {why}\n" in ended.stderr


def test_a_ready_file_that_cannot_be_written_is_refused_before_anything_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    nowhere = tmp_path / "nowhere" / "ready.json"
    assert cli.execute(["dev", "--data", str(tmp_path / "data"), "--port", "0", "--ready-file", str(nowhere)]) == 2
    assert f"cannot write into {nowhere.parent}" in capfd.readouterr().err


def test_what_a_killed_dev_said_of_being_ready_is_unsaid_at_the_next_start(tmp_path: Path):
    data, elsewhere = tmp_path / "data", tmp_path / "ready"
    data.mkdir(mode=0o700)
    stale = [data / "ready.json", data / "env.sh", elsewhere]
    for path in stale:
        path.write_text("of a process that is gone")
    words = [sys.executable, "-m", "headway.cli", "dev", "--data", str(data), "--port", "0"]
    with socket.create_server(("127.0.0.1", 0)) as mute:
        database = f"postgresql://x:x@127.0.0.1:{mute.getsockname()[1]}/x"
        environment = {**os.environ, "HEADWAY_DATABASE_URL": database}
        process = subprocess.Popen(
            [*words, "--ready-file", str(elsewhere)], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            mute.settimeout(PATIENCE)
            mute.accept()[0].close()  # its server asks a database for the first time
            assert [path for path in stale if path.exists()] == []
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
