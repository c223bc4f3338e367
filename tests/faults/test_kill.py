"""kill -9 of each process in turn, under load: no acknowledged task is lost, and none ever runs twice at once."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.dev import Dev, a_dev, until

JOBS = "tests.end_to_end.jobs"
VICTIMS = {
    "server": "server", "agent": "agent", "guardian": "headway-guardian", "worker": "headway.agent.worker_process",
    "postgres": "postgres", "backend": "postgres: headway: headway headway [local]",
}  # fmt: skip
"""By a word of their command lines, or how one begins."""
BATCH = 200
STUCK_SECONDS = 45  # longer than any lease
HOLD = """
exec 9> "$1.$HEADWAY_TASK_ID.lock"
flock -n 9 || echo "$HEADWAY_TASK_ID $HEADWAY_ATTEMPT twice" >> "$1"
echo "$HEADWAY_TASK_ID $HEADWAY_ATTEMPT begin" >> "$1"
sleep 0.3
echo "$HEADWAY_TASK_ID $HEADWAY_ATTEMPT end" >> "$1"
"""
"""What the function `hold` does, as a process whose child holds the lock too; trusted, to write where all see."""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with a_dev(tmp_path_factory.mktemp("faults"), "--app", f"{JOBS}:app", "--workers", "2") as dev:
        yield dev


class Load:
    """A client that goes on submitting whatever happens, and remembers what it was promised."""

    def __init__(self, dev: Dev, notes: Path) -> None:
        self._dev = dev
        self._notes = notes
        self.promised: list[str] = []
        self.refused = 0
        self._promise = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit_for_ever)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def next_promise(self) -> None:
        """Returns the moment that something is promised."""
        self._promise.clear()
        assert self._promise.wait(60)

    def _submit_for_ever(self) -> None:
        headers = {"Authorization": f"Bearer {self._dev.key}"}
        with httpx2.Client(base_url=self._dev.url, headers=headers, timeout=30) as http:
            while not self._stop.is_set():
                items = [self._item(number) for number in range(BATCH)]
                try:
                    answer = http.post("/v1/tasks:batch", json=items)
                except httpx2.TransportError:
                    self.refused += 1
                    self._stop.wait(0.02)
                    continue
                if answer.status_code != 200:
                    self.refused += 1
                    continue
                self.promised += [item["id"] for item in answer.json()["items"] if "id" in item]
                self._promise.set()
                self._stop.wait(0.05)

    def _item(self, number: int) -> dict[str, object]:
        if number % 50 == 0:
            return {
                "command": ["sh", "-c", HOLD, "sh", str(self._notes)],
                "delay_tolerance": "1s",
                "profile": "trusted",
            }
        return {"function": f"{JOBS}:hold", "args": [str(self._notes), 0.0005]}


@pytest.mark.parametrize("victim", list(VICTIMS))
def test_no_acknowledged_task_is_lost_and_none_runs_twice_at_once(dev: Dev, victim: str, tmp_path: Path):
    notes = tmp_path / "notes"
    with Load(dev, notes) as load:
        until(lambda: len(load.promised) >= BATCH, 60)
        for _ in range(3):
            before = len(load.promised)
            until(lambda before=before: len(load.promised) >= before + 2 * BATCH, 60)
            kill_one(dev, VICTIMS[victim], load)
    assert len(load.promised) >= 6 * BATCH
    until(lambda: answers(dev), 30)
    assert_all_done(dev, load.promised)
    assert_never_twice_at_once(notes, load.promised)


def kill_one(dev: Dev, word: str, load: Load) -> None:
    """kill -9 upon a promise, before what should have come before it can be made up for; returns when another is there
    instead."""
    until(lambda: bool(dev.pids(word)), 30)
    there = dev.pids(word)
    load.next_promise()
    os.kill(there[0], signal.SIGKILL)
    until(lambda: bool(set(dev.pids(word)) - set(there)), 30)


def assert_all_done(dev: Dev, promised: list[str]) -> None:
    """Every promised task ends, and ends well: a lost node is not the task's fault. One that nobody moves any more
    shows within STUCK_SECONDS, not in hours."""
    waiting = list(promised)
    with dev_client(dev) as http:
        while waiting:
            over = http.post("/v1/tasks:wait", json={"ids": waiting[:1000], "wait": STUCK_SECONDS}).json()["items"]
            assert [task["reason"] for task in over if task["status"] != "done"] == []
            ended = {task["id"] for task in over}
            assert ended, f"{len(waiting)} promised tasks do not end; the first: {why(http, waiting[0])}"
            waiting = [task for task in waiting if task not in ended]


def why(http: httpx2.Client, task: str) -> str:
    """What the server says of a task."""
    return http.get(f"/v1/tasks/{task}/explain").text


def answers(dev: Dev) -> bool:
    """Whether the API, and the database behind it, are back."""
    try:
        return dev.http.get("/v1/tasks", params={"limit": 1}).status_code == 200
    except httpx2.TransportError:
        return False


def dev_client(dev: Dev) -> httpx2.Client:
    return httpx2.Client(base_url=dev.url, headers={"Authorization": f"Bearer {dev.key}"}, timeout=70)


def assert_never_twice_at_once(notes: Path, promised: list[str]) -> None:
    """No attempt met another one of its task, none began twice, and each task's last one came to its end."""
    began: Counter[tuple[str, int]] = Counter()
    ended: set[tuple[str, int]] = set()
    for line in notes.read_text().splitlines():
        task, attempt, what = line.split()
        assert what != "twice", f"attempt {attempt} of task {task} met another one"
        if what == "begin":
            began[task, int(attempt)] += 1
        else:
            ended.add((task, int(attempt)))
    assert set(began.values()) == {1}
    last = dict(sorted(began))
    assert set(promised) <= {task for task, attempt in last.items() if (task, attempt) in ended}
