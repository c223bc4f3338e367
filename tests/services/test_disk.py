"""What attempts take of a disk: measured with everything that is theirs, and bounded."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from headway.agent.runners.disk import DISK_BYTES, allowed
from headway.agent.sandbox.space import DEPTH_MAX, Space, TooDeep
from headway.wire import Assignment, Ending, Outcome
from tests.services.agent_leader import FakeLeader, a_leader, a_shell, an_agent, key_of, sandboxed

MIB = 1 << 20
LOTS = 1 << 50
EXTRA_BYTES = 64 * 1024
"""What directories and the ends of files take."""


def taken(*folders: Path, size_max: int = LOTS, files_max: int = LOTS, by: bool = False) -> Space:
    """What is in folders, and with `by` what this process holds of it."""
    space = Space(size_max, files_max)
    for folder in folders:
        space.add_folder(str(folder))
    if by:
        space.add_removed([os.getpid()])
    return space


def written(path: Path, size: int = MIB) -> Path:
    path.write_bytes(os.urandom(size))
    return path


def test_files_count_by_what_they_take_and_once_whatever_their_names(tmp_path: Path):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    os.link(written(tmp_path / "one"), tmp_path / "deep" / "deeper" / "same")
    with open(tmp_path / "hollow", "wb") as hollow:
        hollow.truncate(100 * MIB)
    space = taken(tmp_path)
    assert space.files == 4
    assert MIB <= space.size <= MIB + EXTRA_BYTES


def test_nothing_is_followed_out_of_a_folder(tmp_path: Path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    written(outside / "large")
    (inside / "link").symlink_to(outside)
    os.mkfifo(inside / "pipe")
    space = taken(inside)
    assert (space.files, space.size <= EXTRA_BYTES) == (2, True)


def test_what_was_removed_but_is_open_or_mapped_counts(tmp_path: Path):
    opened, mapped = written(tmp_path / "opened"), written(tmp_path / "mapped")
    before = taken(tmp_path).size
    with open(opened, "rb"), open(mapped, "r+b") as file, mmap.mmap(file.fileno(), 0):
        file.close()
        opened.unlink()
        mapped.unlink()
        space = taken(tmp_path, by=True)
        assert 2 * MIB <= space.size <= before
        assert taken(tmp_path).size <= EXTRA_BYTES
    assert taken(tmp_path, by=True).size <= EXTRA_BYTES


def test_who_has_too_much_is_not_looked_at_any_further(tmp_path: Path):
    for number in range(100):
        (tmp_path / str(number)).mkdir()
    space = taken(tmp_path, files_max=10)
    assert (space.is_too_much, space.files) == (True, 11)


def test_directories_within_directories_end_somewhere(tmp_path: Path):
    deepest = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEPTH_MAX + 1):
        os.mkdir("d", dir_fd=deepest)
        below = os.open("d", os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = below
    os.close(deepest)
    with pytest.raises(TooDeep):
        taken(tmp_path)


def test_more_disk_comes_with_more_files():
    assert allowed({}) == (DISK_BYTES, DISK_BYTES // 8192)
    assert allowed({"disk": MIB}) == (MIB, 10_000)


# ── on a node ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def leader(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", sandbox=True, disk=1 << 40):
        yield leader


def small(line: str, disk: int = 16 * MIB) -> Assignment:
    """A shell that has little disk."""
    return a_shell(line, disk=disk)


def assert_stopped_for_its_disk(ending: Ending) -> None:
    assert (ending.outcome, ending.code, ending.exit_code) == (Outcome.FAILED, "disk_exceeded", None)
    assert ending.message.endswith("or ask for more (`resources: {disk: 32Mi}`)")
    assert (ending.usage or {}).get("io_written", 0) < 2**30


BOMBS = {
    "one file": "while :; do head -c 1000000 /dev/zero >> x; sleep 0.01; done",
    "many files": "i=0; while :; do head -c 1000000 /dev/zero > $i; sleep 0.01; i=$((i + 1)); done",
    "a removed file": "exec 5> x; rm x; while :; do head -c 1000000 /dev/zero >&5; sleep 0.01; done",
}


@pytest.mark.parametrize("line", BOMBS.values(), ids=BOMBS)
async def test_who_takes_too_much_disk_is_killed_and_told(leader: FakeLeader, line: str):
    assert_stopped_for_its_disk(await leader.run_one(sandboxed(small(line))))


async def test_trusted_tasks_are_held_to_their_disk_as_well(leader: FakeLeader):
    assert_stopped_for_its_disk(await leader.run_one(small(BOMBS["one file"])))


async def test_who_makes_too_many_files_is_killed_and_told(leader: FakeLeader, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.agent.runners.disk.FILES_MIN", 100)
    task = sandboxed(small("i=0; while :; do : > $i; i=$((i + 1)); sleep 0.001; done", MIB))
    ending = await leader.run_one(task)
    assert ending.code == "disk_exceeded"
    assert ending.message.startswith("killed: it made more than the 128 files it may have on 1 MiB of disk;")


async def test_what_a_task_gave_back_does_not_count(leader: FakeLeader):
    line = "for i in 1 2 3 4 5 6 7 8; do head -c 8000000 /dev/zero > x; rm x; done; head -c 8000000 /dev/zero > x"
    ending = await leader.run_one(sandboxed(small(line)))
    assert (ending.outcome, ending.message) == (Outcome.DONE, "")


async def test_a_neighbour_is_not_taken_for_the_one(leader: FakeLeader):
    neighbour = sandboxed(small("head -c 8000000 /dev/zero > x; echo up; while :; do sleep 0.05; done"))
    await leader.dispatch(neighbour)
    await leader.until(lambda: leader.log(neighbour))
    assert_stopped_for_its_disk(await leader.run_one(sandboxed(small(BOMBS["one file"]))))
    assert leader.ending(key_of(neighbour)) is None
    await leader.kill(neighbour)
    await leader.until(lambda: leader.ending(key_of(neighbour)))


async def test_space_cannot_be_reserved_but_given_back(leader: FakeLeader):
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "file = os.open('x', os.O_RDWR | os.O_CREAT)\n"
        "os.write(file, bytes(1 << 16))\n"
        "for mode in (0, 1, 16, 3):\n"
        "    done = libc.fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(1 << 16))\n"
        "    print(os.strerror(ctypes.get_errno()) if done else 'done')\n"
    )
    ending = await leader.run_one(sandboxed(a_shell(f'/usr/bin/python3 -c "{code}"')))
    assert ending.tail.decode().splitlines() == ["Operation not supported"] * 3 + ["done"]
