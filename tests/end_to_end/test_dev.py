"""A task travels from client to node and back, through everything that is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.end_to_end.dev import Dev, a_dev, until

JOBS = "tests.end_to_end.jobs"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with a_dev(tmp_path_factory.mktemp("dev"), "--app", f"{JOBS}:app", "--workers", "2") as dev:
        yield dev


def cli(dev: Dev, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway.cli", *words]
    return subprocess.run(
        command, env=dev.environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_command_runs_and_its_output_comes_back(dev: Dev):
    task = dev.run(command=["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (task["status"], task["exit_code"], task["node"]) == ("failed", 3, "local")
    assert task["reason"]["code"] == "exit_nonzero"  # type: ignore[index]
    assert sorted(dev.log(str(task["id"])).split()) == ["err", "out"]
    (attempt,) = dev.http.get(f"/v1/tasks/{task['id']}/attempts").json()["items"]
    assert (attempt["outcome"], attempt["exit_code"], attempt["node"]) == ("failed", 3, "local")
    assert "cpu_user" in attempt["usage"]
    assert "out" in attempt["tail"]


def test_a_function_runs_and_its_result_comes_back(dev: Dev):
    task = dev.run(function=f"{JOBS}:double", args=[21])
    assert (task["status"], task["result"]) == ("done", 42)


def test_a_function_that_raises_says_so(dev: Dev):
    task = dev.run(function=f"{JOBS}:fail", args=["no such order"])
    assert task["status"] == "failed"
    assert "no such order" in task["reason"]["message"]  # type: ignore[index]


def test_an_uploaded_script_runs(dev: Dev):
    digest = dev.http.post("/v1/scripts", content=b"#!/bin/sh\necho $1 from $HEADWAY_TASK_ID\n").json()["digest"]
    task = dev.run(script=digest, script_path="hello.sh", args=["hello"])
    assert task["status"] == "done"
    assert dev.log(str(task["id"])) == f"hello from {task['id']}\n"


def test_a_script_too_large_for_a_row_is_fetched_by_a_signed_address(dev: Dev):
    text = b"echo large\nexit 0\n" + b"#" * 500_000
    digest = dev.http.post("/v1/scripts", content=text).json()["digest"]
    first, second = dev.run(script=digest), dev.run(script=digest)
    assert (first["status"], second["status"]) == ("done", "done")
    assert dev.log(str(second["id"])) == "large\n"


def test_a_task_that_overstays_is_stopped(dev: Dev):
    for said in ({"function": f"{JOBS}:overstay"}, {"command": ["sleep", "60"]}):
        task = dev.run(**said, execution_cap="0.3s", cap_grace="0.2s")
        assert (task["status"], task["reason"]["code"]) == ("failed", "cap_exceeded")  # type: ignore[index]


def test_a_failed_attempt_is_tried_again(dev: Dev):
    task = dev.run(function=f"{JOBS}:heal", args=[""], retry={"max_attempts": 3, "initial": "10ms"})
    assert (task["status"], task["result"], task["attempt"]) == ("done", 3, 3)
    attempts = dev.http.get(f"/v1/tasks/{task['id']}/attempts").json()["items"]
    assert [attempt["outcome"] for attempt in attempts] == ["failed", "failed", "done"]


def test_a_running_task_is_cancelled(dev: Dev):
    task = dev.submit(command=["sleep", "60"])
    until(lambda: dev.http.get(f"/v1/tasks/{task}").json()["status"] == "running", 10)
    assert dev.http.post(f"/v1/tasks/{task}:cancel").status_code == 200
    assert dev.result(task)["status"] == "cancelled"


def test_a_task_for_later_starts_then_and_not_before(dev: Dev):
    at = time.time() + 0.6
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06}Z"
    task = dev.run(command=["date", "+%s.%N"], eligible_at=stamp)
    assert float(dev.log(str(task["id"]))) >= at - 0.001


def test_a_bulk_of_thousands_comes_back_whole(dev: Dev):
    items = [{"function": f"{JOBS}:double", "args": [n]} for n in range(5000)]
    answer = dev.http.post("/v1/tasks:batch", json=items).json()
    ids = [item["id"] for item in answer["items"]]
    over: dict[str, object] = {}
    while len(over) < len(ids):
        wanted = [task for task in ids if task not in over][:1000]
        for task in dev.http.post("/v1/tasks:wait", json={"ids": wanted, "wait": 30}).json()["items"]:
            over[task["id"]] = task["result"]
    assert [over[task] for task in ids] == [n * 2 for n in range(5000)]


def test_what_no_node_can_run_waits_and_hides_nobody(dev: Dev):
    wide = dev.submit(command=["true"], constraints=[{"label": "size", "values": ["enormous"]}])
    assert dev.run(command=["true"])["status"] == "done"
    assert dev.http.get(f"/v1/tasks/{wide}").json()["status"] == "waiting"
    assert dev.http.post(f"/v1/tasks/{wide}:cancel").json()["status"] == "cancelled"


def test_the_cli_submits_waits_and_tells_by_its_exit_code(dev: Dev):
    good = cli(dev, "run", "--wait", "--follow", "--", "echo", "hello")
    assert (good.returncode, good.stdout) == (0, "hello\n"), good.stderr
    bad = cli(dev, "run", "--wait", "--", "sh", "-c", "exit 5")
    assert bad.returncode == 10
    shown = cli(dev, "ps", "-o", "json", "--limit", "2")
    assert len(json.loads(shown.stdout)["items"] if shown.stdout.startswith("{") else json.loads(shown.stdout)) == 2
    assert cli(dev, "show", "12345").returncode == 4


def test_a_second_start_in_the_same_directory_is_refused_with_the_pid(dev: Dev):
    command = [sys.executable, "-m", "headway.cli", "dev", "--data", str(dev.data), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 5
    assert str(dev.process.pid) in second.stderr


def test_tasks_and_key_outlive_a_stop(tmp_path: Path):
    with a_dev(tmp_path) as first:
        done = first.run(command=["true"])
        waiting = first.submit(command=["true"], constraints=[{"label": "gpu", "op": "exists"}])
        key = first.key
    with a_dev(tmp_path) as second:
        assert second.key == key
        assert second.http.get(f"/v1/tasks/{done['id']}").json()["status"] == "done"
        assert second.http.get(f"/v1/tasks/{waiting}").json()["status"] == "waiting"


def test_it_starts_in_time_cold_and_warm(tmp_path: Path):
    """2 s warm and 4 s cold on a quiet machine; here twice that, for the other core is busy with other tests, and the
    best of three, for sometimes both are."""
    cold = [tmp_path / name for name in ("first", "second", "third")]
    assert a_start_within(8.0, cold)
    assert a_start_within(4.0, [cold[0]] * 3)


def a_start_within(seconds: float, directories: Sequence[Path]) -> bool:
    """Whether one of the starts is ready in time."""
    for directory in directories:
        directory.mkdir(exist_ok=True)
        began = time.monotonic()
        with a_dev(directory) as dev:
            took = time.monotonic() - began
            assert os.path.exists(dev.data)
        if took < seconds:
            return True
    return False
