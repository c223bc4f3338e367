"""Bounds changed while a task waits or runs: over HTTP, by the leader, and on the node that runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headway.wire import Ack, Bounds, Change, Ended, Ending, Key, Outcome
from tests.services.agent_leader import a_call, a_leader, a_shell, key_of, result_of
from tests.services.agent_leader import an_agent as a_real_agent
from tests.services.serving import Serving
from tests.services.test_leader import RawAgent, an_agent

APP = """
import time

class Task:
    def __init__(self, fn):
        self.fn, self.wants_context = fn, True

class App:
    tasks = {}

app = App()

def until_there_is_time(*, ctx):
    asked = [ctx.remaining]
    while asked[-1] < 100: asked.append(ctx.remaining)
    return asked[0]

app.tasks["clock:until_there_is_time"] = Task(until_there_is_time)
"""


async def changed(serving: Serving, task: str, **said: object) -> dict[str, object]:
    answer = await serving.http.patch(f"/v1/tasks/{task}", json=said)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def told(agent: RawAgent) -> list[Bounds]:
    message = await agent.hear(Change)
    assert isinstance(message, Change)
    return message.bounds


async def test_the_node_that_runs_a_task_is_told_of_its_new_cap(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task = await serving.submitted(execution_cap="10s")
        (key,) = await agent.dispatched()
        view = await changed(serving, task, execution_cap="30m", cap_grace="9s")
        assert (view["execution_cap"], view["cap_grace"], view["status"]) == (1800.0, 9.0, "running")
        assert await told(agent) == [Bounds(*key, 1_800_000, 9_000)]


async def test_what_was_changed_while_its_node_was_away_is_told_when_it_is_back(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task = await serving.submitted(execution_cap="10s")
        (key,) = await agent.dispatched()
    await changed(serving, task, execution_cap="20s")
    async with an_agent(serving) as agent:
        await agent.greet(running=[key])
        assert await told(agent) == [Bounds(*key, 20_000, 5_000)]


async def test_a_change_that_meets_the_claim_reaches_the_node_one_way_or_the_other(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        for round_ in range(20):
            task = await serving.submitted(execution_cap="10s")
            change = asyncio.create_task(changed(serving, task, execution_cap="20s"))
            (assignment,) = await agent.assigned()
            await change
            if assignment.cap_ms != 20_000:
                assert [one.cap_ms for one in await told(agent)] == [20_000]
            await agent.say(Ended(round_ + 1, [Ending(1, int(task), assignment.attempt, 0)]))
            await agent.hear(Ack)


async def test_what_waits_is_looked_at_anew_when_it_became_urgent(serving: Serving):
    """On a pool that is full it passes those that were there before."""
    async with an_agent(serving) as agent:
        await agent.greet()
        whole = {"cpu": 1, "memory": "1Mi"}
        first = await serving.submitted(resources=whole)
        (key,) = await agent.dispatched()
        assert str(key.task) == first
        await serving.submitted(resources=whole)
        last = await serving.submitted(resources=whole)
        view = await changed(serving, last, delay_tolerance=0.5)
        assert view["lane"] == "urgent"
        await agent.say(Ended(1, [Ending(*key, 0)]))
        (key,) = await agent.dispatched()
        assert str(key.task) == last


async def test_quiet_hours_can_be_asked_for_and_given_up(serving: Serving):
    task = await serving.submitted(delay_tolerance="1h")
    assert (await changed(serving, task, off_peak="require"))["lane"] == "offpeak"
    assert (await changed(serving, task, off_peak="never"))["lane"] == "normal"
    assert (await changed(serving, task, off_peak="allow", delay_tolerance="5h"))["lane"] == "offpeak"
    assert (await changed(serving, task, delay_tolerance=0))["lane"] == "urgent"
    assert (await changed(serving, task, delay_tolerance="1h"))["lane"] == "normal"


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"execution_cap": "1000h"}, "execution_cap"), ({"execution_cap": 0}, "execution_cap"),
        ({"cap_grace": "1h"}, "cap_grace"), ({"delay_tolerance": "soon"}, "delay_tolerance"), ({}, ""),
        ({"off_peak": "sometimes"}, "off_peak"), ({"command": ["true"]}, "command"),
    ],
)  # fmt: skip
async def test_what_no_task_may_become_is_refused_with_its_place(serving: Serving, said: dict[str, object], path: str):
    task = await serving.submitted()
    answer = await serving.http.patch(f"/v1/tasks/{task}", json=said)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)


async def test_what_is_over_or_not_there_is_not_changed(serving: Serving):
    task = await serving.submitted()
    await serving.http.post(f"/v1/tasks/{task}:cancel")
    answer = await serving.http.patch(f"/v1/tasks/{task}", json={"execution_cap": 5})
    assert (answer.status_code, answer.json()["code"]) == (409, "already_finished")
    answer = await serving.http.patch("/v1/tasks/17", json={"execution_cap": 5})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


# ── on the node ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_running_command_may_run_longer_and_shorter(tmp_path: Path):
    async with a_leader() as leader, a_real_agent(leader, tmp_path / "n1"):
        longer = a_shell("sleep 0.6; echo through", cap_ms=300)
        shorter = a_shell("exec sleep 60")
        await leader.dispatch(longer, shorter)
        await leader.until(lambda: len(leader.started) == 2)
        await leader.say(Change([Bounds(*key_of(longer), 60_000, 100), Bounds(*key_of(shorter), 1, 100)]))
        await leader.until(lambda: leader.ending(key_of(longer)) and leader.ending(key_of(shorter)))
        through, stopped = leader.ending(key_of(longer)), leader.ending(key_of(shorter))
        assert through is not None and through.outcome == Outcome.DONE
        assert stopped is not None and stopped.code == "cap_exceeded"


async def test_a_cap_that_is_raised_just_as_it_is_over_gives_each_attempt_one_end(tmp_path: Path):
    async with a_leader() as leader, a_real_agent(leader, tmp_path / "n1"):
        tasks = [a_shell("sleep 0.4", cap_ms=100 + 5 * number) for number in range(20)]
        await leader.dispatch(*tasks)
        for task in tasks:
            await leader.say(Change([Bounds(*key_of(task), 60_000, 100)]))
            await leader.until(lambda: True)
        await leader.until(lambda: all(leader.ending(key_of(task)) for task in tasks))
        assert len(leader.endings) == len(tasks)
        assert {ending.outcome for ending in leader.endings} <= {Outcome.DONE, Outcome.CAPPED}


async def test_a_function_sees_that_it_may_run_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "clock.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    async with a_leader() as leader, a_real_agent(leader, tmp_path / "n1", app="clock:app", workers=1):
        await leader.until(lambda: leader.hellos[-1].functions)
        task = a_call("clock:until_there_is_time", cap_ms=10_000)
        await leader.dispatch(task)
        await leader.until(lambda: key_of(task) in leader.started)
        await leader.say(Change([Bounds(*key_of(task), 500_000, 100)]))
        await leader.until(lambda: leader.ending(key_of(task)))
        ending = leader.ending(key_of(task))
        assert ending is not None
        before = result_of(ending)
        assert isinstance(before, float) and before < 10


async def test_a_change_of_what_is_over_or_unknown_is_nothing(tmp_path: Path):
    async with a_leader() as leader, a_real_agent(leader, tmp_path / "n1"):
        await leader.say(Change([Bounds(*Key(1, 2, 3), 5, 5)]))
        assert (await leader.run_one(a_shell("true"))).outcome == Outcome.DONE
