"""Why tasks wait, over HTTP: the reason in lists, explain, warnings, refusals, and what another server may know."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headway import wire
from headway.core.demand import RATIO_MAX
from headway.core.forecast import Steps
from headway.core.lifecycle import Lane
from headway.core.outlook import Outlook
from headway.store.outlook import OutlookStore
from headway.wire import Ended, Ending, Welcome
from tests.services.serving import TRUE, Serving, a_server
from tests.services.test_gateway import assert_problem
from tests.services.test_leader import an_agent
from tests.store.shop import Shop

SECONDS = 20
KEYED = {**TRUE, "concurrency": [{"key": "customer-7", "limit": 1}]}


async def explained(serving: Serving, task: str) -> dict[str, Any]:
    answer = await serving.http.get(f"/v1/tasks/{task}/explain")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_explained(serving: Serving, task: str, code: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while (said := await explained(serving, task))["code"] != code:
            await asyncio.sleep(0.02)
    return said


async def until_listed(serving: Serving, task: str, code: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while True:
            items = (await serving.http.get("/v1/tasks")).json()["items"]
            reason = next(item["reason"] for item in items if item["id"] == task)
            if reason["code"] == code:
                return reason
            await asyncio.sleep(0.05)


async def test_without_nodes_the_task_the_list_and_explain_say_so(serving: Serving):
    task = await serving.submitted()
    said = await until_explained(serving, task, "no_node")
    assert said["message"] == "no node is connected"
    assert said["helps"] == ["start one: headway agent, or headway worker MODULE:app"]
    assert said["estimate"] is None
    assert await until_listed(serving, task, "no_node") == {"code": "no_node", "message": "no node is connected"}
    assert (await serving.http.get(f"/v1/tasks/{task}")).json()["reason"]["code"] == "no_node"


async def test_a_key_names_who_holds_it_and_a_running_task_why_it_runs_there(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        holds = await serving.submitted(**KEYED)
        (key,) = await agent.dispatched()
        waits = await serving.submitted(**KEYED)
        behind = await serving.submitted(**KEYED)
        said = await until_explained(serving, waits, "concurrency")
        (blocker,) = said["blockers"]
        assert (blocker["name"], blocker["limit"], blocker["held"], blocker["holders"]) == ("customer-7", 1, 1, [holds])
        assert said["position"] == {"line": 0, "tenant": 0, "pool": 0, "complete": True}
        assert (await explained(serving, behind))["position"] == {"line": 1, "tenant": 1, "pool": 1, "complete": True}
        runs = await explained(serving, holds)
        assert (runs["status"], runs["code"]) == ("running", "running")
        started = runs["started"]
        assert (started["node"], started["lane"]) == ("n1", "normal")
        assert (started["promoted"], started["late"]) == (False, False)
        assert started["waited"] <= started["tolerance"] == 300.0
        assert {one["resource"]: (one["needed"], one["capacity"]) for one in started["fit"]} == {
            "cpu": (0.5, 1.0),
            "memory": (2.0**28, 2.0**30),
        }
        await agent.say(Ended(1, [Ending(*key, 0)]))
        await agent.hear(wire.Ack)
        over = await explained(serving, holds)
        assert (over["status"], over["code"], over["helps"]) == ("done", "done", [])
        await agent.dispatched()
        assert (await explained(serving, waits))["status"] == "running"


async def test_a_full_node_tells_what_is_missing_and_when_the_caps_end(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        await serving.submitted(resources={"cpu": 0.75}, execution_cap="60s")
        await agent.dispatched()
        task = await serving.submitted()
        said = await until_explained(serving, task, "no_capacity")
        (blocker,) = said["blockers"]
        assert (blocker["name"], blocker["needed"], blocker["free"], blocker["node"]) == ("cpu", 0.5, 0.25, "n1")
        assert said["estimate"]["basis"] == "caps"
        assert 50 < said["estimate"]["seconds"] <= 60
        assert said["estimate"]["late"] is False


@pytest.mark.parametrize(
    ("said", "code"),
    [({"eligible_at": "2031-01-01T00:00:00Z"}, "scheduled"), ({"rates": [{"key": "r", "rate": 1}]}, "rate")],
)
async def test_what_ends_by_itself_says_when(serving: Serving, said: dict[str, Any], code: str):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        await serving.submitted(**said)
        task = await serving.submitted(**said)
        found = await until_explained(serving, task, code)
        until = datetime.fromisoformat(found["blockers"][0]["until"])
        assert abs((datetime.fromisoformat(found["estimate"]["starts_at"]) - until).total_seconds()) < 1


async def test_a_failed_attempt_that_is_tried_again_is_backing_off(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        task = await serving.submitted(retry={"max_attempts": 2, "initial": "5m", "jitter": "none"})
        (key,) = await agent.dispatched()
        await agent.say(Ended(1, [Ending(*key, 1, code="exit", message="exit code 3")]))
        await agent.hear(wire.Ack)
        said = await explained(serving, task)
        assert (said["status"], said["code"]) == ("waiting", "backing_off")
        assert "exit code 3" in said["message"]
        assert 290 < said["estimate"]["seconds"] <= 300


async def test_paused_pools_and_tenants_say_so(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        await serving.http.post("/v1/pools/default:pause")
        task = await serving.submitted()
        await until_explained(serving, task, "pool_paused")
        await serving.http.patch("/v1/tenants/default", json={"paused": True})
        await serving.http.post("/v1/pools/default:resume")
        said = await until_explained(serving, task, "tenant_paused")
        assert said["estimate"] is None
        await until_listed(serving, task, "tenant_paused")


async def test_nobodys_task_is_explained_to_another(serving: Serving):
    assert_problem(await serving.http.get("/v1/tasks/1/explain"), 404, "not_found")


async def test_stats_and_metrics_tell_what_the_pool_has_and_what_is_asked(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        await serving.submitted(resources={"cpu": 1})
        await agent.dispatched()
        for _ in range(3):
            await serving.submitted(resources={"cpu": 1})
        async with asyncio.timeout(SECONDS):
            while True:
                (pool,) = (await serving.http.get("/v1/stats")).json()["pools"]
                minute = next(one for one in pool["demand"] if (one["tier"], one["window"]) == (None, "1m"))
                if minute["ratio"] < RATIO_MAX and pool["utilization"] == 1.0:
                    break
                await asyncio.sleep(0.1)
        assert (pool["name"], pool["nodes"], pool["is_peak"]) == ("default", 1, True)
        assert pool["nodes_wanted"] >= 1
        metrics = (await serving.http.get("/metrics")).text
        assert re.search(r'^headway_demand_ratio\{pool="default",tier="basic",window="10m"\} ', metrics, re.MULTILINE)
        assert 'headway_pool_is_peak{pool="default"} 1.0' in metrics
        assert 'headway_off_peak_released_total{pool="default"} 0.0' in metrics


async def test_off_peak_work_is_deferred_explained_released_and_counted(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        await serving.submitted(resources={"cpu": 1})
        (key,) = await agent.dispatched()
        task = await serving.submitted(off_peak="require", delay_tolerance="1h")
        said = await until_explained(serving, task, "off_peak")
        assert "100% of the pool's cpu is in use" in said["message"]
        await until_metric(serving, 'headway_off_peak_deferred{pool="default"} 1.0')
        await agent.say(Ended(1, [Ending(*key, 0)]))
        await agent.dispatched()
        await until_metric(serving, 'headway_off_peak_released_total{pool="default"} 1.0')


async def until_metric(serving: Serving, line: str) -> None:
    async with asyncio.timeout(SECONDS):
        while line not in (await serving.http.get("/metrics")).text:
            await asyncio.sleep(0.05)


# ── another server leads ──────────────────────────────────────────────────────────────────────────────────────────────


def an_outlook(wait: float) -> Outlook:
    """As a leader with a backlog would write it."""
    steps = [Steps(None, Lane.NORMAL, "", "cpu", [], [wait])]
    return Outlook(
        paused=False, is_peak=False, utilization=1.0, deferred=0, promotion_margin=5.0, lines=[], explanations=[],
        resources={}, steps=steps, ratios=[], nodes=1, nodes_wanted=3,
    )  # fmt: skip


@asynccontextmanager
async def a_follower(shop: Shop, database_url: str, directory: Path) -> AsyncIterator[Serving]:
    """A server that stands by, while the leadership is held elsewhere."""
    async with a_server(database_url, directory) as serving:
        yield serving


async def test_a_server_that_stands_by_knows_from_the_leaders_row(shop: Shop, database_url: str, tmp_path: Path):
    await OutlookStore(shop.database, 1).write(shop.epoch, an_outlook(100.0))
    async with a_follower(shop, database_url, tmp_path) as serving:
        (pool,) = (await serving.http.get("/v1/stats")).json()["pools"]
        assert pool["nodes_wanted"] == 3
        patient = await serving.http.post("/v1/tasks", json={**TRUE, "delay_tolerance": "10m"})
        assert "warnings" not in patient.json()
        answer = await serving.http.post("/v1/tasks", json={**TRUE, "delay_tolerance": "10s"})
        (warning,) = answer.json()["warnings"]
        assert warning["code"] == "late_start"
        assert warning["message"] == "it is expected to start in about 100 s; it tolerates 10 s"
        said = await explained(serving, answer.json()["id"])
        assert (said["code"], said["estimate"]["seconds"], said["estimate"]["late"]) == ("ready", 100.0, True)
        assert said["as_of"] == pool["as_of"]
        lines = b'{"command": ["true"], "delay_tolerance": 10}\n{"command": []}\n{"command": ["true"]}\n'
        batch = await serving.http.post(
            "/v1/tasks:batch", content=lines, headers={"Content-Type": "application/x-ndjson"}
        )
        items = batch.json()["items"]
        assert [[one["code"] for one in item.get("warnings", [])] for item in items] == [["late_start"], [], []]


async def test_a_plan_that_refuses_late_work_says_when_to_try_again(shop: Shop, database_url: str, tmp_path: Path):
    await OutlookStore(shop.database, 1).write(shop.epoch, an_outlook(100.0))
    async with a_follower(shop, database_url, tmp_path) as serving:
        patched = await serving.http.patch("/v1/plans/default", json={"admission": "refuse"})
        assert patched.json()["admission"] == "refuse"
        answer = await serving.http.post("/v1/tasks", json={**TRUE, "delay_tolerance": "10s"})
        assert_problem(answer, 429, "would_be_late")
        assert int(answer.headers["Retry-After"]) == pytest.approx(90, abs=2)
        assert f"try again in {answer.headers['Retry-After']} s" in answer.json()["detail"]
        both = [{**TRUE, "delay_tolerance": "10s"}, {**TRUE, "delay_tolerance": "5m"}]
        batch = (await serving.http.post("/v1/tasks:batch", json=both)).json()
        assert (batch["accepted"], batch["rejected"]) == (1, 1)
        assert batch["items"][0]["error"]["code"] == "would_be_late"


async def test_an_outlook_of_an_earlier_epoch_is_neither_written_nor_believed(shop: Shop):
    store = OutlookStore(shop.database, 1)
    await store.write(shop.epoch, an_outlook(1.0))
    first = await store.read()
    assert first is not None
    assert not isinstance(first, str)
    assert await store.read(first) is first
    await shop.cluster.resign(shop.epoch)
    assert await store.read() == "nobody leads"
    later = await shop.cluster.elect("other", 60.0)
    assert later is not None
    assert await store.read() is None
    await store.write(shop.epoch, an_outlook(2.0))
    assert await store.read() is None
    await store.write(later, an_outlook(3.0))
    found = await store.read(first)
    assert found is not None
    assert not isinstance(found, str)
    assert found.outlook.steps[0].waits == [3.0]
    await store.write(later, None)
    again = await store.read(found)
    assert again is not None
    assert not isinstance(again, str)
    assert (again.outlook, again.as_of > found.as_of) == (found.outlook, True)
