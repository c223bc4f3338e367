"""`headway dev` as a user runs it: a process of its own, in a directory of its own, found by its ready file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx2
import psutil

READY_SECONDS = 30
STOP_SECONDS = 30


class Dev:
    """A running `headway dev`."""

    def __init__(self, process: subprocess.Popen[bytes], data: Path, ready: Path) -> None:
        self.process = process
        self.data = data
        said = json.loads(ready.read_text())
        self.url: str = said["url"]
        self.key: str = said["key"]
        headers = {"Authorization": f"Bearer {self.key}"}
        self.http = httpx2.Client(base_url=self.url, headers=headers, timeout=70)

    @property
    def environment(self) -> dict[str, str]:
        """For commands that talk to it."""
        return {**os.environ, "HEADWAY_URL": self.url, "HEADWAY_KEY": self.key}

    def submit(self, **said: object) -> str:
        """Submits a task; answers its id."""
        answer = self.http.post("/v1/tasks", json=said)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def result(self, task: str, seconds: float = 60) -> dict[str, object]:
        """The task once it is over."""
        answer = self.http.get(f"/v1/tasks/{task}/result", params={"wait": seconds})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run(self, **said: object) -> dict[str, object]:
        """Submits a task and waits for its end."""
        return self.result(self.submit(**said))

    def log(self, task: str) -> str:
        """The log of a task's last attempt."""
        return self.http.get(f"/v1/tasks/{task}/logs").text

    def pids(self, word: str) -> list[int]:
        """Its processes with that word, a path that ends in it, or a title that begins so, on their command line."""
        return [
            child.pid
            for child in psutil.Process(self.process.pid).children(recursive=True)
            if any(
                part == word or part.endswith(f"/{word}") or part.startswith(f"{word} ")
                for part in _command_line(child)
            )
        ]

    def stop(self) -> int:
        """Ctrl-C, and its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_SECONDS)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextlib.contextmanager
def a_dev(directory: Path, *options: str) -> Generator[Dev]:
    """Starts one and sees that nothing of it is left behind."""
    data, ready = directory / "data", directory / "ready.json"
    log = (directory / "dev.log").open("wb")
    command = [
        sys.executable,
        "-m",
        "headway.cli",
        "dev",
        "--data",
        str(data),
        "--port",
        "0",
        "--ready-file",
        str(ready),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=environment, start_new_session=True)
    family: list[psutil.Process] = []
    try:
        until(lambda: ready.exists() or process.poll() is not None, READY_SECONDS)
        assert ready.exists(), (directory / "dev.log").read_text()
        dev = Dev(process, data, ready)
        yield dev
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        dev.http.close()
        if process.poll() is None:
            assert dev.stop() == 0, (directory / "dev.log").read_text()
        _, left = psutil.wait_procs(family, timeout=5)
        assert left == []
    finally:
        if process.poll() is None:
            family += psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        log.close()


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Waits for a fact that only another process can make true."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.01)
