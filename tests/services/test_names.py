"""Names paused over HTTP, and a leader that heeds them with a real socket to an agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import httpx2
import pytest

from headway.scheduler import names as names_module
from headway.wire import Ended, Ending, Key
from tests.services.serving import TRUE, Serving, a_server
from tests.services.test_leader import RawAgent, an_agent

SECONDS = 20
SMALL = {"cpu": 0.001, "memory": "1Mi"}


async def submit(serving: Serving, name: str, **said: object) -> str:
    answer = await serving.http.post("/v1/tasks", json={**TRUE, "name": name, "resources": SMALL, **said})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def started(agent: RawAgent, count: int) -> list[str]:
    """The next tasks that are sent, by their ids, however many frames that takes."""
    found: list[str] = []
    while len(found) < count:
        found += [str(key.task) for key in await agent.dispatched()]
    return found


def end(task: str, attempt: int = 1, outcome: int = 0) -> Ended:
    return Ended(1, [Ending(*Key(1, int(task), attempt), outcome)])


async def test_a_name_is_paused_listed_and_resumed(serving: Serving):
    for name in ("encode", "shop.tasks:charge", "a/b c+d", "mail-*"):
        path = f"/v1/names/{name.replace('/', '%2F')}"
        paused = (await serving.http.post(f"{path}:pause")).json()
        assert (paused["name"], paused["paused"], paused["paused_by"]) == (name, True, "key:testtest")
    listed = (await serving.http.get("/v1/names")).json()
    assert [one["name"] for one in listed["items"]] == ["a/b c+d", "encode", "mail-*", "shop.tasks:charge"]
    assert (await serving.http.post("/v1/names/mail-7:pause")).json()["held_by"] == ["mail-*"]
    for _ in range(2):
        resumed = (await serving.http.post("/v1/names/mail-7:resume")).json()
        assert (resumed["paused"], resumed["held_by"], resumed["paused_at"]) == (False, ["mail-*"], None)


@pytest.mark.parametrize("name", ["x" * 10_240, "%20a", "a**", "%00"])
async def test_what_no_task_is_called_is_refused(serving: Serving, name: str):
    answer = await serving.http.post(f"/v1/names/{name}:pause")
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "name")


async def test_a_tenant_sees_and_pauses_its_own_names_only(serving: Serving):
    await serving.http.post("/v1/tenants", json={"name": "acme"})
    key = (await serving.http.post("/v1/keys", json={"tenant": "acme"})).json()["key"]
    await serving.http.post("/v1/names/encode:pause")
    async with httpx2.AsyncClient(base_url=serving.url, headers={"Authorization": f"Bearer {key}"}) as acme:
        assert (await acme.get("/v1/names")).json()["items"] == []
        assert (await acme.post("/v1/names/encode:resume")).json()["paused"] is False
        async with an_agent(serving) as agent:
            await agent.greet()
            task = (await acme.post("/v1/tasks", json={**TRUE, "name": "encode"})).json()["id"]
            assert await started(agent, 1) == [task]
    assert len((await serving.http.get("/v1/names")).json()["items"]) == 1


async def test_what_waits_is_held_what_runs_goes_on_and_nobody_waits_behind(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(names_module, "PART", 3)
    waiting = [await submit(serving, "encode-1") for _ in range(5)]
    later = await submit(serving, "encode-2", eligible_at="2020-01-01T00:00:00Z")
    others = [await submit(serving, "other") for _ in range(2)]
    assert (await serving.http.post("/v1/names/encode-*:pause")).json()["paused"] is True
    async with an_agent(serving) as agent:
        await agent.greet()
        new = await submit(serving, "encode-3")
        last = await submit(serving, "other")
        assert set(await started(agent, 3)) == {*others, last}
        assert (await serving.http.post("/v1/names/encode-*:resume")).json()["paused"] is False
        assert set(await started(agent, 7)) == {*waiting, later, new}


async def test_what_waits_is_moved_while_no_node_is_there(
    serving: Serving, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(names_module, "PART", 3)
    for name in ("encode-1", "other", "encode-2", "encode-3", "encode-4"):
        await submit(serving, name)
    await serving.http.post("/v1/names/encode-*:pause")
    marked = (
        "select count(*) from queue q join shape s using (pool, tenant, shape) "
        "where s.body ->> 'hold' = '[\"encode-*\"]'"
    )
    connection = await asyncpg.connect(database_url)
    try:
        async with asyncio.timeout(SECONDS):
            while await connection.fetchval(marked) < 4:
                pass
        assert await connection.fetchval(marked) == 4
    finally:
        await connection.close()


async def test_a_task_that_runs_is_held_before_its_next_attempt(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task = await submit(serving, "encode", retry={"max_attempts": 2, "initial": 0, "jitter": "none"})
        assert await started(agent, 1) == [task]
        await serving.http.post("/v1/names/encode:pause")
        await agent.say(end(task, outcome=1))
        other = await submit(serving, "other")
        assert await started(agent, 1) == [other]
        assert (await serving.http.get(f"/v1/tasks/{task}")).json()["status"] == "waiting"
        await serving.http.post("/v1/names/encode:resume")
        assert await started(agent, 1) == [task]


async def test_what_a_gateway_accepted_before_it_knew_is_found_out_by_its_name(
    serving: Serving, database_url: str, tmp_path: Path
):
    """Another server, which stands by, takes submissions by what it knew up to a second ago."""
    (tmp_path / "other").mkdir()
    async with a_server(database_url, tmp_path / "other") as other, an_agent(serving) as agent:
        await agent.greet()
        await submit(other, "encode")  # now it knows the policy, for a second
        assert len(await started(agent, 1)) == 1
        await serving.http.post("/v1/names/encode:pause")
        held = [await submit(other, "encode") for _ in range(20)]
        free = await submit(other, "other")
        assert await started(agent, 1) == [free]
        await serving.http.post("/v1/names/encode:resume")
        assert set(await started(agent, 20)) == set(held)


async def test_a_new_leader_holds_what_the_last_one_had_no_time_to_move(
    serving: Serving, database_url: str, tmp_path: Path
):
    waits = [await submit(serving, "encode") for _ in range(3)]
    await serving.http.post("/v1/names/encode:pause")
    serving.stop()
    await asyncio.wait([serving.task], timeout=SECONDS)
    (tmp_path / "other").mkdir()
    async with a_server(database_url, tmp_path / "other") as other, an_agent(other) as agent:
        await agent.greet()
        free = await submit(other, "other")
        assert await started(agent, 1) == [free]
        await other.http.post("/v1/names/encode:resume")
        assert set(await started(agent, 3)) == set(waits)
