"""Sandboxed tasks, run by a real agent behind real walls."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headway.agent.runners.directories import Directories, artifacts_of
from headway.agent.runners.spawn import spawn
from headway.agent.sandbox.groups import children_of
from headway.agent.sandbox.sandboxed import VARIABLES_MAX, Launch, Sandbox
from headway.agent.sandbox.seccomp import program
from headway.core.task import Spec
from headway.wire import Assignment, Ending, Outcome
from tests.services.agent_leader import (
    FakeLeader,
    a_command,
    a_leader,
    a_script,
    a_shell,
    an_agent,
    an_assignment,
    key_of,
    result_of,
    sandboxed,
)

IS_ROOT = os.geteuid() == 0
"""Only then is each task a user of its own."""


@pytest.fixture
async def leader(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", sandbox=True):
        yield leader


async def said(leader: FakeLeader, line: str, env: dict[str, str] | None = None) -> str:
    """What a shell says in a sandbox."""
    ending = await leader.run_one(sandboxed(a_command("/bin/sh", "-c", line, env=env)))
    assert ending.outcome == Outcome.DONE, (ending.message, ending.tail)
    return ending.tail.decode()


async def test_a_node_says_which_profiles_it_can_enforce(leader: FakeLeader):
    assert leader.hellos[-1].profiles[:2] == ("trusted", "sandboxed")


async def test_a_task_is_nobody_with_no_rights_in_an_almost_empty_place(leader: FakeLeader):
    assert await said(leader, "id -u; id -G; pwd; ls -A; echo $HOME") == "1000\n1000\n/workspace\n/workspace\n"
    facts = await said(leader, "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '")
    none = "0000000000000000"
    assert facts == f"CapEff: {none}\nCapBnd: {none}\nNoNewPrivs: 1\nSeccomp: 2\n"
    assert await said(leader, "ls /") == "bin\ndev\netc\nlib\nlib64\nproc\nrun\nsbin\ntmp\nusr\nvar\nworkspace\n"


async def test_two_tasks_are_two_users_of_this_machine_or_both_the_agents_own(leader: FakeLeader):
    word = f"task-{secrets.token_hex(8)}"
    wait = f"while [ ! -e {word} ]; do sleep 0.02; done"
    tasks = [sandboxed(a_shell(f"cat /proc/self/uid_map; {wait}")) for _ in range(2)]
    await leader.dispatch(*tasks)
    await leader.until(lambda: all(leader.log(task).endswith(b"\n") for task in tasks))
    if IS_ROOT:
        users = {int(leader.log(task).split()[1]) for task in tasks}
        assert len(users) == 2 and min(users) > 1_000_000_000
    else:
        assert {owner(pid) for pid in alive(word)} == {os.getuid()}
    await leader.kill(*tasks)
    await leader.until(lambda: all(leader.ending(key_of(task)) for task in tasks))


async def test_an_agent_that_is_not_root_says_that_tasks_run_as_its_own_user(leader: FakeLeader):
    degraded = leader.hellos[-1].degraded
    assert ("users" in degraded) == (not IS_ROOT)
    assert IS_ROOT or "the agent is not root" in degraded["users"]


async def test_a_result_and_files_pass_through_the_workspace(leader: FakeLeader):
    ending = await leader.run_one(sandboxed(a_shell("echo '{\"a\": 1}' > $HEADWAY_OUTPUT; touch $HOME/x /tmp/y")))
    assert (ending.outcome, result_of(ending)) == (Outcome.DONE, {"a": 1})


async def test_a_script_is_shown_read_only_and_gets_its_arguments(leader: FakeLeader):
    text = b'#!/bin/sh\necho "$0 $1"; echo >> $0 || exit 7\n'
    digest = "sha256:" + hashlib.sha256(text).hexdigest()
    leader.scripts[digest] = text
    ending = await leader.run_one(sandboxed(a_script(digest, "one two")))
    assert (ending.exit_code, ending.tail.splitlines()[0]) == (7, b"/run/headway/script one two")


async def test_its_first_process_carries_nothing_of_the_agent(leader: FakeLeader, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "swordfish")
    assert "swordfish" not in await said(leader, "cat /proc/*/environ 2> /dev/null; env")
    assert "HEADWAY_AGENT" not in await said(leader, "env")


async def test_what_the_task_says_ends_no_word_of_its_options(leader: FakeLeader):
    injected = "x\0--bind\0/\0/host"
    ending = await leader.run_one(sandboxed(a_command("ls", "/host", env={"INNOCENT": injected})))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "spawn_failed")
    assert await said(leader, 'echo "$A$B"', {"A": "--bind", "LD_PRELOAD": "", "B": ""}) == "--bind\n"


async def test_more_variables_than_can_be_passed_are_refused_by_name(leader: FakeLeader):
    env = {f"V{n}": "x" for n in range(VARIABLES_MAX)}
    ending = await leader.run_one(sandboxed(a_command("true", env=env)))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "spawn_failed") and "variables" in ending.message


async def test_a_program_that_is_not_there_is_the_tasks_own_fault(leader: FakeLeader):
    ending = await leader.run_one(sandboxed(a_command("no-such-program")))
    assert (ending.outcome, ending.code, ending.tail) == (Outcome.FAILED, "spawn_failed", b"")
    assert "'no-such-program' is not in the sandbox" in ending.message


async def test_who_pretends_that_the_sandbox_failed_only_fails(leader: FakeLeader):
    lie = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
    ending = await leader.run_one(sandboxed(a_shell(f'echo "{lie}" >&2; exit 1')))
    assert (ending.outcome, ending.code, ending.exit_code) == (Outcome.FAILED, "exit_nonzero", 1)


async def test_it_is_asked_before_it_is_killed_and_may_say_goodbye(leader: FakeLeader):
    task = sandboxed(a_shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done", cap_ms=400))
    ending = await leader.run_one(task)
    assert (ending.outcome, ending.code) == (Outcome.CAPPED, "cap_exceeded") and ending.tail.endswith(b"bye\n")


async def test_nothing_of_it_survives_its_end(leader: FakeLeader):
    word = f"survivor-{secrets.token_hex(8)}"
    survive = f"setsid sh -c 'trap \"\" TERM HUP; echo $0; while :; do sleep 0.05; done' {word} & sleep 0.2"
    told = await said(leader, f"{survive}; cat /proc/self/uid_map")
    assert told.startswith(word), "it was there"
    assert alive(word, int(told.split()[2])) == []


async def test_an_agent_that_is_killed_takes_its_sandboxes_along(tmp_path: Path):
    word = f"0.{secrets.randbelow(10**12)}"
    async with a_leader() as leader:
        words = [sys.executable, "-m", "headway.cli", "agent", "--url", f"http://127.0.0.1:{leader.port}", "--key", "k"]
        words += ["--data", str(tmp_path / "n1"), "--capacity", "cpu=4"]
        agent = subprocess.Popen(words)  # noqa: ASYNC220  it is over at once
        try:
            await leader.until(lambda: leader.windows)
            task = sandboxed(a_shell(f"cat /proc/self/uid_map; exec sleep 600 {word}", cap_ms=600_000))
            await leader.dispatch(task)
            await leader.until(lambda: leader.log(task).endswith(b"\n"))
            user = int(leader.log(task).split()[1])
            assert alive(word, user)
        finally:
            agent.kill()
            agent.wait()
        async with asyncio.timeout(10):
            while alive(word, user):
                await asyncio.sleep(0.01)


def alive(word: str, user: int = -1) -> list[str]:
    """Who was started with that word, or runs as that user where it is the task's own; the dead that nobody buried do
    not count."""
    found = [pid for pid in os.listdir("/proc") if pid.isdigit() and owner(pid) >= 0]
    return [pid for pid in found if word in words_of(pid) or (IS_ROOT and user > 0 and owner(pid) == user)]


def words_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def owner(pid: str) -> int:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return -1 if state == "Z" else os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def a_spec(line: str, **said: object) -> Assignment:
    spec = msgspec.convert({"command": ["/bin/sh", "-c", line], **said}, Spec)
    return sandboxed(an_assignment("command", spec))


async def test_the_nodes_network_is_there_only_for_who_asks(leader: FakeLeader):
    count = "grep -c : /proc/net/dev"
    alone = await leader.run_one(a_spec(f"{count}; exit 3"))
    shared = await leader.run_one(a_spec(f"{count}; exit 3", network=True))
    assert int(leader_said(leader, alone)) == 1, "a loopback of its own"
    assert int(leader_said(leader, shared)) == len(Path("/proc/net/dev").read_text().splitlines()) - 2


def leader_said(leader: FakeLeader, ending: Ending) -> str:
    return b"".join(chunk.body for chunk in leader.chunks if chunk.task == ending.task).decode()


async def test_tmp_is_as_large_as_was_asked_for(leader: FakeLeader):
    ending = await leader.run_one(a_spec("df -k /tmp | tail -1; exit 3", tmp=8 * 1024 * 1024))
    assert leader_said(leader, ending).split()[1] == "8192"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'", "network: true"),
        ("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 5432))'", "network: true"),
        ("cat /dev/zero > /tmp/x", "tmp: 512Mi"),
        ("touch /usr/x", "$HOME, /tmp and /dev/shm only"),
        ("unshare -U true", "profile: trusted"),
        ("mount -t tmpfs none /tmp", "profile: trusted"),
    ],
)
async def test_what_the_sandbox_refused_is_said_with_how_to_ask_for_it(leader: FakeLeader, line: str, hint: str):
    ending = await leader.run_one(a_spec(line))
    assert ending.code == "exit_nonzero" and hint in ending.message


async def test_a_failure_of_its_own_is_told_as_it_is(leader: FakeLeader):
    assert (await leader.run_one(a_spec("echo oh no; exit 4"))).message == "exited with 4"


@pytest.mark.parametrize("is_told", [True, False])
def test_bubblewrap_forks_nobody_until_it_is_told_its_options_and_begins_nothing_without(tmp_path: Path, is_told: bool):
    sandbox = Sandbox.made(tmp_path)
    assert isinstance(sandbox, Sandbox), sandbox
    work = Directories(sandbox.workspaces, mode=0o711).take()
    cell = sandbox.take()
    words = ["/bin/sh", "-c", "echo 1 > began"]
    launch = sandbox.launch(cell, words, sandbox.environment(), work, artifacts_of(work), mark={})
    assert isinstance(launch, Launch)
    null = os.open("/dev/null", os.O_RDWR)
    pid = spawn(launch.argv, launch.environ, "/", {0: null, 1: null, 2: null, **launch.fds})
    assert isinstance(pid, int)
    os.close(null)
    launch.close()
    while not _waits(pid, b"(bwrap) S"):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert children_of(pid) == []
    if is_told:
        sandbox.release(cell)
    else:
        os.close(cell.gate)
        cell.gate = -1
    assert (os.waitpid(pid, 0)[1] == 0) is is_told
    assert Path(work, "began").exists() is is_told
    sandbox.give(cell)
    sandbox.close()


def _waits(pid: int, so: bytes) -> bool:
    return so in Path(f"/proc/{pid}/stat").read_bytes()


async def test_a_task_of_another_profile_is_handed_back(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        assert leader.hellos[-1].profiles == ("trusted",)
        task = sandboxed(a_command("true"))
        await leader.dispatch(task)
        await leader.until(lambda: leader.returned)
        assert leader.returned == [key_of(task)] and not leader.endings


async def test_a_directory_is_shown_where_the_operator_says_so(tmp_path: Path):
    shared = (Path("/var/lib") if IS_ROOT else Path.home()) / f"headway-test-{os.getpid()}"
    shared.mkdir()
    try:
        (shared / "tool").write_text("a tool\n")
        async with a_leader() as leader, an_agent(leader, tmp_path / "n1", sandbox=True, shown=(shared,)):
            assert await said(leader, f"cat {shared}/tool; touch {shared}/x 2> /dev/null || echo no") == "a tool\nno\n"
    finally:
        (shared / "tool").unlink()
        shared.rmdir()


def test_without_bubblewrap_there_is_no_sandbox_and_the_reason_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_BWRAP", "/nowhere/bwrap")
    assert Sandbox.made(tmp_path) == "/nowhere/bwrap does not run here"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_whose_jumps_stay_inside(machine: str):
    body = program(machine)
    steps = [(body[at + 2], body[at + 3], body[at]) for at in range(0, len(body), 8)]
    assert len(body) % 8 == 0 and len(steps) < 4096
    assert all(at + 1 + max(then, other) < len(steps) for at, (then, other, code) in enumerate(steps) if code & 7 == 5)
