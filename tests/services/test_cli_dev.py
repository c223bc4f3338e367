"""The parts of `headway dev` that need no database: processes that come back, logs that stay small, keys,
ports.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway import cli
from headway.dev import files, process
from headway.dev.process import BoundedLog, GaveUp, Supervised
from headway.dev.readiness import node_is_ready
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
    hurry = asyncio.Event()
    hurry.set()
    await child.stop(600.0, hurry)
    await asyncio.wait_for(running, PATIENCE)
    assert said == ["the agent does not stop by itself; killing it"]
    assert not alive(int(log.lines[0]))


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
    assert not await node_is_ready("127.0.0.1", port, "hw_x", "local", functions=False)


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


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
