"""What functions leave is gone before the next one, what they eat ends only them, and what they used is told."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.agent.runners.worker_room import Room
from headway.wire import Outcome
from tests.services.agent_leader import FakeLeader, a_call, a_leader, an_agent, key_of, result_of

MIB = 1024 * 1024
APP = """
import multiprocessing, os, subprocess, tempfile, time
from pathlib import Path

class Task:
    wants_context = False
    def __init__(self, fn): self.fn = fn

class App:
    tasks = {}

app = App()
pool = subprocess.Popen(["sleep", "300"])
kept = tempfile.NamedTemporaryFile(delete=False).name

def task(fn):
    app.tasks["shop:" + fn.__name__] = Task(fn)
    return fn

@task
def pid(): return os.getpid()
@task
def child(): return subprocess.Popen(["sleep", "300"], start_new_session=True).pid
@task
def daemon():
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            os.execve("/bin/sleep", ["sleep", "300"], {})
        os._exit(0)
    os.close(write)
    return int(os.read(read, 20))
@task
def tracked():
    lock = multiprocessing.get_context("spawn").Lock()
    from multiprocessing import resource_tracker
    return resource_tracker._resource_tracker._pid
@task
def alive(pid):
    try: return open(f"/proc/{pid}/stat").read().split()[2] not in "ZX"
    except OSError: return False
@task
def files():
    with tempfile.NamedTemporaryFile(delete=False) as file: file.write(b"x")
    Path(tempfile.mkdtemp(), "deep").write_text("x")
    return len(os.listdir(tempfile.gettempdir()))
@task
def left(): return [name for name in os.listdir(tempfile.gettempdir())] == [os.path.basename(kept)]
@task
def pools(): return [pool.pid, pool.poll()]
@task
def where(): return tempfile.gettempdir()
@task
def eat(mebibytes):
    bulk = bytearray(mebibytes * 1024 * 1024)
    time.sleep(0.05 if mebibytes < 128 else 30)  # without control groups it is killed when the agent looks
    return mebibytes
@task
def double(n): return 2 * n
@task
def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
"""


@pytest.fixture
async def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeLeader]:
    """A leader of an agent with one worker, which has 128 MiB."""
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", app="shop:app", workers=1, memory=128 * MIB):
        yield leader


async def said(leader: FakeLeader, function: str, *args: object) -> object:
    ending = await leader.run_one(a_call(f"shop:{function}", *args))
    assert ending.outcome == Outcome.DONE, ending
    return result_of(ending)


@pytest.mark.parametrize("how", ["child", "daemon"])
async def test_a_process_that_a_function_left_is_gone_before_the_next_begins(alone: FakeLeader, how: str):
    worker = await said(alone, "pid")
    endings = await alone.run(*(a_call(f"shop:{how}") for _ in range(3)))
    for ending in endings:
        assert await said(alone, "alive", result_of(ending)) is False
    assert await said(alone, "pid") == worker
    pool, status = await said(alone, "pools")  # pyright: ignore[reportGeneralTypeIssues]
    assert status is None and await said(alone, "alive", pool) is True, "what the app started at its import stays"


async def test_what_multiprocessing_keeps_for_itself_stays(alone: FakeLeader):
    tracker = await said(alone, "tracked")
    assert await said(alone, "tracked") == tracker
    assert await said(alone, "alive", tracker) is True


async def test_files_that_a_function_left_are_gone_before_the_next_begins(alone: FakeLeader):
    for _ in range(5):
        endings = await alone.run(a_call("shop:files"), a_call("shop:left"))
        assert [result_of(ending) for ending in endings] == [3, True]
    directory = Path(str(await said(alone, "where")))
    assert directory.parent.parent.name == "workers" and len(list(directory.iterdir())) == 1


async def test_a_function_that_eats_more_than_its_worker_has_fails_with_oom_and_no_other_does(alone: FakeLeader):
    worker = await said(alone, "pid")
    tasks = [*(a_call("shop:double", n) for n in range(20)), a_call("shop:eat", 200)]
    tasks += [a_call("shop:double", n) for n in range(20)]
    await alone.dispatch(*tasks)
    await alone.until(lambda: all(alone.ending(key_of(task)) or key_of(task) in alone.returned for task in tasks))
    eater, after = alone.ending(key_of(tasks[20])), [alone.ending(key_of(task)) for task in tasks[21:]]
    assert eater is not None and (eater.outcome, eater.code) == (Outcome.FAILED, "oom")
    assert "128 MiB" in eater.message and "--worker-memory 256Mi" in eater.message
    before = [alone.ending(key_of(task)) for task in tasks[:20]]
    assert {ending.outcome for ending in before if ending} <= {Outcome.DONE, Outcome.LOST}, "lost ones are tried again"
    assert {ending.outcome for ending in after if ending} == {Outcome.DONE}, "or they went back to be run elsewhere"
    assert await said(alone, "eat", 64) == 64
    assert await said(alone, "pid") != worker


async def test_what_a_function_used_is_told_when_it_is_worth_telling(alone: FakeLeader):
    spun = await alone.run_one(a_call("shop:spin", 0.05))
    assert spun.usage is not None and 0.05 <= spun.usage["cpu_user"] + spun.usage["cpu_system"] < 1
    ate = await alone.run_one(a_call("shop:eat", 64))
    again = await alone.run_one(a_call("shop:spin", 0.03))
    assert ate.usage is not None and again.usage is not None
    assert ate.usage["memory_peak"] > 64 * MIB > again.usage["memory_peak"]
    assert (await alone.run_one(a_call("shop:double", 1))).usage is None


def test_where_no_control_group_limits_a_worker_its_size_is_looked_at():
    small = Room("/nowhere", None, MIB)
    assert small.looks(os.getpid()) and small.is_overfull
    with subprocess.Popen(["true"]) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it is dead, has nothing any more, and is not buried
        assert small.looks(dead.pid) and small.is_overfull
    assert not Room("/nowhere", None, 64 * 1024 * MIB).looks(os.getpid())
    assert not Room("/nowhere", None, None).looks(os.getpid())
