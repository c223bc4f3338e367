"""What the agent owes its leader: sessions, leases, endings that are never lost, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.agent.agent import Agent, CannotRun
from headway.agent.leftovers import MARKER, environment, owner_of, session_of
from headway.wire import Ack, Outcome
from tests.services.agent_leader import (
    FakeLeader,
    a_call,
    a_command,
    a_leader,
    a_shell,
    an_agent,
    key_of,
    settings,
)

AGENT = """
import asyncio, sys
from pathlib import Path
from headway.agent.agent import Agent, AgentSettings
url, data_dir, app = sys.argv[1:]
settings = AgentSettings(url=url, key="k", node="n1", data_dir=Path(data_dir), app=app or None, workers=1,
                         kinds=frozenset({"command", "function"}), capacity={"cpu": 4000})
asyncio.run(Agent(settings).run())
"""
SHOP = """
import time, subprocess
class Task:
    wants_context = False
    def __init__(self, fn): self.fn = fn
class App: tasks = {}
app = App()
def nap(seconds): time.sleep(seconds)
app.tasks["shop:nap"] = Task(nap)
"""


async def test_the_agent_shows_its_key_and_what_it_offers(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        hello = leader.hellos[0]
        assert leader.headers == ["Bearer node-key"]
        assert (hello.node, hello.kinds, hello.running) == ("n1", ["command", "script"], [])
        assert hello.capacity == {"cpu": 4000, "ports": 10_000} and hello.windows == {"command": 16, "script": 16}


async def test_capacity_is_detected_when_it_is_not_told(tmp_path: Path):
    async with a_leader() as leader:
        from dataclasses import replace

        running = asyncio.create_task(Agent(replace(settings(leader, tmp_path / "n1"), capacity=None)).run())
        await leader.until(lambda: leader.hellos)
        capacity = leader.hellos[0].capacity
        assert capacity["cpu"] >= 100 and capacity["memory"] > 2**26 and capacity["disk"] > 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_endings_that_are_not_acknowledged_are_repeated_in_the_next_session(tmp_path: Path):
    async with a_leader(acks=False) as leader, an_agent(leader, tmp_path / "n1"):
        task = a_command("echo", "hello")
        first = await leader.run_one(task)
        assert first.tail == b"hello\n"
        leader.acks = True
        leader.drop()
        await leader.until(lambda: len(leader.endings) == 2)
        assert leader.hellos[1].running == [key_of(task)]
        assert leader.endings == [first, first]
        leader.drop()
        await leader.until(lambda: len(leader.hellos) == 3)
        assert leader.hellos[2].running == []


async def test_attempts_live_through_a_restart_of_the_server(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        mark, ended = tmp_path / "mark", tmp_path / "ended"
        lives = a_shell(f"while [ ! -e {mark} ]; do sleep 0.01; done; echo through")
        ends = a_shell(f"echo while it was gone; touch {ended}")
        await leader.dispatch(lives)
        await leader.until(lambda: key_of(lives) in leader.started)
        await leader.dispatch(ends)
        await leader.vanish()
        await until(ended.exists)
        await leader.listen()
        await leader.until(lambda: leader.ending(key_of(ends)))
        assert set(leader.hellos[-1].running) == {key_of(lives), key_of(ends)}
        await leader.until(lambda: leader.started.count(key_of(lives)) == 2)
        mark.touch()
        await leader.until(lambda: leader.ending(key_of(lives)))
        assert leader.log(lives) == b"through\n"
        assert leader.log(ends) == b"while it was gone\n"


async def test_what_the_leader_disowns_is_killed_and_never_mentioned_again(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task = a_command("sleep", "60")
        await leader.dispatch(task)
        await leader.until(lambda: key_of(task) in leader.started)
        leader.disown = [key_of(task)]
        leader.drop()
        await leader.until(lambda: len(leader.hellos) == 2)
        await until(lambda: not pids_of(task.task))
        await leader.run_one(a_command("true"))
        assert leader.ending(key_of(task)) is None


async def test_when_the_lease_runs_out_everything_dies_before_its_end(tmp_path: Path):
    async with a_leader(lease_seconds=1.0) as leader, an_agent(leader, tmp_path / "n1"):
        task = a_shell("trap '' TERM; sleep 60 & wait; wait")
        done = a_command("true")
        leader.acks = False
        await leader.run_one(done)
        await leader.dispatch(task)
        await leader.until(lambda: key_of(task) in leader.started)
        began = asyncio.get_running_loop().time()
        await leader.vanish()
        await until(lambda: not pids_of(task.task))
        assert asyncio.get_running_loop().time() - began < 1.0
        await leader.listen()
        await leader.until(lambda: len(leader.hellos) == 2)
        assert leader.hellos[1].running == [key_of(done)], "endings already reached are kept"


async def test_a_leader_that_does_not_renew_loses_the_attempts(tmp_path: Path):
    async with a_leader(lease_seconds=0.8, renews=False) as leader, an_agent(leader, tmp_path / "n1"):
        task = a_command("sleep", "60")
        await leader.dispatch(task)
        await leader.until(lambda: len(leader.hellos) == 2)
        assert leader.hellos[1].running == []
        assert not pids_of(task.task)


async def test_a_lease_that_is_renewed_goes_on(tmp_path: Path):
    async with a_leader(lease_seconds=0.8) as leader, an_agent(leader, tmp_path / "n1"):
        ending = await leader.run_one(a_command("sleep", "2"))
        assert ending.outcome == Outcome.DONE
        assert len(leader.hellos) == 1


async def test_a_stopped_agent_hands_back_stops_and_reports(tmp_path: Path):
    async with a_leader() as leader:
        async with an_agent(leader, tmp_path / "n1", cpu=100):
            running, waiting = a_shell("trap 'echo bye; exit' TERM; sleep 60 & wait"), a_command("true")
            await leader.dispatch(running, waiting)
            await leader.until(lambda: key_of(running) in leader.started)
            await leader.dispatch(another := a_command("true"))
        ending = leader.ending(key_of(running))
        assert ending is not None and (ending.outcome, ending.code) == (Outcome.LOST, "agent_stopped")
        assert ending.tail == b"bye\n"
        assert set(leader.returned) == {key_of(waiting), key_of(another)}
        assert not pids_of(running.task)


async def test_what_the_node_does_not_offer_goes_back(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", cpu=100):
        wide, function = a_command("true", cpu=200), a_call("shop:nap", 1)
        await leader.dispatch(wide, function)
        await leader.until(lambda: len(leader.returned) == 2)
        assert set(leader.returned) == {key_of(wide), key_of(function)}


async def test_a_log_survives_a_broken_connection(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task = a_shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done")
        await leader.dispatch(task)
        await leader.until(lambda: leader.chunks)
        leader.drop()
        await leader.until(lambda: leader.ending(key_of(task)))
        pieces = {chunk.at: chunk.body for chunk in leader.chunks}
        assert b"".join(pieces[n] for n in sorted(pieces)) == b"1\n2\n3\n4\n5\n6\n"


async def test_a_task_that_prints_is_not_held_up_by_a_leader_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.agent.outbox.LOGS_BYTES_MAX", 100_000)
    monkeypatch.setattr("headway.agent.runners.printing.PATIENCE_SECONDS", 0.1)
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task = a_shell(f"sleep 0.3; head -c 20000000 /dev/zero; touch {tmp_path}/over; echo end")
        await leader.dispatch(task)
        await leader.until(lambda: key_of(task) in leader.started)
        await leader.vanish()
        async with asyncio.timeout(10):
            while not (tmp_path / "over").exists():
                await asyncio.sleep(0.01)
        await leader.listen()
        await leader.until(lambda: leader.ending(key_of(task)))
        log = leader.log(task)
        assert log.endswith(b"\0end\n") and b"bytes of output dropped here]" in log


async def test_what_is_dispatched_twice_runs_once(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task = a_shell(f"echo x >> {tmp_path}/ran; sleep 0.2")
        await leader.dispatch(task)
        await leader.dispatch(task)
        await leader.until(lambda: leader.ending(key_of(task)))
        await leader.run_one(a_command("true"))
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_an_agent_can_be_stopped_before_it_finds_a_leader(tmp_path: Path):
    leader = FakeLeader(port=1)
    running = asyncio.create_task(Agent(settings(leader, tmp_path / "n1")).run())
    await until((tmp_path / "n1" / "attempts").exists)
    running.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_a_data_directory_belongs_to_one_agent(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        with pytest.raises(CannotRun, match="another agent"):
            await Agent(settings(leader, tmp_path / "n1")).run()


async def test_without_room_for_endings_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.agent.outbox.ENDINGS_MAX", 3)
    async with a_leader(acks=False) as leader, an_agent(leader, tmp_path / "n1", cpu=100):
        tasks = [a_command("true") for _ in range(6)]
        await leader.dispatch(*tasks)
        await leader.until(lambda: len(leader.endings) == 3)
        await leader.kill(tasks[5])
        await leader.until(lambda: leader.ending(key_of(tasks[5])))
        ending = leader.ending(key_of(tasks[5]))
        assert ending is not None and ending.message == "stopped on request before it began"
        await leader.say(Ack(leader.ended[-1].sequence))
        await leader.until(lambda: len(leader.endings) == 6)


@pytest.mark.parametrize("how", ["guardian", "next agent"])
async def test_kill_9_of_the_agent_leaves_no_task_process(tmp_path: Path, how: str):
    (tmp_path / "shop.py").write_text(SHOP)
    async with a_leader() as leader:
        agent = start_agent(leader, tmp_path)
        try:
            await leader.until(lambda: leader.hellos)
            escapes = a_shell("(setsid sleep 61 >/dev/null 2>&1 </dev/null &) ; sleep 62 & sleep 63")
            nap = a_call("shop:nap", 60)
            await leader.dispatch(escapes, nap)
            await leader.until(lambda: {key_of(escapes), key_of(nap)} <= set(leader.started))
            await until(lambda: len(marked(tmp_path)) >= 4)
            if how == "next agent":
                kill_guardian(agent.pid)
        finally:
            agent.kill()
            agent.wait()
        if how == "next agent":
            assert marked(tmp_path)
            again = start_agent(leader, tmp_path)
            incarnation = leader.hellos[0].incarnation
            await leader.until(lambda: leader.hellos[-1].incarnation != incarnation)
            assert not [pid for pid in marked(tmp_path) if incarnation.encode() in environment(pid)[MARKER.encode()]]
            again.terminate()
            again.kill()
            again.wait()
        await until(lambda: not marked(tmp_path))


HIDING = ["exec sleep 62", "read _ <{fifo}; exec env -i sleep 62", "read _ <{fifo}; env -i sleep 62 & exit"]


@pytest.mark.parametrize("line", HIDING, ids=["marked", "unmarked", "unmarked and its leader gone"])
async def test_what_a_stopped_agent_runs_dies_with_its_lease(tmp_path: Path, line: str):
    (tmp_path / "shop.py").write_text(SHOP)
    os.mkfifo(fifo := tmp_path / "fifo")
    async with a_leader(lease_seconds=4.0) as leader:
        agent = start_agent(leader, tmp_path)
        try:
            await leader.until(lambda: leader.hellos)
            task, nap = a_shell(line.format(fifo=fifo)), a_call("shop:nap", 60)
            await leader.dispatch(task, nap)
            await leader.until(lambda: {key_of(task), key_of(nap)} <= set(leader.started))
            (session,) = pids_of(task.task)
            agent.send_signal(signal.SIGSTOP)
            stopped_at = asyncio.get_running_loop().time()
            if "fifo" in line:
                fifo.write_text("now\n")
                await until(lambda: not pids_of(task.task))
            assert members(session), "it runs on"
            await until(lambda: not members(session) and not marked(tmp_path))
            assert 1.0 < asyncio.get_running_loop().time() - stopped_at < 4.0
            agent.send_signal(signal.SIGCONT)
            await leader.until(lambda: len(leader.hellos) > 1 and leader.hellos[-1].functions)
            endings = await leader.run(a_command("true"), a_call("shop:nap", 0))
            assert [ending.outcome for ending in endings] == [Outcome.DONE] * 2
            ending = leader.ending(key_of(task))
            by_itself = [(Outcome.DONE, "")] if line.endswith("exit") else []  # its shell did exit, with 0
            assert ending is None or (ending.outcome, ending.code) in [(Outcome.LOST, "lease_lost"), *by_itself]
        finally:
            agent.kill()
            agent.wait()
        await until(lambda: not marked(tmp_path))


def members(session: int) -> list[int]:
    """The processes of a session that are no zombies."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and session_of(int(entry)) == session]


def start_agent(leader: FakeLeader, tmp_path: Path) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", AGENT, f"http://127.0.0.1:{leader.port}", str(tmp_path / "n1"), "shop:app"]
    return subprocess.Popen(arguments, cwd=tmp_path)


def kill_guardian(agent: int) -> None:
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    guardians = [pid for pid in children if b"headway-guardian" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(guardians) == 1
    os.kill(int(guardians[0]), signal.SIGKILL)


def marked(tmp_path: Path) -> list[int]:
    """Processes of the agent of that directory."""
    owner = owner_of("n1", tmp_path / "n1").encode()
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if environment(pid).get(MARKER.encode(), b"").startswith(owner)]


def pids_of(task: int) -> list[int]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if environment(pid).get(b"HEADWAY_TASK_ID") == str(task).encode()]


async def until(fact: object) -> None:
    """Facts outside of the protocol have no event to wait for: they are looked at, for a bounded time."""
    assert callable(fact)
    async with asyncio.timeout(10):
        while not fact():
            await asyncio.sleep(0.01)
