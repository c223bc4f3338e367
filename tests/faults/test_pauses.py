"""kill -9 under tasks that stand still or wrote checkpoints: nothing unowned goes on, nothing stored is done again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from headway.agent.leftovers import environment
from tests.end_to_end.dev import Dev, a_dev, until

SECONDS = 60
WORK = """
import os, sys, time
place = os.environ["HEADWAY_CHECKPOINT_DIR"]
file, ready = os.path.join(place, "state"), os.path.join(place, ".ready")
begun = at = int(open(file).read()) if os.path.exists(file) else 0
print("begins at", begun, flush=True)
while at < 100:
    at += 1
    if at == 90 and not begun:
        open(file, "w").write(str(at))
        open(ready, "w").close()
        while os.path.exists(ready): time.sleep(0.01)
        print("stored", flush=True)
        time.sleep(600)
print("through", flush=True)
"""
COUNT = "while :; do echo x; sleep 0.05; done"


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    with a_dev(tmp_path) as dev:
        yield dev


def kill(dev: Dev, word: str) -> None:
    for pid in dev.pids(word):
        os.kill(pid, signal.SIGKILL)


def reason(dev: Dev, task: str) -> tuple[str, str]:
    view = dev.http.get(f"/v1/tasks/{task}").json()
    return view["status"], view["reason"]["code"]


def processes_of(task: str) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if environment(pid).get(b"HEADWAY_TASK_ID") == task.encode()]


def paused(dev: Dev) -> str:
    """A task that stands still."""
    task = dev.submit(command=["sh", "-c", COUNT], profile="trusted")
    until(lambda: "x" in dev.log(task), SECONDS)
    assert dev.http.post(f"/v1/tasks/{task}:pause").status_code == 200
    until(lambda: reason(dev, task) == ("running", "paused"), SECONDS)
    return task


def test_what_stands_on_a_killed_agent_is_dead_and_waits_paused(dev: Dev):
    task = paused(dev)
    assert processes_of(task)
    kill(dev, "agent")
    until(lambda: not processes_of(task), SECONDS)
    until(lambda: reason(dev, task) == ("waiting", "paused"), SECONDS)
    dev.http.post(f"/v1/tasks/{task}:resume")
    until(lambda: reason(dev, task) == ("running", "running"), SECONDS)
    assert dev.http.get(f"/v1/tasks/{task}").json()["attempt"] == 2
    dev.http.post(f"/v1/tasks/{task}:cancel")


def test_what_stands_outlives_a_killed_server(dev: Dev):
    task = paused(dev)
    before = processes_of(task)
    kill(dev, "server")
    until(lambda: _answers(dev) and reason(dev, task) == ("running", "paused"), SECONDS)
    assert set(processes_of(task)) & set(before)
    printed = len(dev.log(task))
    dev.http.post(f"/v1/tasks/{task}:resume")
    until(lambda: reason(dev, task) == ("running", "running"), SECONDS)
    until(lambda: len(dev.log(task)) > printed, SECONDS)
    assert dev.http.get(f"/v1/tasks/{task}").json()["attempt"] == 1
    dev.http.post(f"/v1/tasks/{task}:cancel")


def test_a_task_whose_agent_dies_at_ninety_percent_goes_on_from_there(dev: Dev):
    command = [sys.executable, "-I", "-S", "-c", WORK]
    task = dev.submit(command=command, profile="trusted", checkpoint={})
    until(lambda: "stored" in dev.log(task), SECONDS)
    kill(dev, "agent")
    over = dev.result(task)
    assert (over["status"], over["attempt"]) == ("done", 2)
    assert dev.log(task).splitlines() == ["begins at 90", "through"]


def _answers(dev: Dev) -> bool:
    try:
        return dev.http.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False
