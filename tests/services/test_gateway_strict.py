"""What a client gets to hear when it mistypes: every refusal is a problem document that names the place."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from headway.gateway import connection
from headway.gateway.batch import LINE_BYTES_MAX
from tests.services.serving import TRUE, Serving

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}


def paths(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [error["path"] for error in answer.json()["errors"]]


async def tasks_there(serving: Serving) -> int:
    return len((await serving.http.get("/v1/tasks")).json()["items"])


async def said_raw(serving: Serving, raw: bytes) -> tuple[bytes, dict[str, object]]:
    """The status line and the body of the answer to bytes that no library would send."""
    reader, writer = await asyncio.open_connection(serving.http.base_url.host, serving.http.base_url.port)
    writer.write(raw)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    return head.split(b"\r\n")[0], json.loads(body)


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/tasks/\xd9\xa3 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_told_so_in_a_problem_document(serving: Serving, raw: bytes):
    status, problem = await said_raw(serving, raw)
    assert b" 400 " in status
    assert (problem["code"], problem["status"]) == ("malformed_http", 400)


async def test_a_chunk_that_is_none_is_told_so(serving: Serving):
    key = serving.http.headers["authorization"].encode()
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: " + key
    status, problem = await said_raw(serving, head + b"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n")
    assert b" 400 " in status
    assert problem["code"] == "malformed_http"
    assert await tasks_there(serving) == 0


async def test_a_client_that_is_too_slow_is_told_so_in_a_problem_document(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "PROGRESS_SECONDS", 0.2)
    status, problem = await said_raw(serving, b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nX-A")
    assert b" 408 " in status
    assert (problem["code"], problem["status"]) == ("too_slow_to_ask", 408)


async def test_a_slash_too_many_is_not_found_and_sends_nobody_elsewhere(serving: Serving):
    answer = await serving.http.get("/v1/tasks/", headers={"Host": "elsewhere.example"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"delay_tolerance": "٣s"}, "delay_tolerance"),
        ({"execution_cap": "٣"}, "execution_cap"),
        ({"resources": {"memory": "٣Mi"}}, "resources.memory"),
        ({"delay_tolerance": "5s5s"}, "delay_tolerance"),
        ({"delay_tolerance": "5s1h"}, "delay_tolerance"),
        ({"constraints": [{"label": "", "values": ["a"]}]}, "constraints[0].label"),
        ({"constraints": [{"label": "x" * 201, "values": ["a"]}]}, "constraints[0].label"),
        ({"preferred": [{"label": "a", "op": "in", "values": ["a", "x" * 201]}]}, "preferred[0].values"),
    ],
)
async def test_what_is_out_of_bounds_is_named_by_its_path(serving: Serving, said: dict[str, object], path: str):
    assert paths(await serving.http.post("/v1/tasks", json={**TRUE, **said})) == [path]
    assert await tasks_there(serving) == 0


async def test_a_field_that_is_missing_is_named_by_its_path(serving: Serving):
    assert paths(await serving.http.post("/v1/tasks:wait", json={})) == ["ids"]
    assert paths(await serving.http.post("/v1/tasks", json={**TRUE, "rates": [{"rate": 1}]})) == ["rates[0].key"]
    assert paths(await serving.http.post("/v1/tasks:wait", json={"ids": [], "wait": 61})) == ["wait"]
    assert paths(await serving.http.post("/v1/tasks:wait", json={"ids": ["1"] * 1001})) == ["ids"]


async def test_a_byte_that_is_no_utf_8_is_named_by_its_place(serving: Serving):
    answer = await serving.http.post("/v1/tasks", content=b'{"command":["\xff"]}', headers=JSON)
    assert answer.json()["detail"] == "the body is not UTF-8: invalid start byte at byte 13"


async def test_a_parameter_that_is_not_served_is_refused(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    assert paths(await serving.http.get(f"/v1/tasks/{task}/result", params={"weit": "5"})) == ["weit"]
    assert paths(await serving.http.get(f"/v1/tasks/{task}/logs", params={"folow": "1"})) == ["folow"]
    assert paths(await serving.http.get(f"/v1/tasks/{task}/logs", params={"follow": "maybe"})) == ["follow"]


async def test_an_attempt_that_never_was_is_not_found(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    answer = await serving.http.get(f"/v1/tasks/{task}/logs", params={"attempt": "2"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    await serving.http.post(f"/v1/tasks/{task}:cancel")
    over = await serving.http.get(f"/v1/tasks/{task}/logs", params={"attempt": "1", "follow": "1"})
    assert (over.status_code, over.json()["code"]) == (404, "not_found")
    assert (await serving.http.get(f"/v1/tasks/{task}/logs")).status_code == 200


async def test_a_line_has_one_bound_however_it_arrives(serving: Serving):
    """A line that ends in the piece in which it grows too long is as long as any other."""
    good, bad = json.dumps(TRUE).encode(), b'{"command": ["' + b"x" * LINE_BYTES_MAX + b'"]}'
    answer = await serving.http.post("/v1/tasks:batch", content=b"\n".join([good, bad, good]), headers=LINES)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert await tasks_there(serving) == 0
