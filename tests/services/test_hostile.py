"""Tasks in gVisor, run by a real agent; and the same bundle in another runtime, which reads it for itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headway.agent.agent import Agent
from headway.agent.images.fetch import Registries
from headway.agent.images.store import ImageSettings
from headway.agent.sandbox.bundle import OTHER_USER, Vessel, config
from headway.agent.sandbox.hostile import Hostile
from headway.agent.sandbox.identities import FIRST_USER
from headway.agent.sandbox.sandboxed import Sandbox
from headway.core.task import Spec
from headway.wire import Assignment, Outcome
from tests.services.agent_leader import FakeLeader, a_leader, an_assignment, key_of, result_of, settings
from tests.services.image_making import a_file, a_layer, a_layout, a_root

MORE = "while :; do sleep 0.01; head -c 1000000 /dev/zero"
"""Not faster, for it is only what is to be ended."""


def works() -> None:
    if shutil.which("runsc") is None or os.geteuid() != 0:
        pytest.skip("gVisor is not installed, or this is not root")


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[FakeLeader]:
    works()
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    base = a_layer(*a_root("sh", "cat", "id", "touch"), a_file("app/conf", "one\n"))
    a_layout(shelf / "base", base, run={"User": "app:staff", "WorkingDir": "/app", "Env": ["GREETING=hello"]})
    async with a_leader() as leader:
        images = ImageSettings(directories=(shelf,), registries=Registries(allowed=(), tool=None))
        said = replace(settings(leader, tmp_path / "n1", sandbox=True), images=images)
        running = asyncio.create_task(Agent(said).run())
        await leader.until(lambda: leader.hellos)
        yield leader
        running.cancel()
        await asyncio.wait([running], timeout=20)


def hostile(*command: str, **how: object) -> Assignment:
    spec = Spec(command=list(command) or None, **how)  # pyright: ignore[reportArgumentType]
    made = an_assignment("script" if spec.script else "command", spec, cap_ms=60_000, grace_ms=5000)
    return msgspec.structs.replace(made, profile="hostile")


@pytest.mark.parametrize("line", [f"{MORE} >> x; done", f"exec 5> x; rm x; {MORE} >&5; done"])
async def test_a_task_is_held_to_its_disk(leader: FakeLeader, line: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.agent.runners.disk.DISK_BYTES", 1 << 24)
    ending = await leader.run_one(hostile("/bin/sh", "-c", line))
    assert ending.code == "disk_exceeded", ending.message


async def test_a_task_has_a_kernel_of_its_own_and_nothing_of_this_machine(leader: FakeLeader):
    assert "hostile" in leader.hellos[-1].profiles
    line = "cat /proc/version; id -u; pwd; cat /proc/1/environ | tr '\\0' '\\n'; echo /*"
    ending = await leader.run_one(hostile("/bin/sh", "-c", line, env={"MINE": "1"}))
    assert ending.outcome == Outcome.DONE, ending
    said = ending.tail.decode()
    assert said.startswith("Linux version 4.4.0") and "\n1000\n/workspace\n" in said
    assert "MINE=1" in said and "SECRET" not in said and " /workspace" in said and "/home" not in said
    refused = "touch /usr/x || touch /etc/x || cat /etc/shadow || exit 9"
    assert (await leader.run_one(hostile("/bin/sh", "-c", refused))).exit_code == 9


async def test_results_files_and_scripts_pass_as_in_every_sandbox(leader: FakeLeader):
    text = (
        b'#!/bin/sh\necho "[\\"$1\\", \\"$0\\"]" > $HEADWAY_OUTPUT; echo x > /tmp/y\n'
        b"echo > $HEADWAY_ARTIFACTS/z; rm $HEADWAY_ARTIFACTS/z\n"
    )
    digest = "sha256:" + hashlib.sha256(text).hexdigest()
    leader.scripts[digest] = text
    ending = await leader.run_one(hostile(script=digest, args=["one"]))
    assert result_of(ending) == ["one", "/run/headway/script"], ending


async def test_an_image_runs_in_it_as_it_says_and_is_not_changed(leader: FakeLeader):
    line = "id -u; id -g; pwd; echo $GREETING; cat conf; touch /tmp/x && echo touched"
    ending = await leader.run_one(hostile("/bin/sh", "-c", line, image="base"))
    assert ending.tail.decode() == "1234\n50\n/app\nhello\none\ntouched\n", ending


async def test_a_task_is_asked_to_end_and_what_does_not_begin_says_why(leader: FakeLeader):
    task = hostile("/bin/sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done")
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task))
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None and ending.outcome == Outcome.KILLED and ending.tail.endswith(b"bye\n")
    missing = await leader.run_one(hostile("/no/such/program"))
    assert (missing.outcome, missing.code) == (Outcome.FAILED, "spawn_failed")
    assert "/no/such/program" in missing.message
    forged = "echo 'running container: starting container: FATAL ERROR: x'; exit 128"
    assert (await leader.run_one(hostile("/bin/sh", "-c", forged))).code == "exit_nonzero"


async def test_who_ignores_everything_is_killed_and_nothing_is_left(leader: FakeLeader):
    task = hostile("/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    task = msgspec.structs.replace(task, grace_ms=100)
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task))
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ran = await leader.run_one(hostile("/bin/true"))
    assert ran.outcome == Outcome.DONE


def test_where_it_does_not_work_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sandbox = Sandbox.made(tmp_path)
    assert isinstance(sandbox, Sandbox)
    broken = tmp_path / "runsc"
    broken.write_text("#!/bin/sh\necho no such platform >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("HEADWAY_RUNSC", str(broken))
    said = Hostile.made(sandbox)
    monkeypatch.setenv("HEADWAY_RUNSC", "/nowhere/runsc")
    missing = Hostile.made(sandbox)
    sandbox.close()
    assert isinstance(said, str) and isinstance(missing, str)
    if os.geteuid() == 0:
        assert "no such platform" in said and "No such file" in missing
    else:
        assert said == missing == "runsc needs an agent that is root"


def test_another_runtime_takes_the_same_bundle(tmp_path: Path):
    runc = shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if runc is None or os.geteuid() != 0:
        pytest.skip("runc is not installed, or this is not root")
    place = Path(f"/tmp/headway-bundle-{os.getpid()}")
    root = place / "root"
    for name in ("usr", "proc", "dev", "tmp", "workspace"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    try:
        user = FIRST_USER - 2
        (place / "work").mkdir()
        os.chown(place / "work", user, user)
        line = "id -u; id -g; touch done; grep CapEff /proc/self/status; touch /usr/x || exit 5"
        vessel = Vessel(
            argv=["/bin/sh", "-c", line], environ={"PATH": "/usr/bin"}, root=root, is_read_only=True,
            directory="/workspace", user=(1234, 50), host_user=user, shown={"/usr": "/usr"},
            written={"/workspace": str(place / "work")},
        )  # fmt: skip
        (place / "config.json").write_bytes(config(vessel))
        words = [runc, "--root", str(place / "state"), "run", "-b", str(place), f"headway-{os.getpid()}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.stdout.split() == ["1234", "50", "CapEff:", "0" * 16], done.stderr
        assert done.returncode == 5
        assert (place / "work" / "done").stat().st_uid == user
        told = json.loads((place / "config.json").read_text())["linux"]["uidMappings"]
        assert told[0]["hostID"] == OTHER_USER
    finally:
        shutil.rmtree(place, ignore_errors=True)
