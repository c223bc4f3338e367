"""Functions, run by real worker processes of a real agent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.wire import RESULT_BYTES_MAX, Outcome
from tests.services.agent_leader import FakeLeader, a_call, a_leader, an_agent, key_of, result_of

APP = """
import asyncio, ctypes, os, signal, sys, time
from pathlib import Path

class Task:
    def __init__(self, fn, wants_context=False):
        self.fn, self.wants_context = fn, wants_context

class App:
    tasks = {}

app = App()

def task(fn):
    app.tasks["shop:" + fn.__name__] = Task(fn, fn.__name__ == "context")
    return fn

@task
def double(n): return 2 * n
@task
def length(text): return len(text)
@task
def bad(): raise ValueError("bad")
@task
def leave(): sys.exit(9)
@task
def large(n): return "x" * n
@task
def not_json(): return object()
@task
def die(): os._exit(5)
@task
def crash(): os.kill(os.getpid(), signal.SIGSEGV)
@task
def show(text): print(text); print("err", file=sys.stderr); return 1
@task
async def later(n): await asyncio.sleep(0.001); return n + 1
@task
def context(ctx): return [ctx.task_id, ctx.attempt, ctx.remaining, ctx.idempotency_key]
@task
def nap(seconds): time.sleep(seconds); return seconds
@task
def cleans(path, seconds):
    try: time.sleep(seconds)
    finally: Path(path).write_text("cleaned")
@task
async def async_cleans(path, seconds):
    try: await asyncio.sleep(seconds)
    finally: Path(path).write_text("cleaned")
@task
def stubborn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try: time.sleep(seconds)
        except BaseException: pass
@task
def pid(): return os.getpid()
@task
def environ(name): return os.environ.get(name)
@task
def forks(path, how):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    Path(path).write_text(str(os.getpid()))
    if how == "raises": raise RuntimeError("in the child")
    if how == "exits": sys.exit(3)
    return "from the child"
@task
def half(): raise Exception(chr(0xd800))
@task
def mute():
    class Mute(Exception):
        def __str__(self): raise RuntimeError("no")
    raise Mute
@task
def nul(): raise Exception("a" + chr(0) + "b")
@task
def nul_result(): return "a" + chr(0) + "b"
@task
def no_numbers(): return {"a": [1, {"b": (None, float("nan"))}]}
@task
def nothing_in_it(): return [None, "null", 1.5]
@task
def wordy(): raise Exception("x" * 1_000_000)
@task
def closes(last): os.closerange(3, last)
@task
def append(path, seconds):
    with open(path, "a") as file: file.write("x")
    time.sleep(seconds)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return "shop:app"


@pytest.fixture
async def leader(tmp_path: Path, shop: str):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", app=shop):
        yield leader


@pytest.fixture
async def alone(tmp_path: Path, shop: str):
    """A leader of an agent with one worker: whoever answers is the same process, unless it was replaced."""
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", app=shop, workers=1):
        yield leader


async def test_hello_offers_the_functions_of_the_app(leader: FakeLeader):
    hello = leader.hellos[-1]
    assert "shop:double" in hello.functions
    assert hello.capacity["workers"] == 2
    assert hello.windows["function"] == 256


async def test_a_function_that_returns_is_done(leader: FakeLeader):
    ending = await leader.run_one(a_call("shop:double", 21))
    assert (ending.outcome, result_of(ending), ending.code) == (Outcome.DONE, 42, "")


async def test_thousands_of_functions_each_get_their_own_result(leader: FakeLeader):
    endings = await leader.run(*(a_call("shop:double", n) for n in range(3000)))
    assert [result_of(ending) for ending in endings] == [2 * n for n in range(3000)]
    assert leader.windows["function"] > 1000


async def test_an_async_function_is_awaited(leader: FakeLeader):
    endings = await leader.run(a_call("shop:later", 1), a_call("shop:later", 2))
    assert [result_of(ending) for ending in endings] == [2, 3]


async def test_an_exception_fails_the_task_with_its_traceback(leader: FakeLeader):
    task = a_call("shop:bad")
    ending = await leader.run_one(task)
    assert (ending.outcome, ending.code, ending.message) == (Outcome.FAILED, "raised", "ValueError: bad")
    assert ending.tail.startswith(b"Traceback")
    assert b"worker_process" not in ending.tail
    assert leader.log(task) == ending.tail


async def test_sys_exit_fails_the_task_and_not_the_worker(alone: FakeLeader):
    before = result_of(await alone.run_one(a_call("shop:pid")))
    ending = await alone.run_one(a_call("shop:leave"))
    assert (ending.code, ending.message) == ("raised", "SystemExit: 9")
    assert result_of(await alone.run_one(a_call("shop:pid"))) == before


@pytest.mark.parametrize(("how", "status"), [("returns", 0), ("raises", 1), ("exits", 3)])
async def test_the_child_of_a_function_that_forks_is_no_second_worker(
    alone: FakeLeader, tmp_path: Path, how: str, status: int
):
    before = result_of(await alone.run_one(a_call("shop:pid")))
    ending = await alone.run_one(a_call("shop:forks", str(tmp_path / "child"), how, cap_ms=5000))
    assert (ending.outcome, result_of(ending)) == (Outcome.DONE, status), ending.message
    assert result_of(await alone.run_one(a_call("shop:pid"))) == before
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("shop:half", "Exception: \\ud800"),
        ("shop:mute", "Mute (its text cannot be had: RuntimeError)"),
        ("shop:nul", "Exception: a\\0b"),
    ],
)
async def test_an_exception_that_cannot_be_told_as_it_is_costs_no_worker(
    alone: FakeLeader, function: str, message: str
):
    before = result_of(await alone.run_one(a_call("shop:pid")))
    ending = await alone.run_one(a_call(function))
    assert (ending.outcome, ending.code, ending.message) == (Outcome.FAILED, "raised", message)
    assert result_of(await alone.run_one(a_call("shop:pid"))) == before


async def test_what_an_exception_says_is_bounded(leader: FakeLeader):
    ending = await leader.run_one(a_call("shop:wordy"))
    assert ending.code == "raised" and len(ending.message) == 4000


async def test_a_result_keeps_a_nul_as_json_spells_it(leader: FakeLeader):
    ending = await leader.run_one(a_call("shop:nul_result"))
    assert ending.result == '"a\\u0000b"', "PostgreSQL's json takes it so"


async def test_a_function_that_closes_low_descriptors_costs_no_worker(alone: FakeLeader):
    before = result_of(await alone.run_one(a_call("shop:pid")))
    ending = await alone.run_one(a_call("shop:closes", 20))
    assert ending.outcome == Outcome.DONE
    assert result_of(await alone.run_one(a_call("shop:pid"))) == before


async def test_a_function_that_closes_every_descriptor_is_to_blame_for_its_worker(alone: FakeLeader):
    ending = await alone.run_one(a_call("shop:closes", 4096))
    assert (ending.outcome, ending.code) == (Outcome.FAILED, "worker_died")
    assert result_of(await alone.run_one(a_call("shop:double", 2))) == 4


async def test_a_result_that_is_too_large_or_no_json_says_what_to_do(leader: FakeLeader):
    large, not_json, unknown = await leader.run(
        a_call("shop:large", RESULT_BYTES_MAX), a_call("shop:not_json"), a_call("shop:gone")
    )
    assert (large.code, large.outcome) == ("result_too_large", Outcome.FAILED)
    assert not_json.code == "result_not_json" and "return" in not_json.message
    assert unknown.code == "function_unknown" and "shop:bad" in unknown.message


async def test_a_result_with_a_number_that_json_has_no_word_for_is_no_result(leader: FakeLeader):
    """The encoder makes `null` of it, and nobody would hear of it."""
    lost, kept = await leader.run(a_call("shop:no_numbers"), a_call("shop:nothing_in_it"))
    assert (lost.outcome, lost.code) == (Outcome.FAILED, "result_not_json")
    assert "nan" in lost.message
    assert (kept.outcome, kept.result) == (Outcome.DONE, '[null,"null",1.5]')


async def test_what_a_function_prints_is_its_log(leader: FakeLeader):
    task, silent = a_call("shop:show", "hello"), a_call("shop:double", 1)
    ending, quiet = await leader.run(task, silent)
    assert leader.log(task) == ending.tail == b"hello\nerr\n"
    assert (quiet.tail, quiet.log_bytes) == (b"", 0)


async def test_the_context_tells_a_function_about_itself(leader: FakeLeader):
    task = a_call("shop:context", cap_ms=50_000)
    task_id, attempt, remaining, key = result_of(await leader.run_one(task))  # pyright: ignore[reportGeneralTypeIssues]
    assert (task_id, attempt, key) == (str(task.task), 1, f"7-{task.task}")
    assert 40 < remaining <= 50


@pytest.mark.parametrize(("function", "says"), [("shop:die", "exited with 5"), ("shop:crash", "killed by SIGSEGV")])
async def test_a_task_that_kills_its_worker_fails_alone(leader: FakeLeader, function: str, says: str):
    others = [a_call("shop:double", n) for n in range(50)]
    endings = await leader.run(*others[:25], a_call(function), *others[25:])
    assert endings[25].code == "worker_died" and says in endings[25].message
    for n, ending in enumerate(endings[:25] + endings[26:]):
        # What ended just before the crash may not have been told: then it is lost, and never silently run again.
        assert ending.code == "result_lost" or result_of(ending) == 2 * n
    assert all(ending.code != "result_lost" for ending in endings[26:])


async def test_a_cap_stops_a_function_and_lets_it_clean_up(alone: FakeLeader, tmp_path: Path):
    for n, function in enumerate(["shop:cleans", "shop:async_cleans"]):
        before = result_of(await alone.run_one(a_call("shop:pid")))
        mark = tmp_path / f"mark{n}"
        ending = await alone.run_one(a_call(function, str(mark), 60, cap_ms=100, grace_ms=5000))
        assert (ending.outcome, ending.code) == (Outcome.CAPPED, "cap_exceeded")
        assert mark.read_text() == "cleaned"
        assert result_of(await alone.run_one(a_call("shop:pid"))) == before, "the worker lives on"


async def test_a_function_that_swallows_the_stop_is_killed(leader: FakeLeader):
    ending = await leader.run_one(a_call("shop:stubborn", 60, cap_ms=100, grace_ms=100))
    assert (ending.outcome, ending.code) == (Outcome.CAPPED, "cap_exceeded")
    assert result_of(await leader.run_one(a_call("shop:double", 1))) == 2


async def test_a_slow_function_holds_no_fast_one_hostage(leader: FakeLeader):
    """Chunks are large when the slow ones come: those behind them are revoked and run elsewhere."""
    await leader.run(*(a_call("shop:double", n) for n in range(2000)))
    slow = a_call("shop:nap", 30, cap_ms=60_000)
    fast = [a_call("shop:double", n) for n in range(200)]
    endings = await leader.run_without(slow, [*fast[:50], slow, *fast[50:]])
    assert [result_of(e) for e in endings] == [2 * n for n in range(200)]
    assert leader.ending(key_of(slow)) is None
    await leader.until(lambda: key_of(slow) in leader.started)
    await leader.kill(slow)
    await leader.until(lambda: leader.ending(key_of(slow)))
    ending = leader.ending(key_of(slow))
    assert ending is not None and (ending.outcome, ending.code) == (Outcome.KILLED, "killed")


async def test_what_waits_behind_slow_functions_goes_back(alone: FakeLeader):
    slow = a_call("shop:nap", 30)
    behind = [a_call("shop:double", n) for n in range(20)]
    await alone.dispatch(slow)
    await alone.until(lambda: len(alone.started) == 1)
    await alone.dispatch(*behind)
    await alone.until(lambda: len(alone.returned) == 20)
    assert set(alone.returned) == {key_of(a) for a in behind}
    await alone.until(lambda: alone.windows["function"] == 0)
    await alone.kill(slow)
    await alone.until(lambda: alone.ending(key_of(slow)))


async def test_a_kill_reaches_functions_that_have_not_begun(alone: FakeLeader):
    slow = a_call("shop:nap", 30)
    queued = a_call("shop:double", 1)
    await alone.dispatch(slow)
    await alone.until(lambda: len(alone.started) == 1)
    await alone.dispatch(queued)
    await alone.kill(queued, slow)
    await alone.until(lambda: alone.ending(key_of(queued)) and alone.ending(key_of(slow)))
    ending = alone.ending(key_of(queued))
    assert ending is not None and (ending.outcome, ending.ran_ms) == (Outcome.KILLED, 0)


async def test_an_app_that_cannot_be_imported_leaves_the_agent_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headway.agent.agent.BOOT_SECONDS", 0.2)
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", app="broken:app"):
        assert leader.hellos[-1].functions == []
        (tmp_path / "broken.py").write_text(APP)
        await leader.until(lambda: "shop:double" in leader.hellos[-1].functions)


async def test_workers_do_not_see_the_agents_key_and_die_with_it(
    tmp_path: Path, shop: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_KEY", "secret")
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", app=shop):
        assert result_of(await leader.run_one(a_call("shop:environ", "HEADWAY_KEY"))) is None
        pid = result_of(await leader.run_one(a_call("shop:pid")))
    assert isinstance(pid, int)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_stopped_agent_reports_what_it_stopped(tmp_path: Path, shop: str):
    async with a_leader() as leader:
        async with an_agent(leader, tmp_path / "n1", app=shop, workers=1):
            mark = tmp_path / "mark"
            running, behind = a_call("shop:cleans", str(mark), 60, grace_ms=5000), a_call("shop:double", 1)
            await leader.dispatch(running, behind)
            await leader.until(lambda: key_of(running) in leader.started)
        ending = leader.ending(key_of(running))
        assert ending is not None and (ending.outcome, ending.code) == (Outcome.LOST, "agent_stopped")
        assert mark.read_text() == "cleaned"
        assert leader.returned == [key_of(behind)]


async def test_large_arguments_arrive(leader: FakeLeader):
    texts = [letter * 900_000 for letter in "abcd"]
    endings = await leader.run(*(a_call("shop:length", text) for text in texts))
    assert [result_of(ending) for ending in endings] == [900_000] * 4
