"""Why tasks wait, whether they will be late, and whether there is enough, on a real node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.dev import Dev, a_dev, until

JOBS = "tests.end_to_end.jobs"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with a_dev(tmp_path_factory.mktemp("dev"), "--app", f"{JOBS}:app", "--workers", "1") as dev:
        yield dev


def explained(dev: Dev, task: str) -> dict[str, Any]:
    return dev.http.get(f"/v1/tasks/{task}/explain").json()


def test_a_task_behind_a_key_is_explained_by_who_holds_it_until_that_one_ends(dev: Dev):
    said = {"command": ["sleep", "60"], "concurrency": [{"key": "one", "limit": 1}]}
    holds, waits = dev.submit(**said), dev.submit(**said)
    until(lambda: explained(dev, holds)["status"] == "running", 20)
    until(lambda: explained(dev, waits)["code"] == "concurrency", 20)
    assert explained(dev, waits)["blockers"][0]["holders"] == [holds]
    dev.http.post(f"/v1/tasks/{holds}:cancel")
    until(lambda: explained(dev, waits)["status"] == "running", 20)
    assert explained(dev, waits)["started"]["waited"] > 0
    dev.http.post(f"/v1/tasks/{waits}:cancel")


def test_a_backlog_warns_who_would_be_late_and_is_explained_and_counted(dev: Dev, tmp_path: Path):
    call = {"function": f"{JOBS}:note", "args": [str(tmp_path / "notes"), "x", 0.2], "delay_tolerance": "3s"}
    assert dev.http.post("/v1/tasks:batch", json=[call] * 150).json()["accepted"] == 150
    warned: list[dict[str, Any]] = []

    def is_warned() -> bool:
        warned.append(dev.http.post("/v1/tasks", json=call).json())
        return "warnings" in warned[-1]

    until(is_warned, 20)
    (warning,) = warned[-1]["warnings"]
    assert warning["code"] == "late_start"
    said = explained(dev, warned[-1]["id"])
    assert said["status"] == "waiting"
    assert (said["estimate"]["basis"], said["estimate"]["late"]) == ("observed", True)
    assert 3 < said["estimate"]["seconds"] < 60
    (pool,) = dev.http.get("/v1/stats").json()["pools"]
    assert pool["nodes_wanted"] >= 1
    assert dev.http.get("/v1/tasks/" + warned[-1]["id"]).json()["reason"]["code"] == said["code"]
