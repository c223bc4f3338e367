"""`headway dev` as a whole: a real database, a real server, a real agent."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import headway
from headway.sdk.conversations import Conversation, Pause

PATIENCE = 30.0


class Dev(NamedTuple):
    process: subprocess.Popen[str]
    client: headway.Client
    data: Path
    said: str

    def children(self) -> list[int]:
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]


@contextmanager
def headway_dev(data: Path) -> Iterator[Dev]:
    words = [sys.executable, "-m", "headway.cli", "dev", "--data", str(data), "--port", "0", "--workers", "1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=data.parent)
    try:
        assert process.stderr is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stderr.readline()
            assert line, f"it ended with {process.wait()}:\n{said}"
            said += line
        ready = json.loads((data / "ready.json").read_text())
        assert ready["pid"] == process.pid
        with headway.Client(ready["url"], ready["key"]) as client:
            yield Dev(process, client, data, said)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_it_runs_tasks_and_stops_without_a_trace(tmp_path: Path):
    with headway_dev(tmp_path / "data") as dev:
        said = headway.Submission(command=["echo", "hello"])
        record = dev.client.finished(dev.client.submit(said).id, PATIENCE)
        assert (record.status, b"".join(dev.client.logs(record.id))) == ("done", b"hello\n")
        children = [os.pidfd_open(pid) for pid in dev.children()]
        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(PATIENCE) == 0
        assert len(children) == 3
        assert all(ended(child) for child in children)
        assert not (tmp_path / "data" / "ready.json").exists()


def test_a_terminal_that_closes_stops_it_in_order(tmp_path: Path):
    with headway_dev(tmp_path / "data") as dev:
        children = [os.pidfd_open(pid) for pid in dev.children()]
        dev.process.send_signal(signal.SIGHUP)
        assert dev.process.wait(PATIENCE) == 0
        assert all(ended(child) for child in children)
        assert not (tmp_path / "data" / "ready.json").exists()


def test_a_terminal_that_closes_stops_it_under_a_leader_that_tells_nobody(tmp_path: Path):
    """As `ssh -t host make run` does."""
    terminal, end = os.openpty()
    leads = ["sh", "-c", 'exec < "$0"; trap : HUP; "$@"; exit $?', os.ttyname(end)]
    words = [sys.executable, "-m", "headway.cli", "dev", "--data", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen([*leads, *words], stderr=subprocess.PIPE, text=True, start_new_session=True) as leader:
        try:
            assert leader.stderr is not None
            while "Ctrl-C" not in leader.stderr.readline():
                assert leader.poll() is None
            os.close(end)
            os.close(terminal)
            assert leader.wait(PATIENCE) == 0
            assert not (tmp_path / "data" / "ready.json").exists()
        finally:
            if leader.poll() is None:
                os.killpg(leader.pid, signal.SIGTERM)


def test_the_demo_runs_where_there_is_no_sandbox_and_says_what_is_not_there(tmp_path: Path):
    words = [sys.executable, "-m", "headway.cli", "dev", "--demo", "--data", str(tmp_path / "data"), "--port", "0"]
    environ = {**os.environ, "HEADWAY_BWRAP": "/nowhere/bwrap"}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as dev:
        assert dev.stdout is not None and dev.stderr is not None
        try:
            shown = ""
            while "Ctrl-C" not in shown:
                line = dev.stdout.readline()
                assert line
                shown += line
            ready = json.loads((tmp_path / "data" / "ready.json").read_text())
            with headway.Client(ready["url"], ready["key"]) as client:
                (node,) = client.nodes()
        finally:
            dev.terminate()
        said = dev.stderr.read()
    assert "no sandbox here: /nowhere/bwrap does not run here" in said and "--profile trusted" in said
    assert re.search("a shell script +done in .* trusted: without a sandbox +it said: task", shown)
    assert re.search("a Python function +done", shown) and "results right" in shown
    assert node["profiles"] == ["trusted"] and "/nowhere/bwrap" in str(node["degraded"])


def test_a_start_with_keys_that_were_revoked_says_so_and_how_to_go_on(tmp_path: Path):
    keys, words = tmp_path / "data" / "keys.json", [sys.executable, "-m", "headway.cli"]
    with headway_dev(tmp_path / "data") as dev:
        dev.client.revoke_key(json.loads(keys.read_text())["client"].split("_")[1])
    refused = subprocess.run(
        [*words, "dev", "--data", str(tmp_path / "data"), "--port", "0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert refused.returncode == 1
    assert "revoked" in refused.stderr
    assert str(keys) in refused.stderr
    keys.unlink()
    with headway_dev(tmp_path / "data"):
        assert keys.exists()


def test_the_line_it_prints_for_other_shells_can_be_pasted(tmp_path: Path):
    with headway_dev(tmp_path / "some data") as dev:
        (line,) = re.findall(r"in another shell: (.+)", dev.said)
        words = [sys.executable, "-m", "headway.cli", "run", "--delay-tolerance", "0", "--", "true"]
        pasted = f"{line}\n{shlex.join(words)}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
        environment |= {"HOME": str(tmp_path)}
        printed = subprocess.check_output(["sh", "-c", pasted], text=True, env=environment, timeout=PATIENCE)
        assert dev.client.finished(printed.strip(), PATIENCE).status == "done"
    assert not (tmp_path / "some data" / "env.sh").exists()


def test_nothing_outlives_it_when_it_is_killed_and_nothing_is_lost(tmp_path: Path):
    said = headway.Submission(command=["sleep", "600"])
    with headway_dev(tmp_path / "data") as dev:
        task = dev.client.submit(said).id
        children = [os.pidfd_open(pid) for pid in dev.children()]
        dev.process.kill()
        assert all(ended(child) for child in children)
    with headway_dev(tmp_path / "data") as dev:
        assert not dev.client.task(task).final
        dev.client.cancel(task)
        assert dev.client.finished(task, PATIENCE).status == "cancelled"


def test_whichever_process_is_killed_comes_back(tmp_path: Path):
    with headway_dev(tmp_path / "data") as dev:
        for pid in dev.children():
            os.kill(pid, signal.SIGKILL)
        task = submitted_in_time(dev)
        assert dev.client.finished(task, PATIENCE).status == "done"


def submitted_in_time(dev: Dev) -> str:
    """Submits as soon as somebody listens and the database is back."""
    for _ in range(600):
        with suppress(headway.HeadwayError):
            return dev.client.submit(headway.Submission(command=["true"])).id
        dev.client.hold(a_moment)
    raise AssertionError("nothing came back")


def a_moment() -> Conversation[None]:
    yield Pause(0.05)


def ended(pidfd: int) -> bool:
    """Whether a process ends in time."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    gone = bool(waiting.poll(PATIENCE * 1000))
    os.close(pidfd)
    return gone
