"""What abusive bodies, slow clients, slow databases and the server's end may not do to anyone else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

import headway.app.server as server_module
from headway.core.task import Submission
from headway.gateway import admission as admission_module
from headway.gateway import connection, submitting
from headway.gateway.admission import Admission
from headway.gateway.arrays import item_bounds
from headway.gateway.auth import Caller
from headway.gateway.insight import Elsewhere, Insight
from headway.gateway.issuing import Issuing
from headway.gateway.known_nodes import KnownNodes
from headway.gateway.problems import Problem
from headway.store.accounts import AccountStore
from headway.store.cluster import ClusterStore
from headway.store.database import GONE
from headway.store.outlook import OutlookStore
from tests.services.serving import TRUE, Serving, a_server
from tests.store.shop import Shop

JSON = {"Content-Type": "application/json"}


def bounds(raw: bytes) -> list[bytes]:
    return [raw[start:end] for start, end in item_bounds(raw, bytes_max=1000)]


def test_items_of_an_array_are_found_without_decoding_them():
    assert bounds(b"[]") == bounds(b" [ ]\n") == []
    items = [1, 'a,]\\"', {"b": [[{"c": '"}'}], []]}, None, [[[]], {}]]
    assert [json.loads(item) for item in bounds(json.dumps(items).encode())] == items
    deep = b"[" * 400 + b"]" * 400
    assert bounds(b"[1," + deep + b",2]") == [b"1", deep, b"2"]


@pytest.mark.parametrize("raw", [b"", b"[", b"[1,2", b'["', b"[}", b"[1]x", b"{}", b"[{]", b'[{"a":"]', b"[[1]"])
def test_what_is_cut_off_is_no_array(raw: bytes):
    with pytest.raises(Problem):
        bounds(raw)


@pytest.mark.parametrize("item", [b'"' + b"x" * 1000 + b'"', b"[" + b"1," * 600 + b"1]", b"9" * 1001])
def test_an_item_that_is_too_long_is_refused(item: bytes):
    with pytest.raises(Problem) as caught:
        bounds(b"[1," + item + b"]" + b" " * 5000)
    assert caught.value.code == "too_large"


@pytest.mark.parametrize("item", [b"1", b"{}", b"[]", b'{"command":["x"]}'])
async def test_an_array_of_millions_is_refused_before_it_is_decoded(serving: Serving, item: bytes):
    body = b"[" + b",".join([item] * (6_000_000 // len(item))) + b"]"
    answer = await serving.http.post("/v1/tasks:batch", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many_items")


async def test_an_item_nested_too_deeply_spoils_only_itself(serving: Serving):
    deep = b'{"function":"a:b","args":' + b"[" * 5000 + b"]" * 5000 + b"}"
    body = b'[{"command":["x"]},' + deep + b',7,{"command":["y"]}]'
    answer = (await serving.http.post("/v1/tasks:batch", content=body, headers=JSON)).json()
    assert [item.get("error", {}).get("code") for item in answer["items"]] == [None, "malformed_json", "invalid", None]


async def test_an_array_that_is_no_json_is_refused_as_a_whole(serving: Serving):
    for body in (b'[{"command":["x"]},]', b'[{"command":["x"]},{"command":}]', b'[{"command":["x"]} {}]', b"[{]}]"):
        answer = await serving.http.post("/v1/tasks:batch", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json"), body
    assert (await serving.http.get("/v1/tasks")).json()["items"] == []


async def test_a_bigger_batch_lands_item_by_item(serving: Serving):
    items = [{"command": ["x", "y" * 900], "tags": {"n": str(n)}} for n in range(6000)]
    items[17] = {"comand": ["x"]}  # type: ignore[dict-item]
    answer = (await serving.http.post("/v1/tasks:batch", json=items)).json()
    assert (answer["accepted"], answer["rejected"]) == (5999, 1)
    assert [item["index"] for item in answer["items"] if "error" in item] == [17]


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (b'"eligible_at":"9999-12-31T00:00:00Z"', "eligible_at"),
        (b'"eligible_at":"9999-12-31T23:59:59-01:00"', "eligible_at"),
        (b'"eligible_at":"0001-01-01T00:00:00+05:00"', "eligible_at"),
        (b'"delay_tolerance":' + b"9" * 400, "delay_tolerance"),
        (b'"retry":{"max":' + b"9" * 400 + b"}", "retry.max"),
        (b'"retry":{"max_attempts":' + b"9" * 400 + b"}", "retry.max_attempts"),
        (b'"resources":{"cpu":' + b"9" * 400 + b"}", "resources.cpu"),
        (b'"resources":{"memory":' + b"9" * 400 + b"}", "resources.memory"),
        (b'"resources":{"gpu":' + b"9" * 400 + b"}", "resources.gpu"),
        (b'"execution_cap":1,"args":' + b"[" * 9000 + b"]" * 9000 + b',"tier":7', ""),
        (b'"env":{"A":"1","A":"2"}', "env.A"),
    ],
)
async def test_what_no_database_or_float_can_hold_is_refused(serving: Serving, said: bytes, path: str):
    answer = await serving.http.post("/v1/tasks", content=b'{"command":["x"],' + said + b"}", headers=JSON)
    assert answer.status_code == (422 if path else 400), answer.text
    assert [error["path"] for error in answer.json()["errors"]] == ([path] if path else [])
    assert (await serving.http.get("/v1/tasks")).json()["items"] == []


async def test_a_key_said_twice_is_named_by_its_path(serving: Serving):
    body = b'{"function":"a:b","args":[{"a":1,"a":2}]}'
    answer = await serving.http.post("/v1/tasks", content=body, headers=JSON)
    assert answer.json()["errors"] == [{"path": "args[0].a", "message": "the key is said twice"}]


@pytest.mark.parametrize("escape", [b"\\ud800", b"\\udc00", b"\\\\\\ud800x", b"\\ud83d\\ude00\\ud800\\u0041"])
async def test_a_lone_surrogate_is_called_one(serving: Serving, escape: bytes):
    answer = await serving.http.post("/v1/tasks", content=b'{"command":["' + escape + b'"]}', headers=JSON)
    assert "lone surrogate" in answer.json()["detail"]


async def test_a_filter_said_twice_is_refused_unless_it_is_a_tag(serving: Serving):
    assert (await serving.http.get("/v1/tasks?status=done&status=failed")).status_code == 422
    assert (await serving.http.get("/v1/tasks?tag=a:1&tag=b:2")).status_code == 200


async def test_slow_lists_hold_nobody_else_up(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "ASKING_SECONDS", 1.0)
    async with a_server(database_url, tmp_path) as serving:
        await serving.http.get("/v1/tasks")
        blocker = await asyncpg.connect(database_url)
        try:
            async with blocker.transaction():
                await blocker.execute("lock table attempt in access exclusive mode")
                lists = [asyncio.create_task(serving.http.get("/v1/tasks?status=done")) for _ in range(4)]
                answer = await serving.http.post("/v1/tasks", json=TRUE)
                assert answer.status_code == 201
                assert not any(one.done() for one in lists)
                for slow in await asyncio.gather(*lists):
                    assert (slow.status_code, slow.json()["code"]) == (503, "too_slow")
        finally:
            await blocker.close()


async def test_a_frozen_connection_is_given_up_and_the_task_stored_once(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(submitting, "TRY_SECONDS", 0.3)
    monkeypatch.setattr(admission_module, "LOOK_SECONDS", 0.3)
    async with a_server(database_url, tmp_path) as serving:
        await serving.http.post("/v1/tasks", json=TRUE)
        other = await asyncpg.connect(database_url)
        ours = "datname = current_database() and application_name = 'headway'"
        frozen = [row["pid"] for row in await other.fetch(f"select pid from pg_stat_activity where {ours}")]
        try:
            assert frozen
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            answer = await serving.http.post("/v1/tasks", json=TRUE)
            assert answer.status_code == 201
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        assert await other.fetchval("select count(*) from task where id = $1", int(answer.json()["id"])) == 1
        await other.close()


async def test_a_submission_is_refused_when_the_database_says_nothing_for_too_long(
    serving: Serving, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(submitting, "TRY_SECONDS", 0.2)
    monkeypatch.setattr(submitting, "OUTAGE_SECONDS", 0.5)
    await serving.http.post("/v1/tasks", json=TRUE)
    blocker = await asyncpg.connect(database_url)
    try:
        async with blocker.transaction():
            await blocker.execute("lock table task in access exclusive mode")
            answers = await asyncio.gather(*(serving.http.post("/v1/tasks", json=TRUE) for _ in range(5)))
        assert {answer.json()["code"] for answer in answers} == {"unavailable"}
    finally:
        await blocker.close()
    assert (await serving.http.post("/v1/tasks", json=TRUE)).status_code == 201


def test_a_driver_that_lost_its_place_counts_as_a_database_that_went_away():
    assert issubclass(asyncpg.InternalClientError, GONE)


async def test_a_server_that_stops_answers_those_who_wait(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    asked = [
        asyncio.create_task(serving.http.get(f"/v1/tasks/{task}/result", params={"wait": "50"})),
        asyncio.create_task(serving.http.post("/v1/tasks:wait", json={"ids": [task], "wait": 50})),
        asyncio.create_task(serving.http.get(f"/v1/tasks/{task}/logs", params={"follow": "1"})),
    ]
    await asyncio.sleep(0.3)  # they wait by now; one that came later would find nobody who listens
    since = time.monotonic()
    serving.stop()
    result, waited, log = await asyncio.gather(*asked)
    await asyncio.wait([serving.task])
    assert (result.status_code, result.json()["status"]) == (202, "waiting")
    assert waited.json() == {"items": []}
    assert (log.status_code, log.content) == (200, b"")
    assert time.monotonic() - since < 3


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b" 408 "),
        (b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nX-A", b" 408 "),
        (b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\n"
         b"Content-Length: 100\r\n\r\n{", b" 408 "),
    ],
)  # fmt: skip
async def test_a_half_sent_request_is_given_up(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, sent: bytes, status: bytes
):
    monkeypatch.setattr(connection, "PROGRESS_SECONDS", 0.2)
    key = serving.http.headers["authorization"].encode()
    reader, writer = await asyncio.open_connection(serving.http.base_url.host, serving.http.base_url.port)
    writer.write(sent.replace(b"%s", key))
    async with asyncio.timeout(10):
        assert status in await reader.readline()
        await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_an_endless_head_is_refused(serving: Serving):
    reader, writer = await asyncio.open_connection(serving.http.base_url.host, serving.http.base_url.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")

    async def send() -> None:
        for _ in range(2000):
            writer.write(b"a" * 4096)
            await writer.drain()

    sending = asyncio.create_task(send())
    async with asyncio.timeout(10):
        with suppress(ConnectionError):  # it hung up before we were done sending
            assert b" 431 " in await reader.readline()
    sending.cancel()
    await asyncio.wait([sending])
    writer.close()


async def test_shapes_are_forgotten_between_calls_and_not_within(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admission_module, "SHAPES_MAX", 5)
    issuing = Issuing(shop.cluster, "test")
    await issuing.start()
    admission = Admission(
        AccountStore(shop.database, 1),
        shop.tasks,
        shop.blobs,
        issuing,
        KnownNodes(shop.cluster),
        Insight(Elsewhere(), OutlookStore(shop.database, 1)),
    )
    for low in (0, 7, 3):
        said = [Submission(command=["x"], resources={"cpu": cpu}) for cpu in range(low + 1, low + 10)]
        rows = await admission.admit(Caller(1, "client", "key:x"), said)
        assert not any(isinstance(row, list) for row in rows)


async def test_a_lost_number_is_replaced_and_all_being_taken_is_waited_for(shop: Shop):
    issuing = Issuing(shop.cluster, "test")
    await issuing.start()
    await shop.database.execute(
        "insert into issuer (issuer, pool, holder, lease_until, used_until_ms) "
        "select n, 1, 'other', clock_now() + interval '1 hour', 0 from generate_series(1, 1023) as n"
    )
    await shop.database.execute("update issuer set holder = 'other', lease_until = clock_now() + interval '1 hour'")
    for _ in range(2):
        await issuing._renew()  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(Problem):
            issuing.take(1)
    assert await ClusterStore(shop.database, 1).take_issuer("third", 60.0, 1) is None
    await shop.database.execute("update issuer set lease_until = clock_now() - interval '1 s' where issuer = 7")
    await issuing._renew()  # pyright: ignore[reportPrivateUsage]
    assert len(issuing.take(3)) == 3
