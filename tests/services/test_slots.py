"""Warm slots: real sandboxes in which one task runs after the other, and what the next one finds of the last."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from headway.agent.runners.watcher import Watcher
from headway.agent.sandbox import slots as module
from headway.agent.sandbox.cgroups import Cgroups, Limits
from headway.agent.sandbox.sandboxed import Sandbox
from headway.agent.sandbox.slots import USERS, Began, Ended, Gone, Job, NotBegun, Slot, Slots, Word
from headway.core.task import Spec
from headway.wire import Assignment, Outcome
from tests.services.agent_leader import (
    FakeLeader,
    a_command,
    a_leader,
    a_shell,
    an_agent,
    an_assignment,
    key_of,
    result_of,
    sandboxed,
)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="warm slots are for an agent that is root: a user for each task"
)

TENANT, OTHER = 1, 2
SECONDS = 10.0


@dataclass
class Floor:
    """A node's slots, and one control group for all tasks."""

    slots: Slots
    places: Path
    joins: list[str]
    home: list[str]
    clock: list[float]
    output: str = ""
    words: list[Word] = field(default_factory=list[Word])
    _made: int = 0

    async def slot(self, tenant: int = TENANT) -> Slot:
        """An idle slot, made if there is none."""
        if (found := self.slots.take(tenant)) is not None:
            return found
        if not self.slots.making:  # it came for the first time
            assert self.slots.take(tenant) is None
        await self.until(lambda: self.slots.idle(tenant) > 0)
        found = self.slots.take(tenant)
        assert found is not None
        return found

    async def run(
        self, slot: Slot, line: str, *, place: str | None = None, script: tuple[str, str] | None = None
    ) -> Word:
        """Runs a shell in it; the last word about that. What it said is in `output`."""
        argv = ["/run/headway/script"] if script is not None else ["/bin/sh", "-c", line]
        return await self.spawn(slot, argv, place, script)

    async def spawn(
        self, slot: Slot, argv: list[str], place: str | None = None, script: tuple[str, str] | None = None
    ) -> Word:
        read = self.begin(slot, argv, place, script)
        await self.until(lambda: bool(self.words) and not isinstance(self.words[-1], Began))
        os.set_blocking(read, False)  # whoever was left may hold its other end
        self.output = ""
        with contextlib.suppress(BlockingIOError):
            self.output = os.read(read, 65536).decode()
        os.close(read)
        return self.words[-1]

    def begin(
        self, slot: Slot, argv: list[str], place: str | None = None, script: tuple[str, str] | None = None
    ) -> int:
        """Starts a program; answers where it writes to."""
        if place is None:
            self._made += 1
            place = str(self._made)
        for name in ("work", "artifacts"):
            directory = self.places / place / name
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chown(directory, slot.user, slot.user)
        read, write = os.pipe()
        self.words = []
        environ = {"PATH": "/usr/bin:/bin", "HOME": "/workspace"}
        assert slot.run(Job(argv, environ, place, write, self.joins, script), self.words.append)
        os.close(write)
        return read

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for a fact."""
        async with asyncio.timeout(SECONDS):
            while not is_so():
                await asyncio.sleep(0.001)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = Sandbox.made(tmp_path_factory.mktemp("node"))
    assert isinstance(made, Sandbox), made
    made.workspaces.mkdir(mode=0o711)
    made.workspaces.chmod(0o711)
    yield made
    made.close()


@pytest.fixture
async def floor(sandbox: Sandbox) -> AsyncIterator[Floor]:
    places = sandbox.workspaces
    plan = sandbox.slots(USERS)
    assert plan is not None, "slots need root"
    cgroups = Cgroups.found(f"headway-test-{os.getpid()}")
    home, tasks = cgroups.create("slots", Limits()), cgroups.create("running", Limits())
    clock = [0.0]
    slots = Slots(plan, home.joins, marker="test:1", watcher=Watcher(), clock=lambda: clock[0], most=3)
    yield Floor(slots, places, tasks.joins, home.joins, clock)
    slots.close()
    cgroups.close()
    for place in places.iterdir():
        shutil.rmtree(place)


def status_of(word: Word) -> int:
    assert isinstance(word, Ended), word
    return os.waitstatus_to_exitcode(word.status)


async def test_tasks_run_one_after_the_other_and_each_is_told_how_it_ended(floor: Floor):
    slot = await floor.slot()
    assert status_of(await floor.run(slot, "echo one; exit 3")) == 3
    assert floor.output == "one\n"
    assert await floor.slot() is slot
    assert status_of(await floor.run(slot, "kill -SEGV $$")) == -signal.SIGSEGV
    assert await floor.slot() is slot
    assert await floor.spawn(slot, ["no-such-program"]) == NotBegun(errno.ENOENT)
    assert await floor.slot() is slot
    assert status_of(await floor.run(slot, "true")) == 0


async def test_a_task_is_nobody_with_no_rights_behind_the_walls_of_a_fresh_sandbox(floor: Floor):
    slot = await floor.slot()
    facts = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '"
    await floor.run(
        slot, f"{facts}; ulimit -Hn; ulimit -Hc; pwd; ls /; whoami; ls -A /workspace /tmp /dev/shm | tr '\\n' ' '"
    )
    none = "0000000000000000"
    rights = "".join(f"{name}: {none}\n" for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    assert floor.output == (
        "Uid: 1000 1000 1000 1000\nGid: 1000 1000 1000 1000\nGroups: \n"
        f"{rights}NoNewPrivs: 1\nSeccomp: 2\n4096\n0\n/workspace\n"
        "bin\ndev\netc\nlib\nlib64\nproc\nrun\nsbin\ntmp\nusr\nvar\nworkspace\n"
        "task\n/dev/shm:  /tmp:  /workspace: "
    )


async def test_the_slots_own_processes_cannot_be_seen_signalled_or_read(floor: Floor):
    slot = await floor.slot()
    await floor.run(slot, "ls /proc | grep '^[12]$'; ls /proc/1 /proc/2; ls /proc/self/fd | tr '\\n' ' '")
    gone = "ls: cannot access '/proc/{}': No such file or directory\n"
    assert floor.output == f"{gone.format(1)}{gone.format(2)}0 1 2 3 "
    slot = await floor.slot()
    await floor.run(slot, "kill -KILL 1; kill -KILL 2; kill -KILL -1; echo alive; kill -KILL 0")
    assert "alive" not in floor.output or floor.output.count("not permitted") >= 2
    assert await floor.slot() is slot


async def test_each_task_is_another_user(floor: Floor):
    slot = await floor.slot()
    users: list[str] = []
    for _ in range(3):
        await floor.run(slot, "id -u; id -un")
        users.append(floor.output)
        slot = await floor.slot()
    assert users == ["1000\ntask\n", "1001\ntask\n", "1002\ntask\n"]


LEFT = {
    "a file in /tmp": ("mkdir -m 0 /tmp/d; echo secret > /tmp/f", "ls -A /tmp"),
    "a file in /dev/shm": ("echo secret > /dev/shm/f", "ls -A /dev/shm"),
    "a file in the workspace": ("echo secret > f", "ls -A /workspace"),
    "a place that another may not write to": (
        "umask 077; mkdir /tmp/d; echo > /tmp/d/f",
        "echo > /tmp/d || ls -A /tmp",
    ),
    "all of /tmp": ("head -c 1000000000 /dev/zero > /tmp/f 2>/dev/null", "head -c 1000000 /dev/zero > /tmp/f && echo"),
}


@pytest.mark.parametrize("what", LEFT)
async def test_what_a_task_wrote_is_gone_for_the_next(floor: Floor, what: str):
    leaves, looks = LEFT[what]
    slot = await floor.slot()
    await floor.run(slot, leaves)
    await floor.until(lambda: floor.slots.idle(TENANT) == 1)
    assert await floor.slot() is slot
    await floor.run(slot, looks)
    assert floor.output.strip() == ""


KEPT = {
    "a process": "sleep 100 & sleep 0",
    "a process in a session of its own": "setsid sleep 100 & sleep 0.01",
    "a process whose parents are gone": "(setsid sh -c 'sleep 100 & exit' &) ; sleep 0.01",
    "System V shared memory": "ipcmk -M 4096",
    "a System V queue": "ipcmk -Q",
    "System V semaphores": "ipcmk -S 3",
    "a POSIX queue": "python3 -c 'import ctypes; exit(ctypes.CDLL(None).mq_open(b\"/q\", 66, 384, 0) < 0)'",
}


@pytest.mark.parametrize("what", KEPT)
async def test_a_slot_in_which_anything_else_was_left_is_ended_with_it(floor: Floor, what: str):
    slot = await floor.slot()
    held = processes(floor.joins)
    assert status_of(await floor.run(slot, KEPT[what])) == 0
    await floor.until(lambda: len(floor.slots) == 0)
    await floor.until(lambda: processes(floor.joins) == held)
    assert await floor.slot() is not slot


async def test_a_port_that_was_used_can_be_used_at_once(floor: Floor):
    talk = (
        "import socket as s; a=s.create_server(('127.0.0.1', 7000), reuse_port=False);"
        "b=s.create_connection(('127.0.0.1', 7000)); c=a.accept()[0]; c.close(); b.recv(1); b.close(); a.close()"
    )
    program = ["/usr/bin/python3", "-c", talk.replace("reuse_port=False", "reuse_port=False")]
    slot = await floor.slot()
    for _ in range(2):
        assert status_of(await floor.spawn(slot, program)) == 0, floor.output
        slot = await floor.slot()


async def test_a_script_is_shown_read_only_and_is_not_the_last_ones(floor: Floor, tmp_path: Path):
    slot = await floor.slot()
    for text in ("#!/bin/sh\necho one; echo >> $0\n", "#!/bin/sh\necho two\n"):
        path = tmp_path / "script"
        path.write_text(text)
        await floor.run(slot, "", script=(str(hash(text)), str(path)))
        assert floor.output.startswith(text.split()[2].rstrip(";"))
        slot = await floor.slot()
    assert "cannot create" not in floor.output


async def test_tenants_never_share_a_slot_and_the_idlest_gives_way(floor: Floor):
    slots = [await floor.slot() for _ in range(3)]
    for number, slot in enumerate(slots):
        floor.clock[0] = float(number)
        await floor.run(slot, "true")
    assert floor.slots.idle(TENANT) == 3 and floor.slots.take(OTHER) is None
    theirs = await floor.slot(OTHER)
    assert theirs not in slots and theirs.tenant == OTHER
    assert (len(floor.slots), floor.slots.idle(TENANT)) == (3, 2)
    assert slots[0] not in [floor.slots.take(TENANT), floor.slots.take(TENANT)]


async def test_no_more_than_so_many_slots_are_made(floor: Floor):
    slots = [await floor.slot() for _ in range(3)]
    reads = [floor.begin(slot, ["sleep", "100"]) for slot in slots]
    assert [floor.slots.take(TENANT) for _ in range(5)] == [None] * 5
    assert len(floor.slots) == 3
    for read in reads:
        os.close(read)


async def test_a_tenant_that_comes_once_gets_no_slot(floor: Floor):
    assert floor.slots.take(TENANT) is None
    floor.clock[0] = module.DEMAND_SECONDS + 1
    assert floor.slots.take(TENANT) is None
    assert len(floor.slots) == 0


async def test_an_idle_slot_ends(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    slot = await floor.slot()
    await floor.run(slot, "true")
    assert floor.slots.idle(TENANT) == 1
    floor.clock[0] = module.IDLE_SECONDS
    await floor.until(lambda: len(floor.slots) == 0)
    await floor.until(lambda: processes(floor.home) == [])


async def test_a_slot_serves_only_so_many(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TASKS_MAX", 2)
    slot = await floor.slot()
    await floor.run(slot, "true")
    assert await floor.slot() is slot
    await floor.run(slot, "true")
    assert len(floor.slots) == 0


@pytest.mark.parametrize("who", [0, 1, 2, 3, 4])
async def test_whoever_of_a_slot_dies_only_its_task_dies_and_that_is_told(floor: Floor, who: int):
    slot, other = await floor.slot(), await floor.slot()
    own = processes(floor.home)
    await floor.run(other, "true")
    read = floor.begin(slot, ["sleep", "100"])
    await floor.until(lambda: bool(floor.words))
    assert isinstance(floor.words[0], Began)
    os.kill(part_of(own, who), signal.SIGKILL)
    await floor.until(lambda: processes(floor.joins) == [])
    await floor.until(lambda: not isinstance(floor.words[-1], Began))
    os.close(read)
    while (word := await floor.run(await floor.slot(), "true")) == Gone():  # its init had died, and it did not know yet
        pass
    assert status_of(word) == 0


async def test_signals_reach_the_whole_group_of_a_task(floor: Floor):
    slot = await floor.slot()
    read = floor.begin(slot, ["/bin/sh", "-c", "trap 'echo told; exit 9' TERM; sleep 100 & wait"])
    await floor.until(lambda: bool(floor.words))
    slot.pass_on(signal.SIGTERM)
    await floor.until(lambda: isinstance(floor.words[-1], Ended))
    with os.fdopen(read) as said:
        assert said.read() == "told\n"
    assert status_of(floor.words[-1]) == 9


async def test_what_is_too_long_to_be_told_is_left_to_a_fresh_sandbox(floor: Floor):
    slot = await floor.slot()
    job = Job(["echo", "x" * module.MESSAGE_BYTES_MAX], {}, "1", 1, floor.joins)
    assert not floor.slots.run(slot, job, floor.words.append)
    assert await floor.slot() is slot


async def test_nothing_is_left_when_the_agent_hangs_up(floor: Floor):
    await floor.slot()
    floor.begin(await floor.slot(), ["sleep", "100"])
    floor.slots.close()
    await floor.until(lambda: processes(floor.home) == [] and processes(floor.joins) == [])


def processes(joins: list[str]) -> list[int]:
    """Who is in a control group."""
    return sorted(int(word) for word in Path(joins[0]).read_text().split())


def part_of(own: list[int], who: int) -> int:
    """One of the processes of the slot that was made first: keeper, launcher, bubblewrap, its init, its shell."""
    warden = min(own)
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in own}
    keeper = min(pid for pid, parent in parents.items() if parent == warden)
    below = [keeper]
    for pid in below:
        below += sorted(child for child, parent in parents.items() if parent == pid)
    assert len(below) == 5, parents
    return below[who]


@pytest.fixture
async def leader(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", sandbox=True, memory=1 << 30):
        yield leader


async def is_warm(leader: FakeLeader, task: Assignment) -> bool:
    """Runs a task that counts the users of its namespace: one in a fresh sandbox, two ranges in a slot."""
    ending = await leader.run_one(task)
    assert ending.outcome == Outcome.DONE, ending.message
    return ending.tail == b"2\n"


def counting(**how: object) -> Assignment:
    return sandboxed(an_assignment("command", Spec(command=["/bin/sh", "-c", "wc -l < /proc/self/uid_map"], **how)))  # pyright: ignore[reportArgumentType]


async def until_warm(leader: FakeLeader) -> None:
    async with asyncio.timeout(SECONDS):
        while not await is_warm(leader, counting()):
            pass


async def test_tasks_that_follow_each_other_run_in_a_slot_unless_they_want_a_fresh_sandbox(leader: FakeLeader):
    assert not await is_warm(leader, counting())
    await until_warm(leader)
    assert not await is_warm(leader, counting(fresh=True))
    assert not await is_warm(leader, msgspec.structs.replace(counting(), tenant=8))
    assert await is_warm(leader, counting())


async def test_an_attempt_in_a_slot_ends_as_any_other(leader: FakeLeader):
    await until_warm(leader)
    ending = await leader.run_one(sandboxed(a_shell("echo '{\"a\": 1}' > $HEADWAY_OUTPUT; pwd; exit 0")))
    assert (ending.outcome, result_of(ending), ending.tail) == (Outcome.DONE, {"a": 1}, b"/workspace\n")
    assert ending.usage is not None and ending.usage["cpu_user"] >= 0 and ending.usage["memory_peak"] > 0
    ending = await leader.run_one(sandboxed(a_command("no-such-program")))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "spawn_failed") and "no-such-program" in ending.message
    ending = await leader.run_one(sandboxed(a_shell("head -c 100M /dev/zero | tail", memory=16 << 20)))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "oom")


async def test_who_takes_its_slot_along_by_its_hunger_failed_of_that_and_the_next_has_another(leader: FakeLeader):
    """Who launches a task is in its control group meanwhile. On a busy machine that is long enough for the kernel to
    find there too much memory, and nobody larger."""
    await until_warm(leader)
    line = "echo up; while [ ! -e go ]; do sleep 0.01; done; cat /dev/zero > /tmp/x; exit 0"
    hungry = sandboxed(a_shell(line, memory=32 << 20))
    await leader.dispatch(hungry)
    await leader.until(lambda: leader.log(hungry) == b"up\n")
    (task,) = [pid for pid, words in commands().items() if line.encode() in words]
    launcher = int(Path(f"/proc/{task}/stat").read_text().rpartition(") ")[2].split()[1])
    await leader.until(lambda: memory_of(launcher) != memory_of(task))  # it has gone home; we bring it back
    Path(f"/proc/{launcher}/oom_score_adj").write_text("1000")
    Path(memory_of(task), "cgroup.procs").write_text(str(launcher))
    Path(f"/proc/{task}/cwd/go").touch()
    await leader.until(lambda: leader.ending(key_of(hungry)))
    ending = leader.ending(key_of(hungry))
    assert ending is not None and (ending.outcome, ending.code) == (Outcome.FAILED, "oom"), ending
    assert "32 MiB" in ending.message
    assert (await leader.run_one(counting())).outcome == Outcome.DONE


def commands() -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            found[int(one.name)] = (one / "cmdline").read_bytes()
    return found


def memory_of(pid: int) -> str:
    """The directory of the control group that bounds a process's memory."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, names, path in lines:
        if names == "memory":
            return f"/sys/fs/cgroup/memory{path}"
    return f"/sys/fs/cgroup{lines[-1][2]}"


async def test_an_attempt_in_a_slot_can_be_stopped(leader: FakeLeader):
    await until_warm(leader)
    task = sandboxed(a_shell("trap 'echo told; exit 9' TERM; echo up; sleep 100 & wait"))
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task) == b"up\n")
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None and (ending.outcome, ending.tail) == (Outcome.KILLED, b"up\ntold\n")
