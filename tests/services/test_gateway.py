"""The HTTP face: what is accepted is there, what is wrong says why and changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx2
import pytest

from tests.services.serving import NODE_KEY, TRUE, Serving

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
DIGEST = "sha256:" + "0" * 64


async def tasks_there(serving: Serving) -> int:
    return len((await serving.http.get("/v1/tasks", params={"limit": 1000})).json()["items"])


def assert_problem(answer: httpx2.Response, status: int, code: str) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code
    assert problem["detail"]
    assert problem["status"] == status
    return problem


async def test_an_accepted_task_reads_as_it_was_answered(serving: Serving):
    said = {
        "command": ["echo", "ü"],
        "name": "greet",
        "tags": {"team": "a"},
        "delay_tolerance": "90s",
        "env": {"A": "1"},
    }
    answer = await serving.http.post("/v1/tasks", json=said)
    task = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/tasks/{task['id']}"
    assert (task["status"], task["tenant"], task["lane"], task["delay_tolerance"]) == (
        "waiting",
        "default",
        "normal",
        90.0,
    )
    read = (await serving.http.get(f"/v1/tasks/{task['id']}")).json()
    assert task.pop("reason")["code"] == "ready" and read.pop("reason")  # the leader may know more by now
    assert read == task


@pytest.mark.parametrize(
    ("body", "status", "code", "path"),
    [
        (b"", 400, "malformed_json", None),
        (b'{"command":', 400, "malformed_json", None),
        (b'{"command":["x"]} trailing', 400, "malformed_json", None),
        (b"\xff\xfe{}", 400, "malformed_json", None),
        (b'{"command":["\xff"]}', 400, "malformed_json", None),
        (b'{"command":["x"],"args":' + b"[" * 9000 + b"]" * 9000 + b"}", 400, "malformed_json", None),
        (b'{"command":["x"],"command":["y"]}', 422, "invalid", "command"),
        (b'{"command":["x"],"env":{"A":"1","\\u0041":"2"}}', 422, "invalid", "env.A"),
        (b'{"command":["x\\u0000y"]}', 422, "invalid", "command[0]"),
        (b'{"function":"a:b","kwargs":{"k\\u0000":1}}', 422, "invalid", "kwargs.k\0"),
        (b'{"command":["x"],"comand":1}', 422, "invalid", "comand"),
        (b'{"command":"x"}', 422, "invalid", "command"),
        (b'{"command":["x",1]}', 422, "invalid", "command[1]"),
        (b"[]", 422, "invalid", ""),
        (b"null", 422, "invalid", ""),
        (b'{"command":["x"],"execution_cap":"1e99s"}', 422, "invalid", "execution_cap"),
        (b'{"command":["x"],"execution_cap":-1}', 422, "invalid", "execution_cap"),
        (b'{"command":["x"],"delay_tolerance":1e300}', 422, "invalid", "delay_tolerance"),
        (b'{"command":["x"],"delay_tolerance":"soon"}', 422, "invalid", "delay_tolerance"),
        (b'{"command":["x"],"retry":{"max_attempts":99999999999999999999}}', 422, "invalid", "retry.max_attempts"),
        (b'{"command":["x"],"retry":{"tries":3}}', 422, "invalid", "retry.tries"),
        (b'{"command":["x"],"resources":{"cpu":"many"}}', 422, "invalid", "resources.cpu"),
        (b'{"command":["x"],"eligible_at":"2026-01-01T00:00:00"}', 422, "invalid", "eligible_at"),
        (b'{"command":["x"],"eligible_at":"tomorrow"}', 422, "invalid", "eligible_at"),
        (b'{"command":["x"],"tier":"gold"}', 422, "invalid", "tier"),
        (b'{"script":"%s"}' % DIGEST.encode(), 422, "invalid", "script"),
        (b'{"script":"./encode.sh"}', 422, "invalid", "script"),
    ],
)
async def test_a_bad_body_says_why_and_changes_nothing(
    serving: Serving, body: bytes, status: int, code: str, path: str | None
):
    problem = assert_problem(await serving.http.post("/v1/tasks", content=body, headers=JSON), status, code)
    if path is not None:
        assert [error["path"] for error in problem["errors"]] == [path]  # type: ignore[attr-defined]
    assert await tasks_there(serving) == 0


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "\\ud800\\u0041", "a\\udfff"])
async def test_a_lone_surrogate_is_refused(serving: Serving, escape: str):
    body = b'{"command":["' + escape.encode() + b'"]}'
    answer = await serving.http.post("/v1/tasks", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert await tasks_there(serving) == 0


async def test_a_surrogate_pair_is_a_character(serving: Serving):
    answer = await serving.http.post("/v1/tasks", content=b'{"command":["\\ud83d\\ude00"]}', headers=JSON)
    assert answer.json()["command"] == ["😀"]


@pytest.mark.parametrize("media", ["text/plain", "application/xml", ""])
async def test_another_content_type_is_refused(serving: Serving, media: str):
    headers = {"Content-Type": media} if media else {}
    assert_problem(await serving.http.post("/v1/tasks", content=b"{}", headers=headers), 415, "unsupported_media_type")


async def test_a_huge_body_is_refused_while_it_is_read(serving: Serving):
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(4096):
            sent += 1
            yield b" " * 65536

    try:
        answer = await serving.http.post("/v1/tasks", content=endless(), headers=JSON)
        assert_problem(answer, 413, "too_large")
    except (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError):
        pass  # the server answered and hung up before the client was done sending
    assert sent < 4096
    declared = {**JSON, "Content-Length": str(10**12)}
    reader, writer = await asyncio.open_connection(serving.http.base_url.host, serving.http.base_url.port)
    head = "".join(f"{name}: {value}\r\n" for name, value in {**serving.http.headers, **declared}.items())
    writer.write(f"POST /v1/tasks HTTP/1.1\r\n{head}\r\n".encode())
    assert b" 413 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_a_bad_content_length_is_refused(serving: Serving):
    reader, writer = await asyncio.open_connection(serving.http.base_url.host, serving.http.base_url.port)
    writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: banana\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_in_a_batch_the_good_land_and_each_bad_one_says_why(serving: Serving):
    items = [TRUE, {"comand": ["x"]}, 7, {"function": "a:b"}, {"script": DIGEST}]
    answer = (await serving.http.post("/v1/tasks:batch", json=items)).json()
    assert (answer["accepted"], answer["rejected"]) == (2, 3)
    assert [item["index"] for item in answer["items"]] == [0, 1, 2, 3, 4]
    assert [item.get("error", {}).get("code") for item in answer["items"]] == [
        None,
        "invalid",
        "invalid",
        None,
        "invalid",
    ]
    assert await tasks_there(serving) == 2


async def test_ndjson_is_read_line_by_line(serving: Serving):
    lines = b'{"command":["a"]}\n\n{bad\n{"command":["b"],"command":["c"]}\r\n{"command":["d"]}'
    answer = (await serving.http.post("/v1/tasks:batch", content=lines, headers=NDJSON)).json()
    codes = [item.get("error", {}).get("code") for item in answer["items"]]
    assert codes == [None, "malformed_json", "invalid", None]
    assert answer["accepted"] == 2


async def test_ten_thousand_items_are_taken_and_one_more_is_not(serving: Serving):
    line = b'{"command":["x"]}\n'
    answer = (await serving.http.post("/v1/tasks:batch", content=line * 10_000, headers=NDJSON)).json()
    assert answer["accepted"] == 10_000
    assert len({item["id"] for item in answer["items"]}) == 10_000
    for media, body in ((NDJSON, line * 10_001), (JSON, b"[" + b",".join([line] * 10_001) + b"]")):
        refused = await serving.http.post("/v1/tasks:batch", content=body, headers=media)
        assert_problem(refused, 413, "too_many_items")


@pytest.mark.parametrize("body", [b"{}", b"[1,", b'"x"', b"[" * 5000])
async def test_what_is_no_array_is_refused_as_a_whole(serving: Serving, body: bytes):
    answer = await serving.http.post("/v1/tasks:batch", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("malformed_json", "invalid")


async def test_parallel_submissions_are_all_durable_under_distinct_ids(serving: Serving):
    answers = await asyncio.gather(*(serving.http.post("/v1/tasks", json=TRUE) for _ in range(60)))
    assert len({answer.json()["id"] for answer in answers}) == 60
    assert await tasks_there(serving) == 60


async def test_nothing_is_answered_before_it_is_committed(serving: Serving, database_url: str):
    """The commit waits for a lock that we hold; so does the answer."""
    holder, looker = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    try:
        async with holder.transaction():
            await holder.execute("lock table queue in exclusive mode")
            submitting = [
                asyncio.create_task(serving.http.post("/v1/tasks", json=TRUE)),
                asyncio.create_task(serving.http.post("/v1/tasks:batch", json=[TRUE, TRUE])),
            ]
            blocked = "select count(*) from pg_stat_activity where datname = current_database()"
            while not await looker.fetchval(f"{blocked} and wait_event_type = 'Lock' and query like '%insert into%'"):
                assert not any(one.done() for one in submitting)
            done, _ = await asyncio.wait(submitting, timeout=0.2)
            assert not done
        answers = await asyncio.gather(*submitting)
        assert [answer.status_code for answer in answers] == [201, 200]
        assert await looker.fetchval("select count(*) from task") == 3
    finally:
        await holder.close()
        await looker.close()


async def test_unknown_ids_and_paths_are_not_found(serving: Serving):
    for path in ("/v1/tasks/12345", "/v1/tasks/abc", "/v1/tasks/-1", "/v1/tasks/" + "9" * 40, "/v1/tasks/1/attempts",
                 "/v1/tasks/1/logs", "/v1/tasks/1/result", "/v1/nothing"):  # fmt: skip
        assert_problem(await serving.http.get(path), 404, "not_found")
    assert_problem(await serving.http.post("/v1/tasks/12345:cancel"), 404, "not_found")
    assert_problem(await serving.http.delete("/v1/tasks"), 405, "method_not_allowed")


async def test_what_waits_is_cancelled_at_once_and_only_once(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    cancelled = await serving.http.post(f"/v1/tasks/{task}:cancel")
    assert (cancelled.json()["status"], cancelled.json()["reason"]["code"]) == ("cancelled", "cancelled")
    assert_problem(await serving.http.post(f"/v1/tasks/{task}:cancel"), 409, "already_finished")
    assert (await serving.http.get(f"/v1/tasks/{task}/result")).status_code == 200
    assert (await serving.http.get(f"/v1/tasks/{task}/attempts")).json() == {"items": []}


async def test_lists_filter_and_page_from_the_newest(serving: Serving):
    for number in range(5):
        said = {"command": ["x"], "name": f"n{number % 2}", "tags": {"n": str(number)}}
        await serving.http.post("/v1/tasks", json=said)
    first = (await serving.http.get("/v1/tasks", params={"limit": 2})).json()
    rest = (await serving.http.get("/v1/tasks", params={"limit": 9, "cursor": first["next_cursor"]})).json()
    assert [task["tags"]["n"] for task in first["items"] + rest["items"]] == ["4", "3", "2", "1", "0"]
    assert rest["next_cursor"] is None
    named = (await serving.http.get("/v1/tasks", params={"name": "n1", "status": "waiting"})).json()["items"]
    assert [task["tags"]["n"] for task in named] == ["3", "1"]
    tagged = (await serving.http.get("/v1/tasks", params={"tag": "n:2"})).json()["items"]
    assert len(tagged) == 1
    for bad in ({"status": "asleep"}, {"limit": "0"}, {"limit": "x"}, {"tag": "n"}, {"colour": "red"}, {"name": "\0"}):
        assert_problem(await serving.http.get("/v1/tasks", params=bad), 422, "invalid")


async def test_a_task_for_later_waits_for_its_hour(serving: Serving):
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    task = (await serving.http.post("/v1/tasks", json={**TRUE, "eligible_at": later})).json()
    assert task["reason"]["code"] == "scheduled"
    assert datetime.fromisoformat(task["eligible_at"]) == datetime.fromisoformat(later)


async def test_an_uploaded_script_can_be_named(serving: Serving):
    upload = await serving.http.post("/v1/scripts", content=b"#!/bin/sh\necho hi\n")
    assert upload.status_code == 201
    said = {"script": upload.json()["digest"], "script_path": "./hi.sh", "args": ["a"]}
    task = (await serving.http.post("/v1/tasks", json=said)).json()
    assert (task["name"], task["kind"], task["script_path"]) == ("hi.sh", "script", "./hi.sh")
    assert_problem(await serving.http.post("/v1/scripts", content=b""), 422, "invalid")
    assert_problem(await serving.http.post("/v1/scripts", content=b"x" * (1024 * 1024 + 1)), 413, "too_large")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer x", "Basic abc", "Bearer hw_testtest_wrong", "Bearer hw__", "Bearer hw_é_x"]
)
async def test_without_a_valid_key_nothing_is_told(serving: Serving, header: str | None):
    headers = {} if header is None else {"Authorization": header.encode("utf-8")}
    async with httpx2.AsyncClient(base_url=serving.url) as stranger:
        assert_problem(await stranger.get("/v1/me", headers=headers), 401, "unauthorized")  # type: ignore[arg-type]


async def test_a_node_key_is_no_client_key(serving: Serving):
    answer = await serving.http.get("/v1/tasks", headers={"Authorization": f"Bearer {NODE_KEY}"})
    assert_problem(answer, 403, "forbidden")


async def test_waiting_for_a_result_ends_with_the_wait(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    assert (await serving.http.get(f"/v1/tasks/{task}/result", params={"wait": "0.01"})).status_code == 202
    assert_problem(await serving.http.get(f"/v1/tasks/{task}/result", params={"wait": "1e9"}), 422, "invalid")
    waited = await serving.http.post("/v1/tasks:wait", json={"ids": [task], "wait": 0.01})
    assert waited.json() == {"items": []}


async def test_waiters_are_woken_by_a_cancellation(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    waiting = asyncio.create_task(serving.http.get(f"/v1/tasks/{task}/result", params={"wait": "30"}))
    await serving.http.post(f"/v1/tasks/{task}:cancel")
    async with asyncio.timeout(10):
        assert (await waiting).json()["status"] == "cancelled"


async def test_the_open_paths_need_no_key_and_describe_the_rest(serving: Serving):
    async with httpx2.AsyncClient(base_url=serving.url) as stranger:
        assert (await stranger.get("/livez")).text == "ok"
        assert (await stranger.get("/readyz")).status_code == 200
        assert "headway_tasks_accepted_total" in (await stranger.get("/metrics")).text
        described = (await stranger.get("/openapi.json")).json()
    assert described["openapi"] == "3.1.0"
    assert {"/v1/tasks", "/v1/tasks:batch", "/v1/tasks/{id}:cancel"} <= set(described["paths"])
    references = {part.split('"')[0] for part in json.dumps(described).split("#/components/schemas/")[1:]}
    assert references <= set(described["components"]["schemas"])
