"""Tasks in images, run by a real agent: the image's root and terms, behind the sandbox's walls, and nothing kept."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headway.agent.agent import Agent
from headway.agent.images.fetch import Registries
from headway.agent.images.store import ImageSettings
from headway.agent.sandbox.grounds import ELSEWHERE, room_of
from headway.core.task import Spec
from headway.wire import Assignment, Ending, Outcome
from tests.services.agent_leader import FakeLeader, a_leader, an_assignment, key_of, result_of, settings
from tests.services.image_making import a_directory, a_file, a_layer, a_layout, a_link, a_root

PROGRAMS = ("sh", "cat", "ls", "id", "touch", "mkdir", "rm", "env", "sleep", "stat", "mv")
MORE = "while :; do sleep 0.01; cat /bin/sh /bin/sh /bin/sh /bin/sh"
SAYS_USER = "id -u; id -g; pwd; echo $HOME $USER"


@asynccontextmanager
async def a_node(leader: FakeLeader, data_dir: Path, shelf: Path, **how: object) -> AsyncIterator[None]:
    images = ImageSettings(directories=(shelf,), registries=Registries(allowed=(), tool=None))
    said = replace(settings(leader, data_dir, sandbox=True), images=images, **how)  # pyright: ignore[reportArgumentType]
    running = asyncio.create_task(Agent(said).run())
    try:
        await leader.until(lambda: leader.hellos)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=20)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images on one base: with terms of their own, with a user, with links where a runtime mounts."""
    place = tmp_path_factory.mktemp("shelf")
    base = a_layer(*a_root(*PROGRAMS), a_directory("var"), a_directory("var/log"), a_file("app/conf", "one\n"))
    shell = ["/bin/sh", "-c"]
    a_layout(place / "base", base)
    terms = {
        "Env": ["GREETING=hello", "PATH=/usr/bin", "HEADWAY_TASK_ID=1"], "Entrypoint": shell,
        "Cmd": [SAYS_USER], "WorkingDir": "/app/deep", "User": "app:staff",
    }  # fmt: skip
    a_layout(place / "terms", base, run=terms)
    sly = a_layer(
        a_link("tmp", "/etc"), a_link("proc", "../../../../proc"), a_link("workspace", "/usr"), a_link("run", "/"),
        a_link("etc/hosts", "/etc/passwd"), a_link("dev", "/oldroot/dev"),
    )  # fmt: skip
    a_layout(place / "sly", base, sly)
    a_layout(place / "empty", a_layer(a_file("only", "this")))
    a_layout(place / "lost", base, run={"User": "nobody-there"})
    (place / "broken.tar").write_bytes(b"no tar")
    return place


@pytest.fixture
async def leader(tmp_path: Path, shelf: Path) -> AsyncIterator[FakeLeader]:
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", shelf):
        yield leader


def in_image(image: str, *command: str, script: str | None = None, **how: object) -> Assignment:
    spec = Spec(command=list(command) or None, script=script, image=image, **how)  # pyright: ignore[reportArgumentType]
    made = an_assignment("script" if script else "command", spec)
    return msgspec.structs.replace(made, profile="container")


async def said(leader: FakeLeader, image: str, line: str) -> str:
    ending = await leader.run_one(in_image(image, "/bin/sh", "-c", line))
    assert ending.outcome == Outcome.DONE, (ending.message, ending.tail)
    return ending.tail.decode()


async def refused(leader: FakeLeader, image: str, *command: str) -> Ending:
    ending = await leader.run_one(in_image(image, *command))
    assert ending.outcome == Outcome.FAILED
    return ending


async def test_a_node_says_that_it_runs_containers(leader: FakeLeader):
    assert leader.hellos[-1].profiles[:3] == ("trusted", "sandboxed", "container")
    assert "container" not in leader.hellos[-1].degraded


async def test_a_task_sees_the_root_of_its_image_and_nothing_of_this_machine(leader: FakeLeader):
    assert await said(leader, "base", SAYS_USER) == "0\n0\n/workspace\n/workspace root\n"
    assert (await said(leader, "base", "ls /usr/bin; cat /app/conf")).split() == [*sorted(PROGRAMS), "one"]
    assert await said(leader, "base", "cat /etc/hosts /etc/hostname") == (
        "127.0.0.1 localhost\n::1 localhost\nheadway\n"
    )
    facts = "CapInh:|CapPrm:|CapEff:|CapAmb:|NoNewPrivs:|Seccomp:"
    lines = f"while read name value; do case $name in {facts}) echo $value;; esac; done < /proc/self/status"
    status = await said(leader, "base", lines)
    assert status.split() == ["0" * 16] * 4 + ["1", "2"]


async def test_what_an_image_says_about_how_it_is_run_is_heeded(leader: FakeLeader):
    by_itself = await leader.run_one(in_image("terms"))
    assert by_itself.tail.decode() == "1234\n50\n/app/deep\n/workspace app\n"
    task = in_image("terms", "echo $GREETING $MINE $HEADWAY_TASK_ID $PATH", env={"MINE": "too"})
    ending = await leader.run_one(task)
    assert ending.tail.decode() == f"hello too {task.task} /usr/bin\n"


async def test_a_task_may_change_its_root_and_no_other_sees_it(leader: FakeLeader, tmp_path: Path):
    changes = "touch /new /app/new /var/log/new; rm /app/conf; echo two > /app/conf; cat /app/conf; ls /usr > /usr/x"
    ending = await leader.run_one(in_image("base", "/bin/sh", "-c", changes))
    assert ending.tail.splitlines()[0] == b"two"
    # What is an image's own is closed to a user of its own; the agent's user writes a layer over it.
    assert (b"/usr/x" in ending.tail) == (os.geteuid() == 0)
    assert await said(leader, "base", "cat /app/conf; ls /var/log; test ! -e /usr/x") == "one\n"
    room = room_of(tmp_path / "n1")
    grounds = (tmp_path / "n1" / "sandboxes", ELSEWHERE / room)
    layers = next(place / "layers" for place in grounds if (place / "layers").is_dir())
    async with asyncio.timeout(20):
        while list(layers.iterdir()):
            await asyncio.sleep(0)
    places = (tmp_path, *(place / room for place in (ELSEWHERE, ELSEWHERE.with_name("images"))))
    assert [path for place in places for name in ("new", "x") for path in place.rglob(name)] == []


@pytest.mark.parametrize("line", [f"{MORE} >> /app/x; done", f"exec 5> /x; rm /x; {MORE} >&5; done"])
async def test_what_a_task_changes_in_its_root_counts_as_its_disk(
    leader: FakeLeader, line: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.agent.runners.disk.DISK_BYTES", 1 << 24)
    ending = await refused(leader, "base", "/bin/sh", "-c", line)
    assert ending.code == "disk_exceeded", ending.message


async def test_results_and_scripts_pass_as_in_every_sandbox(leader: FakeLeader):
    text = b'#!/bin/sh\necho "[\\"$1\\", \\"$0\\"]" > $HEADWAY_OUTPUT\n'
    digest = "sha256:" + hashlib.sha256(text).hexdigest()
    leader.scripts[digest] = text
    ending = await leader.run_one(in_image("base", script=digest, args=["one"]))
    assert result_of(ending) == ["one", "/run/headway/script"]


async def test_links_of_an_image_where_we_mount_lead_nowhere(leader: FakeLeader):
    line = "echo x > /tmp/mine; ls /etc; cat /etc/hosts; ls -d /proc/self; pwd"
    told = (await said(leader, "sly", line)).split()
    assert "mine" not in told and told[-2:] == ["/proc/self", "/workspace"] and "localhost" in told


async def test_an_image_that_cannot_be_had_or_run_ends_the_task_with_its_reason(leader: FakeLeader):
    missing = await refused(leader, "nowhere:1", "true")
    assert missing.code == "image_missing" and "nowhere:1" in missing.message
    assert (await refused(leader, "broken", "true")).code == "image_invalid"
    assert "'nobody-there' is not in its /etc/passwd" in (await refused(leader, "lost", "true")).message
    empty = await refused(leader, "empty", "/only-here")
    assert empty.code == "spawn_failed" and "'/only-here' is not in the image" in empty.message
    assert "names no program" in (await refused(leader, "empty")).message


async def test_an_image_is_kept_while_a_task_runs_in_it_and_stopped_tasks_let_it_go(leader: FakeLeader):
    task = in_image("base", "/bin/sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    await leader.dispatch(task)
    await leader.until(lambda: leader.log(task))
    await leader.kill(task)
    await leader.until(lambda: leader.ending(key_of(task)))
    ending = leader.ending(key_of(task))
    assert ending is not None and ending.outcome == Outcome.KILLED and ending.tail.endswith(b"bye\n")


async def test_where_there_are_no_overlays_the_root_is_read_only_and_the_node_says_so(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.agent.sandbox.bubblewrap.OVERLAYS", (999, 0))
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", shelf):
        assert "read-only" in leader.hellos[-1].degraded["container"]
        ending = await leader.run_one(in_image("base", "/bin/sh", "-c", "touch /tmp/a ~/b && touch /app/c"))
        assert ending.outcome == Outcome.FAILED and b"Read-only file system" in ending.tail


async def test_a_node_without_the_walls_announces_no_containers(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_BWRAP", "/nonexistent")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("headway.agent.sandbox.bubblewrap.OVERLAYS", (999, 0))
    monkeypatch.setattr("headway.agent.sandbox.bubblewrap.LEAST", (999, 0))
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", shelf):
        assert "container" not in leader.hellos[-1].profiles
    assert os.path.exists("/bin/sh")
