"""The groups of administration against a real server: what is set is there, and a key acts as its tenant."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog.testing

from headway import cli
from tests.services.serving import CLIENT_KEY, a_server


class Said(NamedTuple):
    code: int
    out: str
    err: str


Headway = Callable[..., Said]


@pytest.fixture
def url(database_url: str, tmp_path: Path) -> Iterator[str]:
    """A server in a thread: the command line blocks, as it does for people."""
    addresses: list[str] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        try:
            async with a_server(database_url, tmp_path) as serving:
                addresses.append(serving.url)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    with structlog.testing.capture_logs():  # or they would stand between what the command line prints
        thread.start()
        try:
            assert ready.wait(30)
            yield addresses[0]
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            loop.close()
    assert not thread.is_alive()


@pytest.fixture
def headway(url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Headway:
    monkeypatch.setenv("HEADWAY_URL", url)
    monkeypatch.setenv("HEADWAY_KEY", CLIENT_KEY)

    def headway(*words: str) -> Said:
        code = cli.execute(words)
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return headway


def test_a_tenant_its_plan_and_its_key(headway: Headway):
    wishes = ("--tiers", "basic", "--quota", "running=2", "--quota", "cpu=4")
    assert headway("plan", "create", "small", *wishes)[:2] == (0, "small\n")
    assert headway("tenant", "create", "acme", "--plan", "small")[:2] == (0, "acme\n")
    made = json.loads(headway("key", "create", "--tenant", "acme", "--label", "ci", "-o", "json").out)
    assert (made["tenant"], made["role"], made["key"][:3]) == ("acme", "client", "hw_")
    listed = headway("ps", "--key", made["key"], "-o", "json")
    assert (listed.code, json.loads(listed.out)) == (0, [])
    assert headway("run", "--key", made["key"], "--tier", "premium", "--", "true").code == 2
    task = headway("run", "--key", made["key"], "--", "true").out.strip()
    assert headway("show", task).code == 4
    assert headway("tenant", "list", "--key", made["key"]).code == 3
    assert headway("key", "revoke", made["id"])[:2] == (0, made["id"] + "\n")
    assert headway("ps", "--key", made["key"]).code == 3
    assert headway("key", "revoke", made["id"]).code == 4


def test_the_key_alone_is_printed_for_scripts(headway: Headway):
    key = headway("key", "create", "-o", "name").out.strip()
    assert key.startswith("hw_")
    assert headway("ps", "--key", key).code == 0
    assert "client" in headway("key", "list", "--tenant", "default").out
    assert headway("key", "create", "--role", "node").out.startswith("hw_")


def test_tenants_are_listed_shown_and_set(headway: Headway):
    headway("tenant", "create", "acme")
    assert headway("tenant", "create", "acme").code == 5
    assert headway("tenant", "create", "a/b").code == 2
    assert headway("tenant", "show", "nobody").code == 4
    assert headway("tenant", "list").out.splitlines()[0].split() == ["NAME", "PLAN", "PAUSED", "AGE"]
    assert headway("tenant", "list", "-o", "name").out == "acme\ndefault\n"
    assert headway("tenant", "set", "acme", "--pause").code == 0
    assert json.loads(headway("tenant", "show", "acme", "-o", "json").out)["paused"] is True
    assert "paused: false" in headway("tenant", "set", "acme", "--resume", "-o", "yaml").out
    assert headway("tenant", "set", "acme", "--plan", "gold").code == 2


def test_a_plan_is_changed_piece_by_piece(headway: Headway):
    headway("plan", "create", "small", "--tiers", "basic", "--quota", "running=2", "--resource-max", "memory=1Gi")
    headway("plan", "set", "small", "--quota", "cpu=4", "--tiers", "all", "--urgent-share", "0.5")
    plan = json.loads(headway("plan", "show", "small", "-o", "json").out)
    assert (plan["quota"], plan["tiers"], plan["urgent_share"]) == ({"running": 2, "cpu": 4}, None, 0.5)
    assert plan["resource_max"] == {"memory": 2**30}
    headway("plan", "set", "small", "--quota", "running=none", "--resource-max", "memory=none")
    plan = json.loads(headway("plan", "show", "small", "-o", "json").out)
    assert (plan["quota"], plan["resource_max"]) == ({"cpu": 4}, None)
    assert "small" in headway("plan", "list").out
    assert headway("plan", "set", "nobody", "--urgent-share", "0.5").code == 4


def test_a_tier_is_made_and_changed(headway: Headway):
    words = "--cpu 2 --memory 4Gi --weight 2 --default-cap 30m --max-cap 6h".split()  # noqa: SIM905
    assert headway("tier", "set", "large", *words)[:2] == (0, "large\n")
    assert headway("tier", "set", "large", "--cpu", "0.5").code == 0
    tier = json.loads(headway("tier", "show", "large", "-o", "json").out)
    assert tier["resources"] == {"cpu": 0.5, "memory": 4 * 2**30}
    assert (tier["default_cap"], tier["max_cap"], tier["weight"]) == (1800.0, 21600.0, 2.0)
    (row,) = [line for line in headway("tier", "list").out.splitlines() if line.startswith("large")]
    assert row.split() == ["large", "cpu=0.5,memory=4Gi", "30m", "6h", "2.0", "0", "sandboxed"]
    said = headway("tier", "set", "large", "--cpu", "many")
    assert said.code == 2
    assert "resources.cpu" in said.err


def test_a_tier_has_a_price_and_a_profile(headway: Headway):
    assert headway("tier", "set", "basic", "--price", "0.10", "--profile", "hostile").code == 0
    tier = json.loads(headway("tier", "show", "basic", "-o", "json").out)
    assert (tier["price"], tier["profile"]) == ("0.10", "hostile")
    assert headway("tier", "set", "basic", "--price", "-1").code == 2
    assert headway("tier", "set", "basic", "--profile", "open").code == 2


def test_names_are_paused_listed_and_resumed(headway: Headway):
    assert headway("name", "pause", "encode-*")[:2] == (0, "encode-*\n")
    assert headway("name", "pause", "shop.tasks:charge/x").code == 0
    assert headway("name", "list", "-o", "name").out == "encode-*\nshop.tasks:charge/x\n"
    assert "encode-*" in headway("name", "list").out
    assert json.loads(headway("name", "resume", "encode-*", "-o", "json").out)["paused"] is False
    assert headway("name", "pause", "a**").code == 2


def test_limits_and_ports_are_said_as_options(headway: Headway):
    how = "--concurrency account=1 --rate api=60/m --rate mail=5 --resources ports=http,admin".split()  # noqa: SIM905
    assert headway("run", *how, "--", "true").code == 0
    refused = headway("run", "--rate", "api=often", "--", "true")
    assert (refused.code, "rates[0].rate" in refused.err) == (2, True)
    assert headway("run", "--concurrency", "k=0", "--", "true").code == 2


def test_a_pool_is_steered(headway: Headway):
    assert headway("pool", "pause", "default")[:2] == (0, "default\n")
    assert json.loads(headway("pool", "show", "default", "-o", "json").out)["paused"] is True
    assert headway("pool", "resume", "default").code == 0
    assert headway("pool", "set", "default", "--peak-line", "0.9", "--half-life", "30m").code == 0
    pool = json.loads(headway("pool", "list", "-o", "jsonl").out)
    assert (pool["peak_line"], pool["half_life"], pool["paused"]) == (0.9, 1800.0, False)
    assert headway("pool", "set", "default", "--peak-line", "7").code == 2
