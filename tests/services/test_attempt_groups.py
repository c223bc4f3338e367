"""Attempts in control groups: one that eats memory dies alone, none leaves anybody, and what they used is counted."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from headway.agent.runners.orphans import Orphans
from headway.agent.runners.watcher import Watcher
from headway.agent.sandbox.cgroups import Cgroups
from headway.agent.sandbox.forks import Forks
from headway.agent.sandbox.groups import Groups, children_of
from headway.wire import Outcome
from tests.services.agent_leader import a_command, a_leader, a_shell, an_agent, key_of

MIB = 1024 * 1024
IN = "while 'headway-' not in open('/proc/self/cgroup').read(): pass\n"
EAT = "kept = bytearray(256 * 1024 * 1024); print('ate it')"


def needs(*what: str) -> None:
    cgroups = Cgroups.found(f"headway-probe-{os.getpid()}")
    cgroups.close()
    lacking = [f"{name}: {cgroups.missing[name]}" for name in what if name in cgroups.missing]
    if lacking:
        pytest.skip("; ".join(lacking))


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


async def test_who_eats_more_memory_than_it_has_fails_with_oom_and_nobody_else_does(tmp_path: Path):
    needs("memory")
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", memory=256 * MIB):
        neighbour = a_shell("exec sleep 60", memory=64 * MIB)
        await leader.dispatch(neighbour)
        eater = await leader.run_one(a_command(*python(EAT), memory=64 * MIB))
        assert (eater.outcome, eater.code) == (Outcome.FAILED, "oom")
        assert "64 MiB" in eater.message and "memory: 128Mi" in eater.message
        assert leader.ending(key_of(neighbour)) is None
        await leader.kill(neighbour)
        await leader.until(lambda: leader.ending(key_of(neighbour)))


async def test_usage_counts_what_children_used_that_nobody_waited_for(tmp_path: Path):
    needs("memory", "cpu")
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", memory=256 * MIB):
        eats = "import os\nif os.fork() == 0: kept = bytearray(48 * 1024 * 1024)\nelse: os.wait()"
        ending = await leader.run_one(a_command(*python(IN + eats), memory=128 * MIB))
        assert ending.usage is not None
        assert ending.usage["memory_peak"] > 48 * MIB
        assert ending.usage["cpu_user"] + ending.usage["cpu_system"] > 0
        assert {"io_read", "io_written"} <= ending.usage.keys()
        small = await leader.run_one(a_command("true", memory=128 * MIB))
        assert small.usage is not None
        assert small.usage["memory_peak"] < 32 * MIB, "another attempt, another peak"


async def test_a_daemon_without_a_name_dies_with_its_attempt(tmp_path: Path):
    needs("kill")
    daemon = "setsid env -i /bin/sleep 61.5 >/dev/null 2>&1 & echo $! ; exit 0"
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        ending = await leader.run_one(a_shell(daemon))
        assert ending.outcome == Outcome.DONE
        pid = int(ending.tail)
        await leader.until(lambda: not _runs(pid))


async def test_who_has_left_its_parent_before_the_attempt_is_in_its_group_is_moved_in(tmp_path: Path):
    needs("kill")
    daemon = "setsid env -i /bin/sleep 62.5 >/dev/null 2>&1 & exit 0"
    groups = Groups.of(tmp_path)
    watcher = Watcher()
    orphans = Orphans("n1:1", watcher, time.monotonic)
    held = groups.take({"cpu": 100})
    assert held is not None
    adopted = orphans.adopted()
    pid = _started_and_ended(["/bin/sh", "-c", daemon])
    groups.join(held, pid, adopted)
    (stray,) = held.group.pids()
    groups.give(held)
    for child in (pid, stray):
        assert _reaped(child)
    groups.close()
    orphans.close()
    watcher.close()


def test_who_has_forked_before_it_is_in_its_group_has_its_children_moved_in(tmp_path: Path):
    needs("kill")
    groups = Groups.of(tmp_path)
    held = groups.take({"cpu": 100})
    assert held is not None
    pid = os.posix_spawn(
        "/bin/sh", ["sh", "-c", "sleep 63.5 & sleep 63.5 & wait"], {"PATH": os.environ["PATH"]}, setsid=True
    )
    while len(children_of(pid)) < 2:
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    groups.join(held, pid)
    assert len(held.group.pids()) == 3
    groups.give(held)
    assert _reaped(pid)
    groups.close()


def test_who_was_forked_while_its_parent_was_moved_is_moved_into_what_it_missed(tmp_path: Path):
    needs("memory")
    groups = Groups.of(tmp_path)
    held = groups.take({"cpu": 100})
    assert held is not None
    if len(held.group.joins) < 2:
        pytest.skip("one hierarchy has everything here")
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 64.5 & wait"], {"PATH": os.environ["PATH"]}, setsid=True)
    while not (children := children_of(pid)):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    Path(held.group.joins[0]).write_text(str(children[0]))
    groups.join(held, pid)
    assert [set(map(int, Path(path).read_text().split())) for path in held.group.joins] == [{pid, *children}] * len(
        held.group.joins
    )
    groups.give(held)
    assert _reaped(pid)
    groups.close()


def test_only_who_was_made_last_has_forked_nobody(tmp_path: Path):
    said = tmp_path / "loadavg"
    said.write_text("0.50 0.40 0.30 2/345 4711\n")
    forks = Forks(str(said))
    assert forks.last_was(4711)
    assert not forks.last_was(471)
    forks.close()
    assert not forks.last_was(4711), "who cannot ask does not know"
    assert not Forks(str(tmp_path / "none")).last_was(4711)
    real = Forks()
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "(exit 0); kill -STOP $$"], {}, setsid=True)
    os.waitpid(pid, os.WUNTRACED)
    assert not real.last_was(pid), "it forked"
    real.close()
    os.kill(pid, signal.SIGKILL)
    assert _reaped(pid)


def test_a_group_used_again_has_its_files_open_and_none_is_when_the_groups_are_closed(tmp_path: Path):
    needs("kill")
    before = len(os.listdir("/proc/self/fd"))
    groups = Groups.of(tmp_path)
    held = groups.take({"cpu": 100})
    assert held is not None
    for _ in range(2):
        groups.give(held)
        held = groups.take({"cpu": 100})
        assert held is not None
    assert held.group.files.are_kept is ("memory" not in held.group.is_v2), "where the peak can be set back"
    groups.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_agent_leaves_no_group_and_a_new_one_ends_what_was_left(tmp_path: Path):
    needs("kill")
    groups = Groups.of(tmp_path)
    held = groups.take({"cpu": 100})
    assert held is not None
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, setsid=True)
    groups.join(held, pid)
    again = Groups.of(tmp_path)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    again.close()
    assert not any(place.exists() for place in held.group.places.values())


def _started_and_ended(argv: list[str]) -> int:
    """A child that is dead, and was not waited for."""
    pid = os.posix_spawn(argv[0], argv, {}, setsid=True)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def _reaped(pid: int) -> bool:
    return os.waitpid(pid, 0)[0] == pid


def _runs(pid: int) -> bool:
    try:
        return b"61.5" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
