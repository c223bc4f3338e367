"""Terms that cannot be are refused at once, alone and in a batch, with the place and what to do next."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from headway.gateway import known_nodes
from headway.store.cluster import ClusterStore
from headway.store.database import Database
from tests.services.serving import TRUE, Serving

LONG = "k" * 10_240
IS_A, IS_B = ({"label": "zone", "values": [zone]} for zone in "ab")
BAD: list[tuple[dict[str, object], str, str]] = [
    ({"constraints": [IS_A, IS_B]}, "constraints[1]", "drop one"),
    ({"constraints": [IS_A, {**IS_A, "op": "!="}]}, "constraints[1]", "'zone = a'"),
    ({"constraints": [{"label": LONG, "op": "exists"}]}, "constraints[0].label", "1 to 200"),
    ({"constraints": [{"label": "zone", "values": [LONG]}]}, "constraints[0].values", "200"),
    ({"tier": "gold"}, "tier", "there are: basic, premium, regular"),
    ({"tier": LONG}, "tier", "there are: basic"),
    ({"resources": {"cpu": -1}}, "resources.cpu", "at least 0"),
    ({"resources": {"cpu": 1e12}}, "resources.cpu", "must not exceed"),
    ({"resources": {"memory": "-4Gi"}}, "resources.memory", "expected a size"),
    ({"resources": {"memory": "9999999Ti"}}, "resources.memory", "must not exceed"),
    ({"resources": {"gpu": -2}}, "resources.gpu", "from 0 to"),
    ({"resources": {"gpu": 0.5}}, "resources.gpu", "whole number"),
    ({"resources": {"ports": ["http", "http"]}}, "resources.ports[1]", "name of its own"),
    ({"resources": {"ports": 100_000}}, "resources.ports", "from 0 to 100"),
    ({"resources": {LONG: 1}}, f"resources.{LONG}", "no such resource"),
    ({"concurrency": [{"key": "k", "limit": 0}]}, "concurrency[0].limit", "pause their name"),
    ({"concurrency": [{"key": "k", "limit": -3}]}, "concurrency[0].limit", "from 1"),
    ({"concurrency": [{"key": LONG, "limit": 1}]}, "concurrency[0].key", "1 to 200 characters"),
    ({"concurrency": [{"key": "k", "limit": 1}, {"key": "k", "limit": 2}]}, "concurrency", "twice"),
    ({"rates": [{"key": "k", "rate": 0}]}, "rates[0].rate", "pause their name"),
    ({"rates": [{"key": LONG, "rate": 1}]}, "rates[0].key", "1 to 200 characters"),
    ({"rates": [{"key": "k", "rate": "often"}]}, "rates[0].rate", '"60 per minute"'),
    ({"rates": [{"key": "k", "rate": "60/m", "per": "1m"}]}, "rates[0].per", "leave it out"),
    ({"spread": LONG}, "spread", "1 to 200 characters"),
]


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[ClusterStore]:
    database = await Database.open(database_url, size=1)
    yield ClusterStore(database, 1)
    await database.close()


async def join(cluster: ClusterStore, name: str, capacity: str) -> int:
    return await cluster.join_node(name, "a", capacity, "{}", "[]", 60.0, "h")


def problem(document: dict[str, object]) -> dict[str, str]:
    assert (document["status"], document["code"]) == (422, "invalid")
    return {error["path"]: error["message"] for error in document["errors"]}  # type: ignore[attr-defined]


async def refused(http: httpx2.AsyncClient, said: dict[str, object]) -> dict[str, str]:
    """What is said against a task, the same alone and in a batch."""
    alone = await http.post("/v1/tasks", json={**TRUE, **said})
    assert alone.status_code == 422, alone.text
    batch = (await http.post("/v1/tasks:batch", json=[TRUE, {**TRUE, **said}, TRUE])).json()
    assert (batch["accepted"], batch["rejected"]) == (2, 1)
    assert problem(batch["items"][1]["error"]) == problem(alone.json())
    return problem(alone.json())


async def test_what_cannot_be_is_refused_alone_and_in_a_batch(serving: Serving):
    for said, path, message in BAD:
        found = await refused(serving.http, said)
        assert list(found) == [path]
        assert message in found[path], found


async def test_what_no_node_could_ever_run_is_refused_and_the_largest_named(serving: Serving, cluster: ClusterStore):
    await join(cluster, "small", '{"cpu": 2000, "memory": 1073741824}')
    large = await join(cluster, "large", '{"cpu": 8000, "memory": 4294967296, "gpu": 1}')
    await cluster.leave_node(large, "a")
    found = await refused(serving.http, {"resources": {"cpu": 64, "memory": "1Gi"}})
    assert list(found) == ["resources.cpu"]
    assert "it asks for cpu 64, and the largest node, large, has 8; ask for no more" in found["resources.cpu"]
    assert "has 1" in (await refused(serving.http, {"resources": {"gpu": 2}}))["resources.gpu"]
    assert "has 0" in (await refused(serving.http, {"resources": {"fpga": 1}}))["resources.fpga"]
    assert (await serving.http.post("/v1/tasks", json={**TRUE, "resources": {"cpu": 8}})).status_code == 201


async def test_what_no_single_node_has_at_once_is_refused(serving: Serving, cluster: ClusterStore):
    await join(cluster, "wide", '{"cpu": 8000, "memory": 1073741824}')
    await join(cluster, "deep", '{"cpu": 4000, "memory": 8589934592}')
    found = await refused(serving.http, {"resources": {"cpu": 8, "memory": "8Gi"}})
    assert list(found) == ["resources"]
    assert "the nearest, deep, has only cpu 4" in found["resources"]


async def test_a_tier_that_no_node_could_hold_is_named_as_the_place(serving: Serving, cluster: ClusterStore):
    await join(cluster, "small", '{"cpu": 1000, "memory": 1073741824}')
    found = await refused(serving.http, {"tier": "premium"})
    assert list(found) == ["tier"]
    assert "tier premium asks for cpu 2, and the largest node, small, has 1" in found["tier"]


async def test_a_pool_without_a_known_node_refuses_nothing(serving: Serving):
    huge = {**TRUE, "resources": {"cpu": 1000, "memory": "9Ti", "fpga": 99}}
    assert (await serving.http.post("/v1/tasks", json=huge)).status_code == 201


async def test_a_function_waits_for_a_worker_that_may_be_yet_to_start(serving: Serving, cluster: ClusterStore):
    await join(cluster, "small", '{"cpu": 1000, "memory": 1073741824}')
    assert (await serving.http.post("/v1/tasks", json={"function": "shop:charge"})).status_code == 201


async def test_a_larger_node_that_joins_is_known_at_the_next_refusal(
    serving: Serving, cluster: ClusterStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(known_nodes, "REFUSING_SECONDS", 0.0)
    await join(cluster, "small", '{"cpu": 1000, "memory": 1073741824}')
    await refused(serving.http, {"resources": {"cpu": 4}})
    await join(cluster, "large", '{"cpu": 4000, "memory": 1073741824}')
    assert (await serving.http.post("/v1/tasks", json={**TRUE, "resources": {"cpu": 4}})).status_code == 201
