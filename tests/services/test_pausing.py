"""Tasks paused over HTTP and by the brain: a leader with real sockets, and what it says to the node that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway.core.policy import Policy
from headway.scheduler import policies
from headway.wire import (
    Ack,
    Ended,
    Ending,
    Freeze,
    FromLeader,
    Frozen,
    Key,
    Kill,
    Returned,
    Started,
    Thaw,
    Thawed,
    Welcome,
)
from tests.services.serving import Serving, a_server
from tests.services.test_leader import RawAgent, an_agent

SECONDS = 20
WHOLE = {"cpu": 1, "memory": "1Mi"}
"""All the cpu that the node of these tests has."""


async def a_task(serving: Serving, **said: object) -> str:
    return await serving.submitted(**{"resources": WHOLE, **said})


async def ask(serving: Serving, task: str, verb: str) -> tuple[str, str]:
    """Says a verb to a task; its status and the reason after."""
    answer = await serving.http.post(f"/v1/tasks/{task}:{verb}")
    assert answer.status_code == 200, answer.text
    return where(answer.json())


def where(view: dict[str, Any]) -> tuple[str, str]:
    return view["status"], view["reason"]["code"]


async def until(serving: Serving, task: str, status: str, code: str) -> None:
    async with asyncio.timeout(SECONDS):
        while where((await serving.http.get(f"/v1/tasks/{task}")).json()) != (status, code):
            await asyncio.sleep(0.01)


async def kinds(serving: Serving, task: str, count: int) -> list[str]:
    """The first so many events of a task; one is shown when no transaction under way could come before it."""
    async with asyncio.timeout(SECONDS):
        while True:
            items = (await serving.http.get("/v1/events", params={"task": task, "wait": 5})).json()["items"]
            if len(items) >= count:
                return [one["kind"] for one in items]


async def heard(agent: RawAgent, kind: type[Freeze | Thaw | Kill]) -> list[Key]:
    message: FromLeader = await agent.hear(kind)
    assert isinstance(message, Freeze | Thaw | Kill)
    return message.keys


async def running(serving: Serving, agent: RawAgent, **said: object) -> tuple[str, Key]:
    task = await a_task(serving, **said)
    (key,) = await agent.dispatched()
    await agent.say(Started([key]))
    await until(serving, task, "running", "running")
    return task, key


async def end(agent: RawAgent, key: Key) -> None:
    await agent.say(Ended(1, [Ending(*key, 0)]))
    await agent.hear(Ack)


async def frozen(serving: Serving, agent: RawAgent, task: str, key: Key) -> None:
    """Paused, and standing still."""
    assert await ask(serving, task, "pause") == ("running", "pausing")
    assert await heard(agent, Freeze) == [key]
    await agent.say(Frozen([key]))
    await until(serving, task, "running", "paused")


async def test_what_runs_stands_still_and_goes_on(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        await frozen(serving, agent, task, key)
        assert await ask(serving, task, "pause") == ("running", "paused"), "asked twice"
        assert await ask(serving, task, "resume") == ("running", "frozen")
        assert await heard(agent, Thaw) == [key]
        await agent.say(Thawed([key]))
        await until(serving, task, "running", "running")
        await end(agent, key)
        await until(serving, task, "done", "done")
        assert await kinds(serving, task, 3) == ["paused", "resumed", "resumed"]
        (first, *_) = (await serving.http.get("/v1/events", params={"task": task})).json()["items"]
        assert first["message"] == "as asked, it stands still on its node"


async def test_what_waits_is_not_started_until_it_is_resumed(serving: Serving):
    task, other = await a_task(serving), await a_task(serving)
    assert await ask(serving, task, "pause") == ("waiting", "paused")
    async with an_agent(serving) as agent:
        await agent.greet()
        (key,) = await agent.dispatched()
        assert str(key.task) == other
        await end(agent, key)
        await ask(serving, task, "resume")
        (key,) = await agent.dispatched()
        assert str(key.task) == task


async def test_what_had_not_begun_on_its_node_waits_again_and_has_lost_no_attempt(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task = await a_task(serving)
        (key,) = await agent.dispatched()
        await ask(serving, task, "pause")
        await heard(agent, Freeze)
        await agent.say(Returned([key]))
        await until(serving, task, "waiting", "paused")
        await ask(serving, task, "resume")
        assert await agent.dispatched() == [key]


async def test_a_pause_that_meets_the_end_changes_nothing(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        await ask(serving, task, "pause")
        await end(agent, key)
        await until(serving, task, "done", "done")
        answer = await serving.http.post(f"/v1/tasks/{task}:pause")
        assert (answer.status_code, answer.json()["code"]) == (409, "already_finished")
        assert (await serving.http.post(f"/v1/tasks/{task}:resume")).status_code == 409
        assert (await serving.http.post("/v1/tasks/12:pause")).status_code == 404


async def test_others_have_the_cpu_of_what_stands_and_it_goes_on_when_there_is_room_again(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        other = await a_task(serving)
        await frozen(serving, agent, task, key)
        (second,) = await agent.dispatched()
        assert str(second.task) == other
        assert await ask(serving, task, "resume") == ("running", "frozen")
        third = await a_task(serving)
        await end(agent, second)
        assert await heard(agent, Thaw) == [key], "what began before goes before what waits"
        await agent.say(Thawed([key]))
        await end(agent, key)
        (last,) = await agent.dispatched()
        assert str(last.task) == third


async def test_resumed_before_it_stood_it_goes_on_all_the_same(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        await ask(serving, task, "pause")
        await heard(agent, Freeze)
        assert await ask(serving, task, "resume") == ("running", "running")
        await agent.say(Frozen([key]))
        assert await heard(agent, Thaw) == [key]
        await agent.say(Thawed([key]))
        await until(serving, task, "running", "running")


async def test_what_stands_can_be_cancelled(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        await frozen(serving, agent, task, key)
        assert await ask(serving, task, "cancel") == ("running", "cancelling")
        assert await heard(agent, Kill) == [key]
        await agent.say(Ended(1, [Ending(*key, 3, code="killed")]))
        await until(serving, task, "cancelled", "cancelled")
        assert str((await a_whole(serving, agent)).task) != task


async def a_whole(serving: Serving, agent: RawAgent) -> Key:
    """A task that needs the whole node, started: so nothing is held by anybody else."""
    await a_task(serving)
    (key,) = await agent.dispatched()
    return key


@pytest.mark.parametrize("stands", [True, False], ids=["stands", "went on meanwhile"])
async def test_a_node_that_comes_back_says_who_stands(serving: Serving, stands: bool):
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        await frozen(serving, agent, task, key)
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(running=[key], frozen=[key] if stands else []), Welcome)
        if not stands:  # it is paused all the same
            assert await heard(agent, Freeze) == [key]
            await agent.say(Frozen([key]))
        await until(serving, task, "running", "paused")
        await a_whole(serving, agent)


async def test_a_new_leader_knows_who_stands_and_what_room_that_leaves(database_url: str, tmp_path: Path):
    async with a_server(database_url, tmp_path) as serving, an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        await frozen(serving, agent, task, key)
    async with a_server(database_url, tmp_path) as serving, an_agent(serving) as agent:
        await agent.greet(running=[key], frozen=[key])
        second = await a_whole(serving, agent)
        await ask(serving, task, "resume")
        await end(agent, second)
        assert await heard(agent, Thaw) == [key]
        await agent.say(Thawed([key]))
        await until(serving, task, "running", "running")


async def test_a_long_task_stands_still_for_an_urgent_one_and_says_why(serving_hastily: Serving):
    serving = serving_hastily
    async with an_agent(serving) as agent:
        await agent.greet()
        long, key = await running(serving, agent, preemptible=True)
        urgent = await a_task(serving, delay_tolerance=0.1)
        assert await heard(agent, Freeze) == [key]
        await agent.say(Frozen([key]))
        (second,) = await agent.dispatched()
        assert str(second.task) == urgent
        said = (await serving.http.get(f"/v1/tasks/{long}/explain")).json()
        assert said["code"] == "frozen" and "urgent work that found no room" in said["message"]
        await end(agent, second)
        assert await heard(agent, Thaw) == [key]
        await agent.say(Thawed([key]))
        await until(serving, long, "running", "running")
        assert await kinds(serving, long, 2) == ["preempted", "resumed"]
        metrics = (await serving.http.get("/metrics")).text
        assert 'headway_preemptions_total{code="urgent",how="freeze",pool="default"} 1.0' in metrics
        assert 'headway_attempts_stood_total{pool="default"} 1.0' in metrics


async def test_what_did_not_agree_to_it_is_not_paused_for_others(serving_hastily: Serving):
    serving = serving_hastily
    async with an_agent(serving) as agent:
        await agent.greet()
        task, key = await running(serving, agent)
        urgent = await a_task(serving, delay_tolerance=0.1)
        await until(serving, urgent, "waiting", "no_capacity")
        await end(agent, key)
        (second,) = await agent.dispatched()
        assert str(second.task) == urgent
        assert (await serving.http.get("/v1/events", params={"task": task})).json()["items"] == []


@pytest.fixture
async def serving_hastily(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    """A pool that pauses sooner than any operator would want."""
    hasty = partial(Policy, least_run_seconds=0.1, preempt_after_seconds=0.1)
    monkeypatch.setattr(policies, "Policy", hasty)
    async with a_server(database_url, tmp_path) as serving:
        yield serving
