"""Checkpoints: asked for, written, stored, and there again for the next attempt; and the warning before the cap."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.agent.agent import Agent, AgentSettings
from headway.core.policy import Policy
from headway.core.task import Spec, Submission, Tier, admit
from headway.scheduler import policies
from headway.wire import Outcome
from tests.services.agent_leader import a_leader, an_agent, an_assignment, key_of
from tests.services.serving import NODE_KEY, Serving, a_server

SECONDS = 30
# Counts on from where the last attempt left off, leaves when asked to, and is soon through once it has gone on.
WORK = """
import os, signal, sys, time
place = os.environ["HEADWAY_CHECKPOINT_DIR"]
file = os.path.join(place, "state")
begun = at = int(open(file).read()) if os.path.exists(file) else 0
print("begins at", begun, flush=True)
asked = []
signal.signal(signal.SIGUSR2, lambda *_: asked.append(1))
until = begun + 20 if begun else int(sys.argv[1])
while at < until:
    at += 1
    time.sleep(0.01)
    if asked:
        open(file, "w").write(str(at))
        sys.exit(85)
    if len(sys.argv) > 2 and at == int(sys.argv[2]) and not begun:
        open(file, "w").write(str(at))
        open(os.path.join(place, ".ready"), "w").close()
        while os.path.exists(os.path.join(place, ".ready")): time.sleep(0.01)
        print("stored", flush=True)
        time.sleep(60)
print("through at", at, flush=True)
"""


@asynccontextmanager
async def a_node(serving: Serving, directory: Path, name: str) -> AsyncIterator[None]:
    """A real agent of a real server."""
    settings = AgentSettings(
        url=serving.url, key=NODE_KEY, node=name, data_dir=directory / name, kinds=frozenset({"command", "script"}),
        capacity={"cpu": 1000, "memory": 2**30},
    )  # fmt: skip
    running = asyncio.create_task(Agent(settings).run())
    try:
        yield
    finally:
        running.cancel()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def serving(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    """A pool that pauses sooner than any operator would want."""
    hasty = partial(Policy, least_run_seconds=0.1, preempt_after_seconds=0.1)
    monkeypatch.setattr(policies, "Policy", hasty)
    async with a_server(database_url, tmp_path) as serving:
        yield serving


async def a_task(serving: Serving, *argv: str, **said: object) -> str:
    body = {
        "command": [sys.executable, "-I", "-S", "-c", *argv], "profile": "trusted", "checkpoint": {},
        "resources": {"cpu": 1, "memory": "64Mi"}, **said,
    }  # fmt: skip
    return await serving.submitted(**body)


async def log(serving: Serving, task: str, attempt: int) -> str:
    return (await serving.http.get(f"/v1/tasks/{task}/logs", params={"attempt": attempt})).text


async def says(serving: Serving, task: str, attempt: int, words: str) -> None:
    async with asyncio.timeout(SECONDS):
        while words not in await log(serving, task, attempt):
            await asyncio.sleep(0.02)


def begun_at(text: str) -> int:
    return int(text.split("begins at ")[1].split()[0])


async def test_released_it_goes_on_elsewhere_from_where_it_left_off(serving: Serving, tmp_path: Path):
    task = await a_task(serving, WORK, "6000")
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "begins at 0")
        answer = await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "1"})
        assert answer.status_code == 200, answer.text
        waits = await serving.until(task, "paused")
        assert (waits["status"], waits["attempt"]) == ("waiting", 1)
    async with a_node(serving, tmp_path, "two"):
        await serving.http.post(f"/v1/tasks/{task}:resume")
        done = await serving.until(task, "done")
        assert (done["node"], done["attempt"]) == ("two", 2)
    assert begun_at(await log(serving, task, 2)) > 0
    (first, _) = (await serving.http.get(f"/v1/tasks/{task}/attempts")).json()["items"]
    assert (first["outcome"], first["exit_code"], first["code"]) == ("yielded", 85, "checkpointed")
    events = (await serving.http.get("/v1/events", params={"task": task})).json()["items"]
    assert [one["kind"] for one in events] == ["paused", "resumed"]


async def test_what_was_stored_while_it_ran_is_there_when_its_node_was_lost(serving: Serving, tmp_path: Path):
    task = await a_task(serving, WORK, "40", "30", retry={"max_attempts": 1})
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "stored")
    async with a_node(serving, tmp_path, "two"):
        await serving.until(task, "done")
    assert begun_at(await log(serving, task, 2)) == 30


async def test_it_leaves_for_an_urgent_task_and_says_for_what(serving: Serving, tmp_path: Path):
    """Frozen it would keep the memory that the other one needs."""
    memory = {"cpu": 1, "memory": "900Mi"}
    task = await a_task(serving, WORK, "6000", preemptible=True, resources=memory)
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "begins at 0")
        urgent = await a_task(serving, "print(1)", resources=memory, delay_tolerance=0.1)
        await serving.until(urgent, "done")
        await serving.until(task, "done")
    assert begun_at(await log(serving, task, 2)) > 0
    events = (await serving.http.get("/v1/events", params={"task": task})).json()["items"]
    assert [one["kind"] for one in events] == ["preempted"]
    assert "urgent work that found no room" in events[0]["message"]


async def test_a_drained_node_asks_before_it_stops(serving: Serving, tmp_path: Path):
    task = await a_task(serving, WORK, "6000")
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "begins at 0")
        async with a_node(serving, tmp_path, "two"):
            await serving.http.post("/v1/nodes/one:drain", json={"deadline": 0})
            done = await serving.until(task, "done")
            assert done["node"] == "two"
    assert begun_at(await log(serving, task, 2)) > 0


@pytest.mark.parametrize(
    ("handler", "how"), [("lambda *_: sys.exit(75)", "exited with 75"), ("signal.SIG_DFL", "killed by SIGUSR2")]
)
async def test_who_leaves_in_another_way_fails_and_is_told_how_to(
    serving: Serving, tmp_path: Path, handler: str, how: str
):
    work = f"import signal, sys, time; signal.signal(signal.SIGUSR2, {handler}); print('begins at 0', flush=True)\n"
    task = await a_task(serving, work + "time.sleep(60)")
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "begins at 0")
        await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "1"})
        async with asyncio.timeout(SECONDS):
            while (found := (await serving.http.get(f"/v1/tasks/{task}")).json())["status"] != "failed":
                await asyncio.sleep(0.02)
    assert found["reason"]["message"] == f"{how}; SIGUSR2 asked it for a checkpoint: write one and exit with 85"


async def test_who_does_not_leave_in_time_stands_still_instead(serving: Serving, tmp_path: Path):
    deaf = "import signal, time; signal.signal(signal.SIGUSR2, signal.SIG_IGN); print('begins at 0', flush=True)\n"
    task = await a_task(serving, deaf + "time.sleep(60)", checkpoint={"grace": "300ms"})
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "begins at 0")
        await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "1"})
        held = await serving.until(task, "paused")
        assert (held["status"], held["attempt"]) == ("running", 1)
        await serving.http.post(f"/v1/tasks/{task}:cancel")
        await serving.until(task, "cancelled")


async def test_one_that_stands_can_be_made_to_leave(serving: Serving, tmp_path: Path):
    task = await a_task(serving, WORK, "6000")
    async with a_node(serving, tmp_path, "one"):
        await says(serving, task, 1, "begins at 0")
        await serving.http.post(f"/v1/tasks/{task}:pause")
        assert (await serving.until(task, "paused"))["status"] == "running"
        await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "1"})
        async with asyncio.timeout(SECONDS):
            while (await serving.http.get(f"/v1/tasks/{task}")).json()["status"] != "waiting":
                await asyncio.sleep(0.02)
        await serving.http.post(f"/v1/tasks/{task}:cancel")


async def test_what_writes_no_checkpoints_cannot_be_released(serving: Serving):
    task = await a_task(serving, "pass", checkpoint=None)
    answer = await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "1"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "release")
    answer = await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "perhaps"})
    assert answer.status_code == 422


# ── on the node alone ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_status_means_nothing_to_who_writes_no_checkpoints(tmp_path: Path):
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        ending = await leader.run_one(an_assignment("command", Spec(command=["/bin/sh", "-c", "exit 85"])))
        assert (ending.outcome, ending.exit_code) == (Outcome.FAILED, 85)


async def test_a_process_is_warned_before_its_cap_and_nobody_of_it_dies_of_that(tmp_path: Path):
    line = "trap 'echo warned' USR1; sleep 61 & child=$!; while :; do wait $child || kill -0 $child && echo alive; done"
    said = {"command": ["/bin/bash", "-c", line], "cap_warning": {"before": "400ms"}, "resources": {"cpu": 0.1}}
    admitted = admit(msgspec.convert(said, Submission), {"basic": Tier("basic", {"cpu": 100}, 5000, 5000)})
    assert not isinstance(admitted, list), admitted
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1"):
        task = an_assignment("command", Spec(), cap_ms=700, grace_ms=100)
        task = msgspec.structs.replace(task, spec=admitted.spec)
        ending = await leader.run_one(task)
        assert ending.code == "cap_exceeded"
        assert leader.log(task).startswith(b"warned\nalive\n")
        assert ending.ran_ms >= 700
        assert leader.ending(key_of(task)) is not None


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"cap_warning": {"before": "soon"}}, "cap_warning.before"),
        ({"checkpoint": {"grace": "2h"}}, "checkpoint.grace"),
        ({"checkpoint": {"signal": "SIGUSR1"}, "cap_warning": {}}, "checkpoint.signal"),
    ],
)
def test_rules_that_make_no_sense_are_refused(said: dict[str, Any], path: str):
    submission = msgspec.convert({"command": ["true"], **said}, Submission)
    wrong = admit(submission, {"basic": Tier("basic", {}, 5000, 5000)})
    assert isinstance(wrong, list)
    assert [one.path for one in wrong] == [path]


# ── functions ─────────────────────────────────────────────────────────────────────────────────────────────────────────

APP = """
import os, time

class Task:
    def __init__(self, fn):
        self.fn, self.wants_context = fn, True

class App:
    tasks = {}

app = App()

def task(fn):
    app.tasks["works:" + fn.__name__] = Task(fn)

@task
def count(until, stores_at=0, *, ctx):
    '''Counts on from the last checkpoint; leaves when it is asked to.'''
    begun = at = ctx.state or 0
    print("begins at", begun)
    while at < until:
        at += 1
        time.sleep(0.01)
        if ctx.checkpoint_requested:
            ctx.give_way(at)
        if at == stores_at and not begun:
            open(ctx.checkpoint_dir + "/more", "w").write("kept")
            ctx.checkpoint(at)
            os._exit(9)
    more = ctx.checkpoint_dir + "/more"
    return [begun, open(more).read() if os.path.exists(more) else ""]
"""


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "works.py").write_text(APP)
    monkeypatch.chdir(tmp_path)


@asynccontextmanager
async def a_worker(serving: Serving, directory: Path, name: str) -> AsyncIterator[None]:
    settings = AgentSettings(
        url=serving.url, key=NODE_KEY, node=name, data_dir=directory / name, kinds=frozenset({"function"}),
        app="works:app", workers=1, capacity={},
    )  # fmt: skip
    running = asyncio.create_task(Agent(settings).run())
    try:
        yield
    finally:
        running.cancel()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(running, return_exceptions=True)


async def a_call(serving: Serving, *args: object, **said: object) -> str:
    body = {"function": "works:count", "args": list(args), "checkpoint": {}, **said}
    return await serving.submitted(**body)


@pytest.mark.usefixtures("works")
async def test_a_function_is_asked_gives_way_and_goes_on_elsewhere(serving: Serving, tmp_path: Path):
    task = await a_call(serving, 150)
    async with a_worker(serving, tmp_path, "one"):
        await serving.until(task, "running")
        await serving.http.post(f"/v1/tasks/{task}:pause", params={"release": "1"})
        async with asyncio.timeout(SECONDS):
            while (await serving.http.get(f"/v1/tasks/{task}")).json()["status"] != "waiting":
                await asyncio.sleep(0.02)
    async with a_worker(serving, tmp_path, "two"):
        await serving.http.post(f"/v1/tasks/{task}:resume")
        done = await serving.until(task, "done")
    assert done["result"][0] > 0
    (first, _) = (await serving.http.get(f"/v1/tasks/{task}/attempts")).json()["items"]
    assert (first["outcome"], first["code"]) == ("yielded", "checkpointed")


@pytest.mark.usefixtures("works")
async def test_what_a_function_stored_is_there_when_its_worker_died(serving: Serving, tmp_path: Path):
    task = await a_call(serving, 40, 20, retry={"max_attempts": 2, "initial": "10ms"})
    async with a_worker(serving, tmp_path, "one"):
        done = await serving.until(task, "done")
    assert (done["result"], done["attempt"]) == ([20, "kept"], 2)
