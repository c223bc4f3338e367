"""Attempts that stand still on a real agent: nothing of them runs, their cap does not, and others have their cpu."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headway.agent.sandbox.cgroups import Group
from headway.wire import Assignment, Freeze, Outcome, Thaw
from tests.services.agent_leader import FakeLeader, a_call, a_leader, a_shell, an_agent, key_of, result_of, sandboxed

COUNTS = "while :; do echo x >> {file}; sleep 0.01; done"
APP = """
import time

class Task:
    def __init__(self, fn):
        self.fn, self.wants_context = fn, fn.__name__ == "count"

class App:
    tasks = {}

app = App()

def task(fn):
    app.tasks["clock:" + fn.__name__] = Task(fn)

@task
def count(path, *, ctx):
    '''Counts into a file until there is a word in another one.'''
    while True:
        with open(path) as file:
            if file.read() == "stop":
                return ctx.remaining
        with open(path + ".count", "a") as file:
            file.write("x")
        time.sleep(0.01)

@task
def nothing(): return None
"""


@pytest.fixture
async def leader(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        yield leader


@pytest.fixture(params=["frozen", "stopped"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the kernel's freezer, or by SIGSTOP where there is none."""
    if request.param == "stopped":
        monkeypatch.setattr(Group, "can_freeze", False)
    return request.param


async def stands(leader: FakeLeader, *tasks: Assignment) -> None:
    """They stand still; and so much time passes that whatever runs is seen to."""
    keys = [key_of(task) for task in tasks]
    await leader.say(Freeze(keys))
    await leader.until(lambda: set(keys) <= leader.frozen)


async def goes_on(leader: FakeLeader, *tasks: Assignment) -> None:
    keys = [key_of(task) for task in tasks]
    await leader.say(Thaw(keys))
    await leader.until(lambda: not leader.frozen & set(keys))


async def a_while(leader: FakeLeader) -> None:
    """As long as something else takes on the same node."""
    assert (await leader.run_one(a_shell("sleep 0.3"))).outcome == Outcome.DONE


async def test_nothing_of_it_runs_while_it_stands(leader: FakeLeader, tmp_path: Path, way: str):
    ticks, daemon = tmp_path / "ticks", tmp_path / "daemon"
    line = f"setsid sh -c '{COUNTS.format(file=daemon)}' & " + COUNTS.format(file=ticks)
    task = a_shell(line)
    await leader.dispatch(task)
    await leader.until_true(lambda: size(ticks) > 6 and size(daemon) > 6)
    await stands(leader, task)
    before = size(ticks), size(daemon)
    await a_while(leader)
    assert (size(ticks), size(daemon)) == before
    await goes_on(leader, task)
    await leader.until_true(lambda: size(ticks) > before[0] and size(daemon) > before[1])
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))


async def test_its_cap_does_not_run_while_it_stands(leader: FakeLeader, way: str):
    task = a_shell("sleep 0.1; echo through", cap_ms=1000)
    began = time.monotonic()
    await leader.dispatch(task)
    await leader.until(lambda: key_of(task) in leader.started)
    await stands(leader, task)
    while time.monotonic() - began < 1.2:
        await a_while(leader)
    await goes_on(leader, task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None
    assert (ending.outcome, ending.tail) == (Outcome.DONE, b"through\n")
    assert ending.ran_ms < 1000


async def test_its_cap_stops_it_after_all(leader: FakeLeader):
    task = a_shell("exec sleep 60", cap_ms=300)
    await leader.dispatch(task)
    await leader.until(lambda: key_of(task) in leader.started)
    await stands(leader, task)
    await a_while(leader)
    await goes_on(leader, task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None
    assert ending.code == "cap_exceeded"
    assert 300 <= ending.ran_ms < 900


async def test_what_stands_can_be_stopped_politely(leader: FakeLeader, way: str):
    task = a_shell("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done", grace_ms=10_000)
    await leader.dispatch(task)
    await leader.until(lambda: key_of(task) in leader.started)
    await stands(leader, task)
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None
    assert ending.outcome == Outcome.KILLED
    assert ending.tail.endswith(b"bye\n")


async def test_others_have_its_cpu_and_not_its_memory(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", memory=100):
        task = a_shell("exec sleep 60", cpu=4000, memory=60)
        await leader.dispatch(task)
        await leader.until(lambda: key_of(task) in leader.started)
        await stands(leader, task)
        assert (await leader.run_one(a_shell("true", cpu=4000, memory=40))).outcome == Outcome.DONE
        large = a_shell("true", memory=41)
        await leader.dispatch(large)
        await leader.kill(task)
        await leader.until(lambda: leader.ending(key_of(large)))
        assert [ending.task for ending in leader.endings][-2:] == [task.task, large.task]
        again = await leader.run(*(a_shell("true", cpu=2000, memory=50) for _ in range(4)))
        assert {ending.outcome for ending in again} == {Outcome.DONE}


async def test_what_has_not_begun_goes_back(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task, behind = a_shell("exec sleep 60", cpu=4000), a_shell("true", cpu=4000)
        await leader.dispatch(task, behind)
        await leader.until(lambda: key_of(task) in leader.started)
        await leader.say(Freeze([key_of(behind)]))
        await leader.until(lambda: key_of(behind) in leader.returned)


async def test_a_new_session_says_who_stands(leader: FakeLeader):
    task = a_shell("exec sleep 60")
    await leader.dispatch(task)
    await leader.until(lambda: key_of(task) in leader.started)
    await stands(leader, task)
    leader.drop()
    await leader.until(lambda: len(leader.hellos) == 2)
    assert leader.hellos[-1].frozen == [key_of(task)]
    await goes_on(leader, task)


async def test_a_function_stands_still_and_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "clock.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    word, ticks = tmp_path / "word", tmp_path / "word.count"
    word.write_text("go")
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", app="clock:app", workers=1):
        await leader.until(lambda: leader.hellos[-1].functions)
        task, behind = a_call("clock:count", str(word), cap_ms=5000), a_call("clock:nothing")
        await leader.dispatch(task, behind)
        await leader.until_true(lambda: size(ticks) > 3)
        await stands(leader, task)
        before, began = size(ticks), time.monotonic()
        await a_while(leader)
        assert size(ticks) == before
        stood = time.monotonic() - began
        word.write_text("stop")
        await goes_on(leader, task)
        await leader.until(lambda: leader.ending(key_of(task)))
        await leader.until(lambda: leader.ending(key_of(behind)) or key_of(behind) in leader.returned)
        ending = leader.ending(key_of(task))
        assert ending is not None
        left = result_of(ending)
        assert isinstance(left, float) and left > 5 - (time.monotonic() - began) + stood - 1
        assert ending.ran_ms < 5000


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def test_in_a_sandbox_all_of_it_stands(tmp_path: Path, way: str):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", sandbox=True):
        task = sandboxed(
            a_shell("setsid sh -c 'while :; do echo a; sleep 0.02; done' & while :; do echo b; sleep 0.02; done")
        )
        await leader.dispatch(task)
        await leader.until(lambda: {b"a", b"b"} <= set(leader.log(task).split()))
        await stands(leader, task)
        for _ in range(3):  # what it printed before is told
            await a_while(leader)
        before = leader.log(task)
        for _ in range(3):
            await a_while(leader)
        assert leader.log(task) == before
        await goes_on(leader, task)
        await leader.until(lambda: {b"a", b"b"} <= set(leader.log(task)[len(before) :].split()))
        await leader.kill(task)
        await leader.until(lambda: leader.ending(key_of(task)))
