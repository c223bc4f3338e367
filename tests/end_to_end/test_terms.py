"""Limits, pauses, quotas and tenants, on a real node."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.dev import Dev, a_dev, until

JOBS = "tests.end_to_end.jobs"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with a_dev(tmp_path_factory.mktemp("dev"), "--app", f"{JOBS}:app", "--workers", "2") as dev:
        yield dev


def stretches(notes: Path) -> list[tuple[float, float]]:
    """When each noted task ran."""
    begun: dict[str, float] = {}
    found: list[tuple[float, float]] = []
    for line in notes.read_text().splitlines():
        task, _, what, when, _ = line.split()
        if what == "begin":
            begun[task] = float(when)
        else:
            found.append((begun[task], float(when)))
    return sorted(found)


def test_tasks_of_one_key_never_overlap(dev: Dev, tmp_path: Path):
    notes = str(tmp_path / "notes")
    said = {"function": f"{JOBS}:note", "args": [notes, "x", 0.05], "concurrency": [{"key": "account-7", "limit": 1}]}
    for task in [dev.submit(**said) for _ in range(4)]:
        assert dev.result(task)["status"] == "done"
    ran = stretches(Path(notes))
    assert len(ran) == 4
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ran))


def test_tasks_of_one_key_never_overlap_whatever_their_size_tier_and_kind(dev: Dev, tmp_path: Path):
    notes = str(tmp_path / "notes")
    key = {"concurrency": [{"key": "account-8", "limit": 1}]}
    tell = (
        "import os, sys, time\n"
        "for what in ('begin', 'end'):\n"
        "    with open(sys.argv[1], 'a') as file:\n"
        "        file.write(f\"{os.environ['HEADWAY_TASK_ID']} 1 {what} {time.monotonic()} 0\\n\")\n"
        "    time.sleep(0.05)\n"
    )
    wishes = (("basic", 0.1, "0s"), ("basic", 0.2, "1h"), ("regular", 0.1, "5h"), ("regular", 0.2, "1m"))
    said: list[dict[str, object]] = [
        {"command": [sys.executable, "-c", tell, notes], "profile": "trusted"}
        | {"tier": tier, "delay_tolerance": tolerance}
        | dict[str, object](resources={"cpu": cpu, "memory": "16Mi"})
        for tier, cpu, tolerance in wishes
    ]
    said.append({"function": f"{JOBS}:note", "args": [notes, "x", 0.05]})
    for task in [dev.submit(**one, **key) for one in said * 2]:
        assert dev.result(task)["status"] == "done"
    ran = stretches(Path(notes))
    assert len(ran) == 10
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ran))


def test_a_task_gets_ports_and_can_listen_there(dev: Dev):
    serve = (
        "import json, os, socket; p = json.loads(os.environ['HEADWAY_PORTS']); "
        "s = [socket.create_server(('127.0.0.1', n)) for n in p.values()]; "
        "json.dump(p, open(os.environ['HEADWAY_OUTPUT'], 'w'))"
    )
    small = {"cpu": 0.1, "memory": "16Mi", "ports": ["http", "admin"]}
    tasks = [dev.submit(command=[sys.executable, "-c", serve], resources=small, profile="trusted") for _ in range(3)]
    for task in tasks:
        over = dev.result(task)
        assert over["status"] == "done", over
        ports = over["result"]
        assert isinstance(ports, dict)
        assert set(ports) == {"http", "admin"}
        assert all(20_000 <= number < 30_000 for number in ports.values())


def test_a_paused_name_waits_and_nobody_behind_it(dev: Dev):
    assert dev.http.post("/v1/names/encode-*:pause").json()["paused"] is True
    held = [dev.submit(command=["true"], name=f"encode-{n}") for n in range(3)]
    assert dev.run(command=["true"], name="other")["status"] == "done"
    assert [dev.http.get(f"/v1/tasks/{task}").json()["status"] for task in held] == ["waiting"] * 3
    dev.http.post("/v1/names/encode-*:resume")
    assert [dev.result(task)["status"] for task in held] == ["done"] * 3


def test_what_the_node_could_never_have_is_refused_with_its_name(dev: Dev):
    answer = dev.http.post("/v1/tasks", json={"command": ["true"], "resources": {"cpu": 100_000}})
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["path"]) == (422, "resources.cpu")
    assert "the largest node" in error["message"]


def test_a_rate_spaces_starts_out(dev: Dev, tmp_path: Path):
    notes = str(tmp_path / "notes")
    said = {"function": f"{JOBS}:note", "args": [notes, "x", 0], "rates": [{"key": "mail", "rate": 2, "per": 0.5}]}
    for task in [dev.submit(**said) for _ in range(5)]:
        assert dev.result(task)["status"] == "done"
    began = [begin for begin, _ in stretches(Path(notes))]
    assert began[4] - began[0] >= 0.9


def test_what_no_node_matches_waits(dev: Dev):
    task = dev.submit(command=["true"], constraints=[{"label": "arch", "values": ["abacus"]}])
    assert (
        dev.run(command=["true"], constraints=[{"label": "arch", "op": "!=", "values": ["abacus"]}])["status"] == "done"
    )
    assert dev.http.get(f"/v1/tasks/{task}").json()["status"] == "waiting"
    dev.http.post(f"/v1/tasks/{task}:cancel")


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"concurrency": [{"key": "", "limit": 1}]}, "concurrency[0].key"),
        ({"concurrency": [{"key": "k", "limit": 0}]}, "concurrency[0].limit"),
        ({"rates": [{"key": "k", "rate": 1, "per": 0}]}, "rates[0].per"),
        ({"constraints": [{"label": "a", "op": "in", "values": []}]}, "constraints[0].values"),
        ({"constraints": [{"label": "a", "op": "~", "values": ["b"]}]}, "constraints[0].op"),
        ({"off_peak": "sometimes"}, "off_peak"),
    ],
)
def test_wrong_terms_are_named_by_their_path(dev: Dev, said: dict[str, object], path: str):
    answer = dev.http.post("/v1/tasks", json={"command": ["true"], **said})
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == [path]


def test_a_paused_pool_starts_nothing_until_it_is_resumed(dev: Dev):
    assert dev.http.post("/v1/pools/default:pause").status_code == 200
    task = dev.submit(command=["true"])
    until(lambda: dev.http.get("/v1/pools/default").json()["paused"], 5)
    assert dev.http.get(f"/v1/tasks/{task}/result", params={"wait": 0.5}).status_code == 202
    assert dev.http.post("/v1/pools/default:resume").status_code == 200
    assert dev.result(task)["status"] == "done"


def test_a_tenant_is_paused_bounded_and_apart(dev: Dev, tmp_path: Path):
    plan = {"name": "small", "quota": {"running": 1}}
    assert dev.http.post("/v1/plans", json=plan).status_code == 201
    assert dev.http.post("/v1/tenants", json={"name": "acme", "plan": "small"}).status_code == 201
    key = dev.http.post("/v1/keys", json={"tenant": "acme", "role": "client"}).json()["key"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=dev.url, headers=headers, timeout=70) as acme:
        notes = tmp_path / "notes"
        said = {"function": f"{JOBS}:note", "args": [str(notes), "x", 0.05]}
        ids = [acme.post("/v1/tasks", json=said).json()["id"] for _ in range(3)]
        for task in ids:
            assert acme.get(f"/v1/tasks/{task}/result", params={"wait": 30}).json()["status"] == "done"
            assert dev.http.get(f"/v1/tasks/{task}").status_code == 404
        ran = stretches(notes)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ran))
        assert dev.http.patch("/v1/tenants/acme", json={"paused": True}).status_code == 200
        waits = acme.post("/v1/tasks", json=said).json()["id"]
        assert dev.run(command=["true"])["status"] == "done"
        assert acme.get(f"/v1/tasks/{waits}").json()["status"] == "waiting"
        assert dev.http.patch("/v1/tenants/acme", json={"paused": False}).status_code == 200
        assert acme.get(f"/v1/tasks/{waits}/result", params={"wait": 30}).json()["status"] == "done"
