"""Images run by an engine over its socket: a real podman, where there is one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headway.agent.agent import Agent, CannotRun
from headway.agent.engine_process import ask
from headway.agent.images.fetch import Registries
from headway.agent.images.store import ImageSettings
from headway.agent.sandbox.groups import PIDS_MAX
from headway.agent.sandbox.identities import FIRST_USER
from headway.core.checkpoints import CheckpointRule
from headway.core.task import Spec
from headway.wire import Assignment, Freeze, Leave, Outcome, Thaw
from tests.services.agent_leader import FakeLeader, a_leader, an_assignment, key_of, result_of, settings
from tests.services.image_making import a_file, a_layer, a_root, saved

MIB = 1024 * 1024
IMAGE = "localhost/headway-test:1"


def answers(socket: str) -> bool:
    try:
        ask(socket, "GET", "/version")
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A podman of its own, with one image. runc: Debian's crun knows no hybrid control groups."""
    podman, runc = shutil.which("podman"), shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if podman is None or runc is None or os.geteuid() != 0:
        pytest.skip("podman or runc is not installed, or this is not root")
    place = tmp_path_factory.mktemp("engine")
    base = [podman, "--root", str(place / "root"), "--runroot", f"/tmp/headway-podman-{os.getpid()}"]
    base += ["--runtime", runc, "--cgroup-manager", "cgroupfs", "--storage-driver", "vfs", "--events-backend", "file"]
    layer = a_layer(*a_root("sh", "cat", "id", "touch", "sleep", "head", "tail", "env"), a_file("app/conf", "one\n"))
    run = {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo by itself"], "WorkingDir": "/app", "Env": ["GREETING=hello"]}
    saved(place / "image.tar", layer, tags=[IMAGE], run=run)
    subprocess.run([*base, "load", "-i", str(place / "image.tar")], check=True, capture_output=True, timeout=60)
    socket = str(place / "engine.sock")
    served = subprocess.Popen([*base, "system", "service", "--time", "0", f"unix://{socket}"], start_new_session=True)
    try:
        give_up = time.monotonic() + 20
        while not answers(socket):
            assert time.monotonic() < give_up and served.poll() is None, "podman does not serve"
            select.select([], [], [], 0.05)
        yield socket
    finally:
        os.killpg(served.pid, signal.SIGTERM)
        served.wait(timeout=20)
        subprocess.run([*base, "system", "reset", "--force"], capture_output=True, timeout=60, check=False)
        shutil.rmtree(f"/tmp/headway-podman-{os.getpid()}", ignore_errors=True)


@pytest.fixture
async def leader(tmp_path: Path, engine: str) -> AsyncIterator[FakeLeader]:
    async with a_leader() as leader:
        images = ImageSettings(directories=(), registries=Registries(allowed=(), tool=None))
        said = settings(leader, tmp_path / "n1", sandbox=True, memory=512 * MIB)
        running = asyncio.create_task(Agent(replace(said, images=images, engine=engine)).run())
        await leader.until(lambda: leader.hellos)
        yield leader
        running.cancel()
        await asyncio.wait([running], timeout=30)


def contained(*command: str, image: str = IMAGE, script: str | None = None, **needs: int) -> Assignment:
    spec = Spec(command=list(command) or None, script=script, image=image)
    made = an_assignment("script" if script else "command", spec, grace_ms=8000, **needs)
    return msgspec.structs.replace(made, profile="container")


async def test_an_engine_runs_an_image_as_it_says_and_shut_in(leader: FakeLeader, engine: str):
    assert "container" in leader.hellos[-1].profiles
    by_itself = await leader.run_one(contained())
    assert (by_itself.outcome, by_itself.tail) == (Outcome.DONE, b"by itself\n"), by_itself
    facts = "pwd; echo $GREETING; echo '{\"a\": 1}' > $HEADWAY_OUTPUT; id -u; cat /proc/self/status"
    ending = await leader.run_one(contained(facts))
    assert result_of(ending) == {"a": 1}, ending
    said = ending.tail.decode()
    assert said.startswith("/app\nhello\n") and int(said.split()[2]) >= FIRST_USER
    assert "CapEff:\t" + "0" * 16 in said and "NoNewPrivs:\t1" in said
    failed = await leader.run_one(contained("touch /x; exit 7"))
    assert (failed.exit_code, failed.code) == (7, "exit_nonzero")
    assert not ask(engine, "GET", "/containers/json?all=1")


async def test_a_container_is_told_to_write_a_checkpoint(leader: FakeLeader):
    line = "trap 'echo asked > $HEADWAY_CHECKPOINT_DIR/x; cat $HEADWAY_CHECKPOINT_DIR/x; exit 9' USR2; echo up; "
    spec = Spec(command=[f"{line} while :; do sleep 0.05; done"], image=IMAGE, checkpoint=CheckpointRule())
    task = msgspec.structs.replace(an_assignment("command", spec), profile="container")
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task) == b"up\n")
    await leader.say(Leave([key_of(task)], must=False))
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None and (ending.exit_code, ending.tail) == (9, b"up\nasked\n"), ending


async def test_all_of_a_container_stands_still_and_goes_on(leader: FakeLeader):
    task = contained("trap 'exit 3' TERM; env -i /bin/sh -c 'echo up; while :; do :; done' & wait")
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task) == b"up\n")
    for message, stands in ((Freeze([key_of(task)]), True), (Thaw([key_of(task)]), False)):
        await leader.say(message)
        await leader.until(lambda stands=stands: (key_of(task) in leader.frozen) is stands)
        await leader.until_true(lambda stands=stands: _stands(b"echo up; while") is stands)
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))


def _stands(words: bytes) -> bool:
    """Whether the shell that runs these words has been stopped."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "cmdline").read_bytes().split(b"\0")[2:3][0].startswith(words):
                return (place / "stat").read_text().rpartition(")")[2].split()[0] == "T"
        except (OSError, IndexError):
            continue
    return False


async def test_scripts_and_what_cannot_begin(leader: FakeLeader):
    text = b"#!/bin/sh\necho $1 from $0\n"
    digest = "sha256:" + hashlib.sha256(text).hexdigest()
    leader.scripts[digest] = text
    spec = Spec(script=digest, args=["one"], image=IMAGE)
    script = msgspec.structs.replace(an_assignment("script", spec), profile="container")
    assert (await leader.run_one(script)).tail == b"one from /run/headway/script\n"
    missing = await leader.run_one(contained("true", image="localhost/none:1"))
    assert (missing.outcome, missing.code) == (Outcome.FAILED, "spawn_failed") and "the engine says" in missing.message


async def test_a_container_is_asked_to_end_then_killed_and_never_left(leader: FakeLeader, engine: str):
    polite = contained("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done")
    stubborn = contained("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    stubborn = msgspec.structs.replace(stubborn, grace_ms=100)
    await leader.dispatch(polite, stubborn)
    await leader.until(lambda: leader.log(polite) and leader.log(stubborn))
    await leader.kill(polite, stubborn)
    await leader.until(lambda: leader.ending(key_of(polite)) and leader.ending(key_of(stubborn)))
    ending = leader.ending(key_of(polite))
    assert ending is not None and ending.outcome == Outcome.KILLED and ending.tail.endswith(b"bye\n")
    async with asyncio.timeout(20):
        while await asyncio.to_thread(ask, engine, "GET", "/containers/json?all=1"):
            pass


async def test_the_engine_is_asked_to_hold_a_task_to_its_limits(leader: FakeLeader, engine: str):
    task = contained("trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done", memory=256 * MIB)
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task))
    (running,) = await asyncio.to_thread(ask, engine, "GET", "/containers/json")
    told = (await asyncio.to_thread(ask, engine, "GET", f"/containers/{running['Id']}/json"))["HostConfig"]
    assert (told["Memory"], told["PidsLimit"], told["NetworkMode"]) == (256 * MIB, PIDS_MAX, "none")
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))


async def test_an_engine_that_is_not_there_is_no_reason_to_run_without_it(tmp_path: Path):
    async with a_leader() as leader:
        said = replace(settings(leader, tmp_path / "n1", sandbox=True), engine=str(tmp_path / "none.sock"))
        why = "no engine answers" if os.geteuid() == 0 else "only an agent that is root has them"
        with pytest.raises(CannotRun, match=why):
            await Agent(said).run()
