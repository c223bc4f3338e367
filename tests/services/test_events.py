"""`GET /v1/events` on a real server: read on by a cursor, waited for, streamed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from headway.wire import Ack, Ended, Ending, Outcome
from tests.services.serving import TRUE, Serving
from tests.services.test_leader import an_agent

WHY = "stopped: it ran longer than its execution cap of 1s"


async def cancelled(serving: Serving) -> str:
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    await serving.http.post(f"/v1/tasks/{task}:cancel")
    return task


async def events(serving: Serving, **asked: str | int) -> dict[str, Any]:
    answer = await serving.http.get("/v1/events", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_attempt_that_overstayed_its_cap_is_told(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
        (key,) = await agent.dispatched()
        await agent.say(Ended(1, [Ending(*key, Outcome.CAPPED, code="cap_exceeded", message=WHY)]))
        await agent.hear(Ack)
    (one,) = (await events(serving, task=task))["items"]
    assert (one["kind"], one["status"], one["attempt"], one["code"]) == ("cap_exceeded", "failed", 1, "cap_exceeded")


async def test_a_reader_goes_on_from_its_cursor_page_by_page(serving: Serving):
    tasks = [await cancelled(serving) for _ in range(5)]
    seen, cursor = list[str](), "0-0"
    while len(seen) < 5:
        page = await events(serving, cursor=cursor, limit=2)
        seen += [one["task"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert seen == tasks
    assert await events(serving, cursor=cursor) == {"items": [], "next_cursor": cursor}
    last = (await events(serving, kind="cancelled"))["items"][-1]
    assert last["cursor"] == cursor
    assert (await events(serving, kind="failed"))["items"] == []


async def test_from_now_on_what_was_before_is_not_told(serving: Serving):
    await cancelled(serving)
    now = (await events(serving, cursor="now"))["next_cursor"]
    waiting = asyncio.create_task(events(serving, cursor=now, wait=20))
    task = await cancelled(serving)
    assert [one["task"] for one in (await waiting)["items"]] == [task]


async def test_a_stream_goes_on_where_the_last_one_broke(serving: Serving):
    first, second = await cancelled(serving), await cancelled(serving)
    headers = {"Accept": "text/event-stream"}

    async def one_of_a_stream() -> dict[str, Any]:
        async with serving.http.stream("GET", "/v1/events", headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    headers["Last-Event-ID"] = line[4:]
                if line.startswith("data: "):
                    return json.loads(line[6:])
        raise AssertionError("the stream ended")

    assert [(await one_of_a_stream())["task"] for _ in range(2)] == [first, second]


async def test_a_tenant_is_told_of_its_own_tasks_only(serving: Serving):
    await cancelled(serving)
    await serving.http.post("/v1/tenants", json={"name": "acme"})
    key = (await serving.http.post("/v1/keys", json={"tenant": "acme"})).json()["key"]
    async with httpx2.AsyncClient(base_url=serving.url, headers={"Authorization": f"Bearer {key}"}) as acme:
        assert (await acme.get("/v1/events")).json()["items"] == []


@pytest.mark.parametrize("query", ["cursor=x", "cursor=1-", "kind=done", "wait=61", "limit=0", "since=1"])
async def test_what_cannot_be_asked_is_refused(serving: Serving, query: str):
    answer = await serving.http.get(f"/v1/events?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, query.partition("=")[0])
