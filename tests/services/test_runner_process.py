"""Commands and scripts, run by a real agent for a leader that speaks the real protocol."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from headway.agent.leftovers import environment
from headway.agent.runners import freight
from headway.core.log import FIRST_BYTES, LAST_BYTES
from headway.core.task import Spec
from headway.files.unpacking import unpack_file
from headway.wire import RESULT_BYTES_MAX, TAIL_BYTES_MAX, Outcome
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
)


@pytest.fixture
async def leader(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        yield leader


def processes_with(name: str, value: str) -> list[int]:
    """Who runs with that in its environment."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if environment(pid).get(name.encode()) == value.encode()]


async def test_a_command_that_succeeds_is_done(leader: FakeLeader):
    ending = await leader.run_one(a_command("true"))
    assert (ending.outcome, ending.exit_code, ending.code) == (Outcome.DONE, 0, "")
    assert ending.usage is not None and ending.usage["cpu_user"] >= 0


async def test_a_command_that_fails_says_its_exit_code(leader: FakeLeader):
    ending = await leader.run_one(a_shell("exit 3"))
    assert (ending.outcome, ending.exit_code, ending.code) == (Outcome.FAILED, 3, "exit_nonzero")


async def test_a_command_that_a_signal_kills_says_which(leader: FakeLeader):
    ending = await leader.run_one(a_shell("kill -SEGV $$"))
    assert (ending.outcome, ending.exit_code, ending.code) == (Outcome.FAILED, None, "signalled")
    assert ending.message == "killed by SIGSEGV"


async def test_both_streams_make_one_log(leader: FakeLeader):
    task = a_shell("echo one; echo two >&2; echo three")
    ending = await leader.run_one(task)
    assert ending.tail == leader.log(task) == b"one\ntwo\nthree\n"
    assert ending.log_bytes == 14


async def test_a_silent_command_sends_no_log(leader: FakeLeader):
    ending = await leader.run_one(a_command("true"))
    assert (leader.chunks, ending.tail, ending.log_bytes) == ([], b"", 0)


async def test_a_hundred_commands_at_once_keep_their_outputs_apart(leader: FakeLeader):
    tasks = [a_command("echo", str(n)) for n in range(100)]
    endings = await leader.run(*tasks)
    assert [ending.tail for ending in endings] == [f"{n}\n".encode() for n in range(100)]


async def test_a_log_can_be_followed_while_the_command_runs(leader: FakeLeader):
    task = a_shell("echo early; exec sleep 60")
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task) == b"early\n")
    assert leader.ending(key_of(task)) is None
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))


async def test_ten_megabytes_of_output_lose_their_middle(leader: FakeLeader):
    task = a_shell("head -c 10000000 /dev/zero; echo end")
    ending = await leader.run_one(task)
    log = leader.log(task)
    missing = [int(count) for count in re.findall(rb"\n\[headway: (\d+) bytes of output dropped here\]\n", log)]
    kept = len(re.sub(rb"\n\[headway: \d+ bytes of output dropped here\]\n", b"", log))
    assert kept + sum(missing) == 10_000_004
    assert FIRST_BYTES + LAST_BYTES <= kept < FIRST_BYTES + LAST_BYTES + 20 * 64 * 1024
    assert log.startswith(bytes(FIRST_BYTES)) and log.endswith(bytes(LAST_BYTES - 4) + b"end\n")
    assert ending.tail == log[-TAIL_BYTES_MAX:]
    assert all(len(chunk.body) <= 64 * 1024 for chunk in leader.chunks)


async def test_a_task_that_prints_faster_than_the_leader_reads_waits(
    leader: FakeLeader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.agent.outbox.LOGS_BYTES_MAX", 100_000)
    task = a_shell("head -c 2000000 /dev/zero; echo end")
    await leader.run_one(task)
    assert leader.log(task) == b"\0" * 2_000_000 + b"end\n"


async def test_what_is_written_to_the_output_file_is_the_result(leader: FakeLeader):
    ending = await leader.run_one(a_shell("""echo '{"frames": 7}' > "$HEADWAY_OUTPUT" """))
    assert (ending.outcome, result_of(ending)) == (Outcome.DONE, {"frames": 7})


@pytest.mark.parametrize(
    "line",
    [
        "echo nonsense > $HEADWAY_OUTPUT",
        f"head -c {RESULT_BYTES_MAX + 1} /dev/zero > $HEADWAY_OUTPUT",
        "ln -s /etc/hostname $HEADWAY_OUTPUT",
        "mkfifo $HEADWAY_OUTPUT",
        "head -c 50000 /dev/zero | tr '\\0' '[' > $HEADWAY_OUTPUT",
        "printf '\"a\\0b\"' > $HEADWAY_OUTPUT",
    ],
)
async def test_an_output_file_that_is_no_json_fails_the_task(leader: FakeLeader, line: str):
    ending = await leader.run_one(a_shell(line))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "output_invalid")


@pytest.mark.parametrize(
    "where", ["judging.output", "judging.verdict", "judging.summed", "burial.reap_group", "spawn.find"]
)
async def test_a_fault_of_the_agent_ends_the_attempt_and_frees_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    def faulty(*_: object) -> None:
        raise LookupError("a\0b\ud800")

    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", cpu=100):
        with monkeypatch.context() as broken:
            broken.setattr(f"headway.agent.runners.{where}", faulty)
            ending = await leader.run_one(a_shell("echo 1"))
        assert (ending.outcome, ending.code) == (Outcome.FAILED, "agent_fault")
        assert "LookupError: a\\0b\\ud800" in ending.message
        assert (await leader.run_one(a_command("true"))).outcome == Outcome.DONE


async def test_a_command_sees_its_own_environment_and_nothing_of_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_KEY", "secret")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task = a_command("env", env={"LEVEL": "fast"})
        ending = await leader.run_one(task)
    seen = dict(line.split("=", 1) for line in ending.tail.decode().splitlines())
    assert seen["LEVEL"] == "fast"
    assert seen["HEADWAY_TASK_ID"] == str(task.task) and seen["HEADWAY_ATTEMPT"] == "1"
    assert seen["HEADWAY_IDEMPOTENCY_KEY"] == f"7-{task.task}"
    assert seen["HEADWAY_DEADLINE"].endswith("Z")
    assert "secret" not in ending.tail.decode()


async def test_a_command_has_no_input_and_an_empty_directory_of_its_own(leader: FakeLeader):
    first = await leader.run_one(a_shell("cat; ls -A; pwd; touch left"))
    second = await leader.run_one(a_shell("cat; ls -A; pwd"))
    assert first.tail.count(b"\n") == second.tail.count(b"\n") == 1
    assert first.tail != second.tail, "a used directory is not used again"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["no-such-program"], "program not found"),
        (["/no/such/program"], "no such file"),
        (["/etc/passwd"], "not executable"),
        (["/bin/echo", "a\0b"], "null byte"),
        (["a\0b"], "null byte"),
    ],
)
async def test_what_cannot_be_started_says_why(leader: FakeLeader, argv: list[str], says: str):
    ending = await leader.run_one(a_command(*argv))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "spawn_failed")
    assert says in ending.message


async def test_a_script_is_fetched_once_and_its_first_line_is_honoured(leader: FakeLeader):
    texts = [b"#!/usr/bin/env python3\nimport sys; print(sys.argv[1:])\n", b'echo "sh $1 $2"\n']
    digests = ["sha256:" + hashlib.sha256(text).hexdigest() for text in texts]
    leader.scripts = dict(zip(digests, texts, strict=True))
    endings = await leader.run(*(a_script(digest, "a", "b c") for digest in digests * 3))
    assert [e.tail for e in endings] == [b"['a', 'b c']\n", b"sh a b c\n"] * 3
    assert sorted(leader.fetched) == sorted(digests)


@pytest.mark.parametrize("body", [None, b"something else"])
async def test_a_script_that_is_not_there_or_not_the_right_one_fails(leader: FakeLeader, body: bytes | None):
    digest = "sha256:" + "0" * 64
    leader.scripts = {} if body is None else {digest: body}
    ending = await leader.run_one(a_script(digest))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "script_missing")


async def test_a_cap_stops_a_polite_command_with_sigterm(leader: FakeLeader):
    task = a_shell("trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", cap_ms=200, grace_ms=10_000)
    ending = await leader.run_one(task)
    assert (ending.outcome, ending.code) == (Outcome.CAPPED, "cap_exceeded")
    assert b"bye\n" in ending.tail


async def test_a_cap_ends_what_ignores_sigterm_and_all_that_it_started(leader: FakeLeader):
    line = "trap '' TERM; sleep 61 & setsid sleep 62 & (setsid sh -c 'trap \"\" TERM; sleep 63 & wait') & wait; wait"
    task = a_shell(line, cap_ms=300, grace_ms=200)
    ending = await leader.run_one(task)
    assert (ending.outcome, ending.code) == (Outcome.CAPPED, "cap_exceeded")
    await until_gone(str(task.task))


async def test_a_daemon_does_not_outlive_its_attempt(leader: FakeLeader):
    nowhere = "</dev/null >/dev/null 2>&1"
    daemon = f"setsid sh -c 'sleep 60 & setsid sleep 61 {nowhere} & wait' {nowhere}"
    task = a_shell(f"{daemon} & sleep 62 & sleep 0.2")
    ending = await leader.run_one(task)
    assert ending.outcome == Outcome.DONE
    await until_gone(str(task.task))


async def test_a_killed_command_answers_killed_and_one_that_waits_does_too(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", cpu=100):
        running, waiting = a_command("sleep", "60"), a_command("sleep", "61")
        await leader.dispatch(running, waiting)
        await leader.kill(waiting, running)
        await leader.until(lambda: len(leader.endings) == 2)
        assert {ending.outcome for ending in leader.endings} == {Outcome.KILLED}
        ending = leader.ending(key_of(waiting))
        assert ending is not None and ending.ran_ms == 0


async def test_what_waits_behind_a_long_command_goes_back(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", cpu=100):
        long, waiting = a_command("sleep", "60"), [a_command("true") for _ in range(5)]
        await leader.dispatch(long, *waiting)
        await leader.until(lambda: len(leader.returned) == 5)
        assert set(leader.returned) == {key_of(task) for task in waiting}
        await leader.until(lambda: leader.windows["command"] == 0)
        await leader.kill(long)
        await leader.until(lambda: leader.ending(key_of(long)))
        async with asyncio.timeout(
            60
        ):  # it opens when they take less than 50 ms: on a busy machine, not the first ones
            while not leader.windows["command"]:
                await leader.run(*(a_command("true") for _ in range(10)))


async def until_gone(task: str) -> None:
    """Orphans are killed when the ending is reported; the kernel needs a moment to bury them."""
    async with asyncio.timeout(5):
        while processes_with("HEADWAY_TASK_ID", task):
            await asyncio.sleep(0.01)


async def test_a_bundle_that_is_unpacked_for_nobody_any_more_is_nobody_elses(
    leader: FakeLeader, monkeypatch: pytest.MonkeyPatch
):
    """A thread cannot be stopped: until it has ended, its directory serves no other attempt."""
    began, go_on = threading.Event(), threading.Event()

    def slowly(*args: Any, **how: Any) -> int:
        began.set()
        go_on.wait(10)
        return unpack_file(*args, **how)

    monkeypatch.setattr(freight, "unpack_file", slowly)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("secret"))
    digest = "sha256:" + hashlib.sha256(out.getvalue()).hexdigest()
    leader.scripts = {digest: out.getvalue()}
    first = an_assignment("command", Spec(command=["true"], bundle=digest))
    await leader.dispatch(first)
    await asyncio.to_thread(began.wait, 10)
    await leader.kill(first)
    await leader.until(lambda: leader.ending(key_of(first)))
    second = a_shell("echo here; while [ ! -e secret ] && [ $((n=n+1)) -lt 10 ]; do sleep 0.05; done; ls -A")
    await leader.dispatch(second)
    await leader.until(lambda: leader.log(second) == b"here\n")
    go_on.set()
    await leader.until(lambda: leader.ending(key_of(second)))
    assert leader.log(second) == b"here\n"
