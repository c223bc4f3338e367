"""Nodes that take no more: cordoned, drained with a deadline, shut out for what they fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from headway.wire import Ack, Ended, Ending, Key, Leave, Outcome, Returned, Started
from tests.services.agent_leader import a_leader, a_shell, key_of
from tests.services.agent_leader import an_agent as a_real_agent
from tests.services.serving import Serving, a_server
from tests.services.test_leader import RawAgent, an_agent

SECONDS = 20
WHOLE = {"cpu": 1, "memory": "1Mi"}


async def a_task(serving: Serving, **said: object) -> str:
    return await serving.submitted(**{"resources": WHOLE, **said})


async def node(serving: Serving, name: str, verb: str = "", **said: object) -> dict[str, Any]:
    path = f"/v1/nodes/{name}"
    answer = await (serving.http.post(f"{path}:{verb}", json=said) if verb else serving.http.get(path))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_status(serving: Serving, name: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while (found := await node(serving, name))["status"] != status:
            await asyncio.sleep(0.02)
    return found


async def told(serving: Serving, name: str, count: int) -> list[str]:
    async with asyncio.timeout(SECONDS):
        while True:
            answer = (await serving.http.get("/v1/node-events", params={"node": name, "wait": 5})).json()
            if len(answer["items"]) >= count:
                return [one["kind"] for one in answer["items"]]


async def running(serving: Serving, agent: RawAgent, **said: object) -> Key:
    await a_task(serving, **said)
    (key,) = await agent.dispatched()
    await agent.say(Started([key]))
    return key


async def test_a_cordoned_node_takes_no_more_and_what_runs_there_goes_on(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        key = await running(serving, agent)
        closed = await node(serving, "n1", "cordon")
        assert (closed["status"], closed["owned"]) == ("cordoned", 1)
        await agent.say(Ended(1, [Ending(*key, 0)]))
        await agent.hear(Ack)
        task = await a_task(serving)
        waits = await serving.until(task, "nodes_closed")
        assert "n1 takes no tasks now" in waits["reason"]["message"]
        assert (await node(serving, "n1", "uncordon"))["status"] == "open"
        (key,) = await agent.dispatched()
        assert str(key.task) == task
        assert await told(serving, "n1", 2) == ["cordoned", "uncordoned"]


async def test_a_tenant_is_told_of_its_own_attempts_on_a_node_and_of_nobody_elses(serving: Serving):
    (await serving.http.post("/v1/tenants", json={"name": "acme"})).raise_for_status()
    theirs = (await serving.http.post("/v1/keys", json={"tenant": "acme"})).json()["key"]
    acme = {"Authorization": f"Bearer {theirs}"}
    async with an_agent(serving) as agent:
        await agent.greet()
        await running(serving, agent)
        mine = await node(serving, "n1")
        assert (mine["owned"], mine["capacity"]["cpu"]) == (1, 1), "in cores, as in a submission"
        (listed,) = (await serving.http.get("/v1/nodes", headers=acme)).json()["items"]
        shown = (await serving.http.get("/v1/nodes/n1", headers=acme)).json()
        assert (listed["owned"], shown["owned"]) == (0, 0)
        await node(serving, "n1", "drain")
        assert (await serving.http.get("/v1/nodes/n1", headers=acme)).json()["status"] == "draining"


async def test_a_cordon_outlives_the_agent_and_the_leader(database_url: str, tmp_path: Path):
    async with a_server(database_url, tmp_path) as serving, an_agent(serving) as agent:
        await agent.greet()
        await node(serving, "n1", "cordon")
    async with a_server(database_url, tmp_path) as serving, an_agent(serving) as agent:
        await agent.greet(incarnation="b")
        task = await a_task(serving)
        await serving.until(task, "nodes_closed")


async def test_others_go_to_the_nodes_that_are_left(serving: Serving):
    async with an_agent(serving) as one, an_agent(serving) as two:
        await one.greet("one")
        await two.greet("two")
        await node(serving, "one", "cordon")
        key = await running(serving, two)
        second = await a_task(serving)
        await two.say(Ended(1, [Ending(*key, 0)]))
        (key,) = await two.dispatched()
        assert str(key.task) == second


async def test_what_runs_on_a_drained_node_ends_in_peace_before_the_deadline(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        key = await running(serving, agent)
        assert (await node(serving, "n1", "drain", deadline="10m"))["status"] == "draining"
        await agent.say(Ended(1, [Ending(*key, 0)]))
        await until_status(serving, "n1", "drained")


async def test_what_has_not_ended_by_the_deadline_is_made_to_leave_and_goes_elsewhere(serving: Serving):
    async with an_agent(serving) as one, an_agent(serving) as two:
        await one.greet("one")
        key = await running(serving, one)
        await two.greet("two")
        await node(serving, "one", "drain", deadline="300ms")
        leave = await one.hear(Leave)
        assert leave == Leave([key], must=True)
        await one.say(Ended(1, [Ending(*key, Outcome.LOST, code="agent_stopped")]))
        assert await two.dispatched() == [key._replace(attempt=2)]
        (first, _) = (await serving.http.get(f"/v1/tasks/{key.task}/attempts")).json()["items"]
        assert (first["outcome"], first["code"]) == ("lost", "drained")
        await until_status(serving, "one", "drained")


async def test_what_had_not_begun_on_a_drained_node_has_lost_nothing(serving: Serving):
    async with an_agent(serving) as one, an_agent(serving) as two:
        await one.greet("one")
        await a_task(serving)
        (key,) = await one.dispatched()
        await two.greet("two")
        await node(serving, "one", "drain", deadline=0)
        await one.hear(Leave)
        await one.say(Returned([key]))
        assert await two.dispatched() == [key]


async def test_a_node_that_fails_what_ends_well_elsewhere_is_shut_out_and_reported(serving: Serving):
    async with an_agent(serving) as bad, an_agent(serving) as good:
        await good.greet("good")
        key = await running(serving, good)
        await good.say(Ended(1, [Ending(*key, 0)]))
        await good.hear(Ack)
        await node(serving, "good", "cordon")
        await bad.greet("bad")
        for number in range(5):
            key = await running(serving, bad)
            await bad.say(Ended(number + 1, [Ending(*key, Outcome.FAILED, exit_code=1, code="exit_nonzero")]))
            await bad.hear(Ack)
        assert (await node(serving, "bad"))["status"] == "open", "the last one that takes tasks"
        await node(serving, "good", "uncordon")
        found = await until_status(serving, "bad", "quarantined")
        assert "5 of 5 attempts failed here" in found["why"]
        assert found["quarantined_until"] is not None
        key = await running(serving, good)
        assert await told(serving, "bad", 1) == ["quarantined"]
        metrics = (await serving.http.get("/metrics")).text
        assert 'headway_nodes_quarantined{pool="default"} 1.0' in metrics
        await node(serving, "bad", "uncordon")
        second = await a_task(serving)
        (key,) = await bad.dispatched()
        assert str(key.task) == second


async def test_a_quarantine_ends_with_its_time(serving: Serving, database_url: str):
    async with an_agent(serving) as agent:
        await agent.greet()
        connection = await asyncpg.connect(database_url)
        await connection.execute(
            "update node set quarantined_until = clock_now() + interval '0.5 second', quarantines = 1, why = 'because'"
        )
        await connection.close()
        await until_status(serving, "n1", "open")
        await running(serving, agent)
        assert await told(serving, "n1", 1) == ["released"]


async def test_only_an_administrator_keeps_tasks_from_nodes(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
    key = (await serving.http.post("/v1/keys", json={})).json()["key"]
    async with httpx2.AsyncClient(base_url=serving.url, headers={"Authorization": f"Bearer {key}"}) as client:
        assert (await client.get("/v1/nodes")).json()["items"][0]["name"] == "n1"
        for path in ("/v1/nodes/n1:cordon", "/v1/nodes/n1:uncordon", "/v1/nodes/n1:drain"):
            assert (await client.post(path, json={})).status_code == 403
        assert (await client.get("/v1/node-events")).status_code == 403


async def test_what_cannot_be_is_refused(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
    assert (await serving.http.post("/v1/nodes/n9:cordon")).json()["code"] == "not_found"
    answer = await serving.http.post("/v1/nodes/n1:drain", json={"deadline": "soon"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "deadline")


async def test_a_real_agent_stops_what_has_to_leave_and_hands_back_the_rest(tmp_path: Path):
    async with a_leader() as leader, a_real_agent(leader, tmp_path / "n1"):
        runs, waits = a_shell("exec sleep 60", cpu=4000), a_shell("true", cpu=4000)
        await leader.dispatch(runs, waits)
        await leader.until(lambda: key_of(runs) in leader.started)
        await leader.say(Leave([key_of(runs), key_of(waits)], must=True))
        await leader.until(lambda: leader.ending(key_of(runs)) and key_of(waits) in leader.returned)
        ending = leader.ending(key_of(runs))
        assert ending is not None
        assert (ending.outcome, ending.code) == (Outcome.LOST, "agent_stopped")
