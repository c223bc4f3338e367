"""Identity over HTTP: administrators make and change accounts, and a key sees its own tenant's tasks only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx2
import pytest

from headway.scheduler.policies import Policies
from headway.store.accounts import AccountStore, TierChange
from headway.store.database import Database
from tests.services.serving import NODE_KEY, TRUE, Serving, a_server
from tests.services.test_gateway import assert_problem


@dataclass
class Town:
    """A server, its administrator, and clients of other tenants."""

    admin: httpx2.AsyncClient
    url: str
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def client(self, **said: object) -> httpx2.AsyncClient:
        """A client with a new key."""
        made = await self.admin.post("/v1/keys", json=said)
        assert made.status_code == 201, made.text
        return await self.with_key(made.json()["key"])

    async def with_key(self, key: str) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"}
        return await self.stack.enter_async_context(httpx2.AsyncClient(base_url=self.url, headers=headers))

    async def tenant(self, name: str, **said: object) -> httpx2.AsyncClient:
        """A client of a new tenant."""
        made = await self.admin.post("/v1/tenants", json={"name": name, **said})
        assert made.status_code == 201, made.text
        return await self.client(tenant=name)

    async def plan(self, name: str, **said: object) -> None:
        made = await self.admin.post("/v1/plans", json={"name": name, **said})
        assert made.status_code == 201, made.text


@pytest.fixture
async def town(serving: Serving) -> AsyncIterator[Town]:
    town = Town(serving.http, serving.url)
    async with town.stack:
        yield town


def paths(answer: httpx2.Response) -> list[str]:
    """Where a refused request was wrong."""
    return [error["path"] for error in assert_problem(answer, 422, "invalid")["errors"]]  # type: ignore[attr-defined]


async def test_another_tenants_tasks_are_not_there(town: Town):
    acme, globex = await town.tenant("acme"), await town.tenant("globex")
    task = (await acme.post("/v1/tasks", json=TRUE)).json()
    assert task["tenant"] == "acme"
    for path in ("", "/logs", "/attempts", "/result", "/logs?follow=1", "/result?wait=1"):
        assert (await acme.get(f"/v1/tasks/{task['id']}")).status_code == 200
        for stranger in (globex, town.admin):
            assert_problem(await stranger.get(f"/v1/tasks/{task['id']}{path}"), 404, "not_found")
    for stranger in (globex, town.admin):
        assert_problem(await stranger.post(f"/v1/tasks/{task['id']}:cancel"), 404, "not_found")
        assert (await stranger.get("/v1/tasks")).json()["items"] == []
    assert (await acme.post(f"/v1/tasks/{task['id']}:cancel")).json()["status"] == "cancelled"
    waited = await globex.post("/v1/tasks:wait", json={"ids": [task["id"]]})
    assert waited.json() == {"items": []}
    assert len((await acme.post("/v1/tasks:wait", json={"ids": [task["id"]]})).json()["items"]) == 1


async def test_another_tenants_script_was_never_uploaded(town: Town):
    acme, globex = await town.tenant("acme"), await town.tenant("globex")
    digest = (await acme.post("/v1/scripts", content=b"echo hi\n")).json()["digest"]
    assert (await acme.post("/v1/tasks", json={"script": digest})).status_code == 201
    assert paths(await globex.post("/v1/tasks", json={"script": digest})) == ["script"]


ADMINISTRATION = [
    ("GET", "/v1/tenants"), ("POST", "/v1/tenants"), ("GET", "/v1/tenants/default"),
    ("PATCH", "/v1/tenants/default"), ("GET", "/v1/plans"), ("POST", "/v1/plans"), ("GET", "/v1/plans/default"),
    ("PATCH", "/v1/plans/default"), ("PUT", "/v1/tiers/basic"), ("GET", "/v1/pools"), ("GET", "/v1/pools/default"),
    ("PATCH", "/v1/pools/default"), ("POST", "/v1/pools/default:pause"), ("POST", "/v1/pools/default:resume"),
]  # fmt: skip


async def test_only_an_administrator_administers(town: Town):
    client, node = await town.tenant("acme"), await town.with_key(NODE_KEY)
    for method, path in ADMINISTRATION:
        for stranger in (client, node):
            assert_problem(await stranger.request(method, path, json={}), 403, "forbidden")


async def test_a_tenant_is_made_once_listed_and_changed(town: Town):
    made = await town.admin.post("/v1/tenants", json={"name": "acme"})
    assert (made.status_code, made.headers["location"]) == (201, "/v1/tenants/acme")
    assert (made.json()["plan"], made.json()["paused"]) == ("default", False)
    assert_problem(await town.admin.post("/v1/tenants", json={"name": "acme"}), 409, "already_exists")
    changed = await town.admin.patch("/v1/tenants/acme", json={"paused": True})
    assert changed.json() == (await town.admin.get("/v1/tenants/acme")).json()
    assert (changed.json()["paused"], changed.json()["plan"]) == (True, "default")
    first = (await town.admin.get("/v1/tenants", params={"limit": 1})).json()
    rest = (await town.admin.get("/v1/tenants", params={"limit": 5, "cursor": first["next_cursor"]})).json()
    assert [one["name"] for one in first["items"] + rest["items"]] == ["acme", "default"]
    assert rest["next_cursor"] is None


WRONG: list[tuple[str, str, dict[str, object], list[str]]] = [
    ("POST", "/v1/tenants", {}, ["name"]),
    ("POST", "/v1/tenants", {"name": "a", "colour": 1}, ["colour"]),
    ("POST", "/v1/tenants", {"name": "a/b", "plan": "no one"}, ["name", "plan"]),
    ("POST", "/v1/tenants", {"name": "x" * 64}, ["name"]),
    ("POST", "/v1/tenants", {"name": "a", "plan": "gold"}, ["plan"]),
    ("PATCH", "/v1/tenants/default", {"plan": "gold"}, ["plan"]),
    ("PATCH", "/v1/tenants/default", {"paused": 1}, ["paused"]),
    ("POST", "/v1/plans", {"name": "p", "urgent_share": 1.5, "quota": {"cpu": -1}}, ["quota.cpu", "urgent_share"]),
    ("POST", "/v1/plans", {"name": "p", "quota": {"running": 0}}, ["quota.running"]),
    ("POST", "/v1/plans", {"name": "p", "quota": {"memory": "much", "gpu": 0.5}}, ["quota.memory", "quota.gpu"]),
    ("POST", "/v1/plans", {"name": "p", "resource_max": {"CPU": 1}}, ["resource_max.CPU"]),
    ("POST", "/v1/plans", {"name": "p", "tiers": []}, ["tiers"]),
    ("POST", "/v1/plans", {"name": "p", "tiers": ["basic", "gold"]}, ["tiers[1]"]),
    ("PATCH", "/v1/plans/default", {"tiers": ["gold"]}, ["tiers[0]"]),
    ("PUT", "/v1/tiers/new", {"weight": 2}, ["resources"]),
    ("PUT", "/v1/tiers/a b", {"resources": {"cpu": 1}}, ["name"]),
    ("PUT", "/v1/tiers/basic", {"weight": 0}, ["weight"]),
    ("PUT", "/v1/tiers/basic", {"max_cap": "1s"}, ["max_cap"]),
    ("PUT", "/v1/tiers/basic", {"max_cap": "soon", "default_cap": 0}, ["default_cap", "max_cap"]),
    ("PUT", "/v1/tiers/basic", {"resources": {"workers": 1}}, ["resources.workers"]),
    ("PATCH", "/v1/pools/default", {"peak_line": 0, "half_life": "1ms"}, ["peak_line", "half_life"]),
    ("PATCH", "/v1/pools/default", {"promotion_margin": "9d"}, ["promotion_margin"]),
    ("PATCH", "/v1/pools/default", {"peak_line": 0.5, "peak_hysteresis": 0.5}, ["peak_hysteresis"]),
    ("POST", "/v1/keys", {"role": "root"}, ["role"]),
    ("POST", "/v1/keys", {"tenant": "nobody"}, ["tenant"]),
    ("POST", "/v1/keys", {"label": "x" * 201}, ["label"]),
]


async def test_what_is_wrong_is_named_and_changes_nothing(town: Town):
    async def everything() -> list[object]:
        kinds = ("tenants", "plans", "tiers", "pools", "keys")
        return [(await town.admin.get(f"/v1/{kind}")).json() for kind in kinds]

    before = await everything()
    for method, path, body, wrong in WRONG:
        assert paths(await town.admin.request(method, path, json=body)) == wrong, body
    assert await everything() == before


async def test_what_is_not_there_is_not_found(town: Town):
    for kind in ("tenants", "plans", "tiers", "pools"):
        for name in ("nobody", "no body", "%00", "x" * 200):
            assert_problem(await town.admin.get(f"/v1/{kind}/{name}"), 404, "not_found")
    for kind in ("tenants", "plans", "pools"):
        assert_problem(await town.admin.patch(f"/v1/{kind}/nobody", json={}), 404, "not_found")
    assert_problem(await town.admin.delete("/v1/keys/%00"), 404, "not_found")
    assert_problem(await town.admin.get("/v1/tenants", params={"color": "red"}), 422, "invalid")


async def test_what_is_read_of_a_plan_can_be_said_again(town: Town):
    said = {
        "tiers": ["basic"],
        "urgent_share": 0.5,
        "quota": {"running": 3, "cpu": 1.5, "memory": 2**30},
        "resource_max": {"cpu": 1},
    }
    await town.plan("small", **said)
    read = (await town.admin.get("/v1/plans/small")).json()
    assert {name: read[name] for name in said} == said
    changed = (await town.admin.patch("/v1/plans/small", json={"resource_max": None, "tiers": None})).json()
    assert (changed["resource_max"], changed["tiers"], changed["quota"]) == (None, None, said["quota"])


async def test_a_tier_is_made_changed_and_used_at_once(town: Town):
    said = {"resources": {"cpu": 2, "memory": "4Gi"}, "default_cap": "30m", "max_cap": "6h", "weight": 2}
    made = (await town.admin.put("/v1/tiers/large", json=said)).json()
    assert made["resources"] == {"cpu": 2, "memory": 4 * 2**30}
    assert (made["default_cap"], made["max_cap"], made["weight"]) == (1800.0, 21600.0, 2.0)
    task = (await town.admin.post("/v1/tasks", json={**TRUE, "tier": "large"})).json()
    assert (task["tier"], task["execution_cap"]) == ("large", 1800.0)
    await town.admin.put("/v1/tiers/large", json={"default_cap": "1m"})
    client = await town.tenant("acme")
    assert (await client.get("/v1/tiers/large")).json()["default_cap"] == 60.0
    assert "large" in [tier["name"] for tier in (await client.get("/v1/tiers")).json()["items"]]
    assert (await client.post("/v1/tasks", json={**TRUE, "tier": "large"})).json()["execution_cap"] == 60.0


async def test_a_task_stays_within_its_tenants_plan(town: Town):
    await town.plan("small", tiers=["basic"], resource_max={"cpu": 1, "memory": "1Gi"}, quota={"gpu": 2})
    client = await town.tenant("acme", plan="small")
    assert (await client.post("/v1/tasks", json=TRUE)).status_code == 201
    refused = assert_problem(await client.post("/v1/tasks", json={**TRUE, "tier": "premium"}), 422, "invalid")
    told = {error["path"]: error["message"] for error in refused["errors"]}  # type: ignore[attr-defined]
    assert told["tier"] == "plan small has no tier 'premium'; it has: basic"
    assert told["resources.cpu"] == "it asks for 2; plan small allows a task at most 1"
    too_much = {**TRUE, "resources": {"memory": "2Gi", "gpu": 3}}
    assert paths(await client.post("/v1/tasks", json=too_much)) == ["resources.gpu", "resources.memory"]
    assert paths(await client.post("/v1/tasks", json={**TRUE, "tier": "gold", "name": "!"})) == ["name", "tier"]
    batch = (await client.post("/v1/tasks:batch", json=[TRUE, too_much])).json()
    assert (batch["accepted"], batch["rejected"]) == (1, 1)
    await town.admin.patch("/v1/tenants/acme", json={"plan": "default"})
    assert (await client.post("/v1/tasks", json={**TRUE, "tier": "premium"})).status_code == 201


async def test_a_paused_tenants_tasks_are_accepted_and_wait(town: Town):
    client = await town.tenant("acme")
    await town.admin.patch("/v1/tenants/acme", json={"paused": True})
    assert (await client.post("/v1/tasks", json=TRUE)).json()["status"] == "waiting"
    assert (await client.get("/v1/me")).json()["paused"] is True


@pytest.mark.parametrize("price", ["0.123456", "1000000000", "0"])
async def test_a_price_is_kept_to_the_last_decimal(town: Town, price: str):
    kept = (await town.admin.put("/v1/tiers/basic", json={"price": price})).json()
    assert (kept["price"], kept["profile"]) == (price, "sandboxed")


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"price": "-0.01"}, "price"),
        ({"price": "NaN"}, "price"),
        ({"price": "1e30"}, "price"),
        ({"price": "0.1234567"}, "price"),
        ({"price": "1e-999999"}, "price"),
        ({"price": "much"}, "price"),
        ({"price": True}, "price"),
        ({"profile": "open"}, "profile"),
    ],
)
async def test_a_price_or_profile_that_is_none_is_refused(town: Town, said: dict[str, object], path: str):
    assert paths(await town.admin.put("/v1/tiers/basic", json=said)) == [path]


async def test_a_looser_profile_than_the_tiers_takes_an_administrator_or_a_plan_that_permits_it(town: Town):
    trusted = {**TRUE, "profile": "trusted"}
    assert (await town.admin.post("/v1/plans", json={"name": "open"})).json()["profiles"] == []
    await town.admin.post("/v1/tenants", json={"name": "acme", "plan": "open"})
    acme = await town.client(tenant="acme")
    refused = await acme.post("/v1/tasks", json=trusted)
    assert (refused.status_code, paths(refused)) == (422, ["profile"])
    assert "headway plan set open --profiles trusted" in refused.json()["errors"][0]["message"]
    assert (await town.admin.post("/v1/tasks", json=trusted)).status_code == 201
    assert (await acme.post("/v1/tasks", json={**TRUE, "profile": "hostile"})).status_code == 201, "it is stricter"
    await town.admin.patch("/v1/plans/open", json={"profiles": ["trusted"]})
    assert (await acme.post("/v1/tasks", json=trusted)).status_code == 201
    call = await acme.post("/v1/tasks", json={"function": "shop:charge", "profile": "trusted"})
    assert paths(call) == ["profile"], "a function runs in its worker"


async def test_a_network_takes_an_administrator_or_a_plan_that_permits_it(town: Town):
    networked = {**TRUE, "network": True}
    await town.plan("linked")
    acme = await town.tenant("acme", plan="linked")
    refused = await acme.post("/v1/tasks", json=networked)
    assert paths(refused) == ["network"]
    assert "headway plan set linked --network" in refused.json()["errors"][0]["message"]
    assert (await town.admin.post("/v1/tasks", json=networked)).status_code == 201
    assert (await town.admin.patch("/v1/plans/linked", json={"network": True})).json()["network"] is True
    assert (await acme.post("/v1/tasks", json=networked)).status_code == 201
    assert paths(await acme.post("/v1/tasks", json={**networked, "profile": "hostile"})) == ["network"]


async def test_a_plan_or_a_tenant_can_demand_fresh_sandboxes_for_all_its_tasks(town: Town, database_url: str):
    await town.plan("clean")
    acme = await town.tenant("acme", plan="clean")
    call = {"function": "shop:charge"}

    async def is_fresh(body: Mapping[str, object]) -> bool:
        made = await acme.post("/v1/tasks", json=body)
        assert made.status_code == 201, made.text
        connection = await asyncpg.connect(database_url)
        try:
            spec = await connection.fetchval("select spec from task where id = $1", int(made.json()["id"]))
        finally:
            await connection.close()
        return json.loads(spec).get("fresh", False)

    assert (await town.admin.get("/v1/plans/clean")).json()["fresh"] is False
    assert not await is_fresh(TRUE)
    assert (await town.admin.patch("/v1/plans/clean", json={"fresh": True})).json()["fresh"] is True
    assert (await acme.get("/v1/me")).json()["limits"]["fresh"] is True
    assert await is_fresh(TRUE) and not await is_fresh(call), "a function has no sandbox"
    await town.admin.patch("/v1/plans/clean", json={"fresh": False})
    assert not await is_fresh(TRUE) and await is_fresh({**TRUE, "fresh": True})
    assert (await town.admin.patch("/v1/tenants/acme", json={"fresh": True})).json()["fresh"] is True
    assert await is_fresh(TRUE)


@pytest.mark.parametrize("tmp", ["much", 0, "257Mi"])
async def test_a_tmp_that_its_memory_cannot_hold_is_refused(town: Town, tmp: object):
    assert paths(await town.admin.post("/v1/tasks", json={**TRUE, "tmp": tmp})) == ["tmp"]
    assert (await town.admin.post("/v1/tasks", json={**TRUE, "tmp": "128Mi"})).status_code == 201


async def test_a_change_of_a_tier_is_heeded_by_every_running_server(town: Town, database_url: str, tmp_path: Path):
    (tmp_path / "other").mkdir()
    async with a_server(database_url, tmp_path / "other") as other:
        for server in (town.admin, other.http):
            assert (await server.post("/v1/tasks", json=TRUE)).json()["execution_cap"] == 300.0
        await town.admin.put("/v1/tiers/basic", json={"default_cap": "7m", "max_cap": "8m", "resources": {"cpu": 3}})
        assert (await town.admin.post("/v1/tasks", json=TRUE)).json()["execution_cap"] == 420.0
        async with asyncio.timeout(10):
            while (await other.http.post("/v1/tasks", json=TRUE)).json()["execution_cap"] != 420.0:
                pass
        assert paths(await other.http.post("/v1/tasks", json={**TRUE, "execution_cap": "9m"})) == ["execution_cap"]


async def test_the_leader_hears_of_weights_and_names_once_each(database_url: str):
    database = await Database.open(database_url, size=1)
    accounts = AccountStore(database, 1)
    policies = Policies(accounts)
    assert await policies.changed() is not None
    assert await policies.changed() is None
    await accounts.keep_tier("basic", TierChange(weight=9))
    await accounts.pause_name(1, "encode", "key:a", 10)
    policy = await policies.changed()
    assert policy is not None
    assert (policy.weight("basic"), policy.paused_names) == (9, {(1, "encode")})
    assert await policies.changed() is None
    await database.close()


async def test_a_key_tells_whom_it_stands_for(town: Town):
    await town.plan("small", quota={"running": 1})
    client = await town.tenant("acme", plan="small")
    me = (await client.get("/v1/me")).json()
    assert (me["tenant"], me["role"], me["plan"]) == ("acme", "client", "small")
    assert me["limits"]["quota"] == {"running": 1}
    assert (await town.admin.get("/v1/me")).json()["role"] == "admin"


async def test_a_client_sees_to_the_client_keys_of_its_tenant_only(town: Town):
    acme = await town.tenant("acme")
    admin_key = (await town.admin.post("/v1/keys", json={"tenant": "acme", "role": "admin"})).json()
    made = (await acme.post("/v1/keys", json={"label": "ci"})).json()
    assert (made["tenant"], made["role"], made["label"]) == ("acme", "client", "ci")
    for beyond in ({"role": "admin"}, {"role": "node"}, {"tenant": "default"}, {"tenant": "nobody"}):
        assert_problem(await acme.post("/v1/keys", json=beyond), 403, "forbidden")
    listed = (await acme.get("/v1/keys")).json()["items"]
    assert {(key["tenant"], key["role"]) for key in listed} == {("acme", "client")}
    assert made["id"] in [key["id"] for key in listed]
    assert not any("key" in key or "digest" in key for key in listed)
    assert_problem(await acme.get("/v1/keys", params={"tenant": "default"}), 403, "forbidden")
    for beyond in (admin_key["id"], "testtest", "nodenode", "nobody"):
        assert_problem(await acme.delete(f"/v1/keys/{beyond}"), 404, "not_found")
    assert (await acme.delete(f"/v1/keys/{made['id']}")).status_code == 204
    everywhere = (await town.admin.get("/v1/keys")).json()["items"]
    assert {(key["tenant"], key["role"]) for key in everywhere} == {
        ("default", "admin"), ("default", "node"), ("acme", "admin"), ("acme", "client"),
    }  # fmt: skip


async def test_a_revoked_key_is_unknown_at_once(town: Town):
    acme = await town.tenant("acme")
    assert (await acme.get("/v1/me")).status_code == 200
    (key,) = (await acme.get("/v1/keys")).json()["items"]
    assert (await town.admin.delete(f"/v1/keys/{key['id']}")).status_code == 204
    assert_problem(await acme.get("/v1/me"), 401, "unauthorized")
    assert_problem(await town.admin.delete(f"/v1/keys/{key['id']}"), 404, "not_found")


async def test_a_made_administrator_administers(town: Town):
    made = await town.client(role="admin")
    assert (await made.get("/v1/tenants")).status_code == 200
    assert (await made.post("/v1/keys", json={"role": "node"})).json()["role"] == "node"


async def test_a_pool_is_steered_paused_and_resumed(town: Town):
    changed = await town.admin.patch("/v1/pools/default", json={"peak_line": 0.7, "promotion_margin": "3s"})
    assert (changed.json()["peak_line"], changed.json()["promotion_margin"]) == (0.7, 3.0)
    assert (await town.admin.post("/v1/pools/default:pause")).json()["paused"] is True
    (pool,) = (await town.admin.get("/v1/pools")).json()["items"]
    assert (pool["paused"], pool["peak_line"], pool["half_life"]) == (True, 0.7, 3600.0)
    assert (await town.admin.post("/v1/pools/default:resume")).json()["paused"] is False
    assert_problem(await town.admin.post("/v1/pools/nobody:pause"), 404, "not_found")


async def test_the_endpoints_are_described(town: Town):
    described = (await town.admin.get("/openapi.json")).json()
    assert set(described["paths"]["/v1/tenants/{name}"]) == {"get", "patch"}
    body = described["paths"]["/v1/plans"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/PlanBody"}
    assert "409" in described["paths"]["/v1/plans"]["post"]["responses"]
