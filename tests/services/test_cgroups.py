"""Control groups: limits that hold, a freeze that stands, a kill that nothing escapes. On this machine's own."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.agent.sandbox.cgroups import Cgroups, Group, Limits, kind_of

MIB = 1024 * 1024
SPIN = "while True: pass"
EAT = "kept = bytearray(256 * 1024 * 1024)"
DAEMONS = (
    "import os, time\n"
    "for _ in range(5):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0: time.sleep(60)\n"
    "        os._exit(0)\n"
    "time.sleep(60)\n"
)
FORKS = (
    "import os, time\n"
    "try:\n"
    "    for _ in range(50):\n"
    "        if os.fork() == 0:\n"
    "            time.sleep(60)\n"
    "except OSError: os._exit(7)\n"
)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = Cgroups.found(f"headway-test-{os.getpid()}-{time.monotonic_ns()}")
    yield found
    found.close()


def until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < give_up, "waited 10 s in vain"
        select.select([], [], [], 0.002)


def started(group: Group, code: str) -> subprocess.Popen[bytes]:
    """A Python program that is in the group before it does anything."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", f"input()\n{code}"], stdin=subprocess.PIPE)
    group.add(process.pid)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    return process


def needs(cgroups: Cgroups, *what: str) -> None:
    lacking = [f"{name}: {cgroups.missing[name]}" for name in what if name in cgroups.missing]
    if lacking:
        pytest.skip("; ".join(lacking))


def test_everything_in_a_group_dies_however_it_hid(cgroups: Cgroups) -> None:
    needs(cgroups, "kill")
    group = cgroups.create("daemons", Limits())
    process = started(group, DAEMONS)
    until(lambda: len(group.pids()) == 6)
    group.kill()
    assert process.wait() == -signal.SIGKILL
    until(group.is_empty)
    assert group.remove()


def test_what_is_frozen_does_not_run_until_it_is_thawed(cgroups: Cgroups) -> None:
    needs(cgroups, "freeze")
    group = cgroups.create("frozen", Limits())
    process = started(group, SPIN)
    until(lambda: cpu_of(process.pid) > 0.05)
    assert group.freeze()
    assert group.is_frozen
    before = cpu_of(process.pid)
    select.select([], [], [], 0.1)
    assert cpu_of(process.pid) == before
    assert group.thaw()
    until(lambda: cpu_of(process.pid) > before)
    group.freeze()
    group.kill()
    assert process.wait() == -signal.SIGKILL, "what is frozen dies as well"


def test_who_eats_too_much_memory_dies_and_it_is_said_that_it_was_that(cgroups: Cgroups) -> None:
    needs(cgroups, "memory")
    group = cgroups.create("eater", Limits(memory_bytes=32 * MIB))
    neighbour = cgroups.create("neighbour", Limits(memory_bytes=32 * MIB))
    quiet = started(neighbour, "import time; time.sleep(60)")
    assert started(group, EAT).wait() == -signal.SIGKILL
    assert group.usage().oom_kills == 1
    assert (group.usage().memory_peak or 0) > 30 * MIB
    assert quiet.poll() is None
    neighbour.kill()
    quiet.wait()
    assert neighbour.usage().oom_kills == 0


def test_a_group_has_no_more_processes_than_it_may(cgroups: Cgroups) -> None:
    needs(cgroups, "pids")
    group = cgroups.create("forks", Limits(pids=10))
    assert started(group, FORKS).wait() == 7
    assert group.usage().pids_refused >= 1
    group.kill()


def test_cpu_is_held_to_its_quota_and_counted(cgroups: Cgroups) -> None:
    needs(cgroups, "cpu")
    group = cgroups.create("spinner", Limits(cpu_milli=200, cpu_weight_milli=200))
    process = started(group, SPIN)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.0)
    group.kill()
    process.wait()
    used = group.usage()
    assert used.cpu_user is not None
    assert used.cpu_system is not None
    assert 0.05 < used.cpu_user + used.cpu_system < 0.45, "200 milli of a second, and what start and clock blur"


def test_a_group_that_keeps_its_files_open_says_what_is_so_now(cgroups: Cgroups) -> None:
    needs(cgroups, "kill", "memory", "pids")
    group = cgroups.create("kept", Limits(memory_bytes=32 * MIB, pids=10))
    group.files.keep()
    assert group.is_empty()
    first = group.usage()
    assert started(group, FORKS).wait() == 7
    assert not group.is_empty(), "those that it could fork"
    assert group.usage().pids_refused > first.pids_refused
    group.kill()
    until(group.is_empty)
    assert started(group, EAT).wait() == -signal.SIGKILL
    assert group.usage().oom_kills == first.oom_kills + 1
    until(group.is_empty)
    assert descriptors("kept")
    assert group.remove()
    assert not descriptors("kept")


def test_a_room_that_is_closed_leaves_nothing(cgroups: Cgroups) -> None:
    needs(cgroups, "kill")
    process = started(cgroups.create("left", Limits()), "import time; time.sleep(60)")
    cgroups.close()
    assert process.wait() == -signal.SIGKILL
    assert not any(parent.exists() for parent in cgroups.parents.values())


def test_where_there_are_no_control_groups_all_of_it_is_missing_and_nothing_raises(tmp_path: Path) -> None:
    cgroups = Cgroups.found("room", root=tmp_path)
    assert cgroups.kind == "none"
    assert set(cgroups.missing) == {"cpu", "memory", "pids", "freeze", "kill"}
    group = cgroups.create("nobody", Limits(memory_bytes=MIB))
    group.kill()
    assert not group.freeze()
    assert group.usage().memory_peak is None
    assert group.remove()


def test_layouts_are_told_apart(tmp_path: Path) -> None:
    layouts = {"v2": ["cgroup.controllers"], "v1": ["memory/tasks"], "hybrid": ["pids/x", "unified/cgroup.controllers"]}
    for kind, files in layouts.items():
        for file in files:
            (tmp_path / kind / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / kind / file).touch()
        assert kind_of(tmp_path / kind) == kind


def test_limits_of_version_two_are_written_in_its_words(tmp_path: Path) -> None:
    files = ("cpu.max", "cpu.weight", "memory.max", "pids.max", "memory.swap.max", "memory.oom.group")
    for file in files:
        (tmp_path / file).touch()
    places: dict[str, Path] = dict.fromkeys(("v2", "cpu", "memory", "pids"), tmp_path)
    limits = Limits(cpu_milli=1500, cpu_weight_milli=1500, memory_bytes=64 * MIB, pids=99)
    Group("x", places, frozenset(places)).limit(limits)
    said = {file: (tmp_path / file).read_text() for file in files}
    assert said == {
        "cpu.max": "150000 100000",
        "cpu.weight": "150",
        "memory.max": str(64 * MIB),
        "pids.max": "99",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }


def descriptors(name: str) -> list[str]:
    """What this process has open of a group."""
    found: list[str] = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(one))
    return [path for path in found if f"/{name}/" in path]


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
