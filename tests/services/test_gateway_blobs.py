"""Blobs over HTTP: by a key of the tenant or by a signed address, and refused otherwise with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from headway.files.signing import Grant, Signer
from tests.services.serving import Serving
from tests.services.test_gateway import assert_problem

BODY = os.urandom(200_000)


def digest_of(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


DIGEST = digest_of(BODY)
WHERE = f"/v1/blobs/{DIGEST}"


@pytest.fixture
async def signer(serving: Serving, database_url: str) -> Signer:
    connection = await asyncpg.connect(database_url)
    try:
        return Signer(await connection.fetchval("select secret from signing_secret"))
    finally:
        await connection.close()


async def test_a_blob_is_uploaded_asked_for_and_downloaded(serving: Serving):
    assert_problem(await serving.http.get(WHERE), 404, "not_found")
    assert (await serving.http.head(WHERE)).status_code == 404
    for _ in range(2):
        answer = await serving.http.put(WHERE, content=BODY)
        assert (answer.status_code, answer.json()) == (201, {"digest": DIGEST, "size": len(BODY)})
    answer = await serving.http.head(WHERE)
    assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(BODY)))
    answer = await serving.http.get(WHERE)
    assert (answer.status_code, answer.content) == (200, BODY)
    assert answer.headers["content-disposition"] == "attachment"


async def test_part_of_a_blob_can_be_asked_for(serving: Serving):
    await serving.http.put(WHERE, content=BODY)
    answer = await serving.http.get(WHERE, headers={"Range": "bytes=100-199"})
    assert (answer.status_code, answer.content) == (206, BODY[100:200])
    assert answer.headers["content-range"] == f"bytes 100-199/{len(BODY)}"
    answer = await serving.http.get(WHERE, headers={"Range": "bytes=199990-"})
    assert (answer.status_code, answer.content) == (206, BODY[199990:])
    assert_problem(await serving.http.get(WHERE, headers={"Range": "bytes=200000-"}), 416, "bad_range")


async def test_what_is_not_right_is_refused_and_not_kept(serving: Serving):
    assert_problem(await serving.http.put(WHERE, content=BODY[:-1]), 422, "wrong_content")
    assert_problem(await serving.http.put(WHERE, content=b"other"), 422, "wrong_content")
    assert_problem(await serving.http.put("/v1/blobs/sha256:ABC", content=b""), 422, "invalid")
    assert_problem(await serving.http.put(WHERE + "?tenant=2", content=BODY), 422, "invalid")
    assert (await serving.http.head(WHERE)).status_code == 404


async def test_an_upload_that_claims_too_much_is_refused_before_it_is_read(serving: Serving):
    reader, writer = await asyncio.open_connection(serving.http.base_url.host, serving.http.base_url.port)
    key = serving.http.headers["authorization"]
    writer.write(f"PUT {WHERE} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n".encode())
    writer.write(b"Content-Length: 99999999999999\r\n\r\nxxx")
    async with asyncio.timeout(10):
        assert b" 413 " in await reader.readline()
    writer.close()


async def test_a_plan_may_bound_what_is_stored(serving: Serving):
    quota = {"quota": {"storage": "300k"}}
    assert (await serving.http.patch("/v1/plans/default", json=quota)).status_code == 200
    assert (await serving.http.put(WHERE, content=BODY)).status_code == 201
    other = os.urandom(200_000)
    assert_problem(await serving.http.put(f"/v1/blobs/{digest_of(other)}", content=other), 507, "over_quota")

    async def undeclared() -> AsyncIterator[bytes]:
        yield other

    assert_problem(await serving.http.put(f"/v1/blobs/{digest_of(other)}", content=undeclared()), 422, "wrong_content")


async def test_one_tenant_cannot_ask_what_another_has(serving: Serving):
    await serving.http.put(WHERE, content=BODY)
    await serving.http.post("/v1/tenants", json={"name": "acme"})
    key = (await serving.http.post("/v1/keys", json={"tenant": "acme", "role": "client"})).json()["key"]
    theirs = {"Authorization": f"Bearer {key}"}
    assert_problem(await serving.http.get(WHERE, headers=theirs), 404, "not_found")
    assert (await serving.http.head(WHERE, headers=theirs)).status_code == 404
    said = {"script": DIGEST}
    assert_problem(await serving.http.post("/v1/tasks", json=said, headers=theirs), 422, "invalid")
    assert (await serving.http.post("/v1/tasks", json=said)).status_code == 201
    assert (await serving.http.put(WHERE, content=BODY, headers=theirs)).status_code == 201


async def test_a_signed_address_needs_no_key_and_opens_one_blob_one_way(serving: Serving, signer: Signer):
    del serving.http.headers["authorization"]
    until = int(time.time()) + 60
    writing = signer.path(Grant("PUT", 1, DIGEST, len(BODY), until))
    reading = signer.path(Grant("GET", 1, DIGEST, len(BODY), until))
    assert_problem(await serving.http.put(WHERE, content=BODY), 401, "unauthorized")
    assert_problem(await serving.http.put(reading, content=BODY), 403, "forbidden")
    assert (await serving.http.put(writing, content=BODY)).status_code == 201
    assert_problem(await serving.http.get(writing), 403, "forbidden")
    assert (await serving.http.get(reading)).content == BODY
    for altered in (reading.replace("tenant=1", "tenant=2"), reading.replace(f"{until}", f"{until + 9}")):
        assert_problem(await serving.http.get(altered), 403, "forbidden")
    old = signer.path(Grant("GET", 1, DIGEST, len(BODY), int(time.time())))
    assert_problem(await serving.http.get(old), 403, "forbidden")
    assert_problem(await serving.http.get(reading + "&tenant=1"), 422, "invalid")


async def test_a_signed_address_takes_no_more_than_was_granted(serving: Serving, signer: Signer):
    small = signer.path(Grant("PUT", 1, DIGEST, 1000, int(time.time()) + 60))
    assert_problem(await serving.http.put(small, content=BODY), 413, "too_large")

    async def undeclared() -> AsyncIterator[bytes]:
        yield BODY

    assert_problem(await serving.http.put(small, content=undeclared()), 422, "wrong_content")
