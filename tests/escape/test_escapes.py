"""Every attack of the catalogue, from inside a real sandbox: each must fail."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.agent.sandbox.escapes import program, spin
from headway.agent.sandbox.escapes.catalogue import AT_ONCE, SLOWED_MAX, Attack, attacks, try_all
from headway.agent.sandbox.escapes.ground import PYTHON, a_ground
from headway.core.profiles import CONTAINER
from headway.wire import Outcome
from tests.services.image_making import a_directory, a_file, a_layer, a_layout, a_link, a_root


@pytest.mark.parametrize("fresh", [False, True], ids=["warm", "fresh"])
async def test_no_attack_gets_out(fresh: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.agent.runners.disk.FILES_MIN", 1000)  # making ten thousand takes its time
    broken: dict[str, str] = {}
    tried: list[str] = []
    async with a_ground() as ground:
        ground.is_fresh = fresh

        def judged(attack: Attack, why: str) -> None:
            tried.append(attack.name)
            if why:
                broken[attack.name] = why

        await try_all(ground, judged)
        lacks = ground.groups.degraded.keys() & {"cpu", "memory", "pids"}
    bombs = {attack.name for attack in attacks() if attack.needs_groups}
    assert broken.keys() == (bombs if lacks else set()), broken
    assert all("not tried: there is no limit of" in why for why in broken.values())
    assert sorted(tried) == sorted(attack.name for attack in attacks())
    assert len(bombs) == 6 and len(set(tried)) >= 70


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image in which the attacks run: this machine's Python, as far as they need it, and some programs."""
    place = tmp_path_factory.mktemp("shelf")
    names = ("sh", "cat", "ls", "id", "head", "tr", "sleep", "setsid", "env", "mkdir", "rm", "rmdir", "touch", "chmod",
             "ln", "mv", "mkfifo", "mknod", "readlink", "true", "python3")  # fmt: skip
    library = Path(os.path.realpath(PYTHON).replace("/bin/", "/lib/"))
    modules = [one for one in library.rglob("*") if one.is_file() and one.suffix in (".py", ".so")]
    kept = ("encodings", "collections", "ctypes", "importlib", "json", "re", "lib-dynload", library.name)
    entries = [a_file(str(one).lstrip("/"), one.read_bytes()) for one in modules if one.parent.name in kept]
    ffi = [a_file(str(one).lstrip("/"), one.read_bytes()) for one in Path("/usr/lib").rglob("libffi.so.*")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/usr/bin:/bin")
        root = [*a_root(*names), a_directory("var"), a_link("var/tmp", "/tmp"), *entries, *ffi]
        a_layout(place / "attackers", a_layer(*root), run={"User": "app"}, zipped=False)
    return place


async def test_no_attack_gets_out_of_a_container(shelf: Path, monkeypatch: pytest.MonkeyPatch):
    """The same walls around another root: bombs and neighbours are tried in sandboxes."""
    monkeypatch.setattr("headway.agent.runners.disk.FILES_MIN", 1000)
    broken: dict[str, str] = {}
    tried: set[str] = set()
    places = asyncio.Semaphore(AT_ONCE)  # seventy at once take longer than each may
    async with a_ground(CONTAINER, shelf, "attackers") as ground, asyncio.TaskGroup() as group:

        async def one(attack: Attack) -> None:
            tried.add(attack.name)
            async with places:
                why = await attack.why_broken(ground)
            if why:
                broken[attack.name] = why

        for attack in attacks(CONTAINER):
            if not attack.needs_groups and not attack.is_timed:
                group.create_task(one(attack))
    assert broken == {}
    assert len(tried) >= 70


FACTS = {
    "canary": "swordfish", "agent": 1, "secret_file": "/etc/passwd", "workspaces": ["/etc"], "socket": "/x", "port": 1,
    "abstract": "x", "shm_key": 1, "tmpfs_max": 1, "calls": {"ptrace": 101, "setns": 308, "unshare": 272, "clone": 56},
}  # fmt: skip


READERS = (
    "environment_of_the_agent", "files_of_the_agent", "workspaces_of_others", "homes", "processes_of_others",
    "setuid_programs", "capabilities", "unsized_places",
)  # fmt: skip
"""Those that change nothing where nothing stops them."""


@pytest.mark.parametrize("name", READERS)
def test_an_attack_that_meets_no_wall_says_so(name: str):
    words = [sys.executable, "-I", "-S", program.__file__, name, json.dumps(FACTS)]
    environ = {"HEADWAY_CANARY": "swordfish"}
    outside = subprocess.run(words, capture_output=True, text=True, env=environ, check=False)
    assert outside.returncode == 1, outside.stderr
    assert outside.stdout.startswith("broken: ")


async def test_an_attack_that_breaks_down_does_not_count_as_held():
    async with a_ground() as ground:
        ending = await ground.attack("no_such_attack")
        assert ending.outcome == Outcome.FAILED


async def test_a_spinner_that_outweighs_its_neighbour_is_seen_to_slow_it():
    async with a_ground() as ground:
        if "cpu" in ground.groups.degraded:
            pytest.skip("attempts are not held to their share of the cpu here")
        found = await spin.slowed(ground, neighbour=50, spinner=4000, turns=4)
        assert found.times > SLOWED_MAX, found


def test_a_neighbour_is_judged_by_pieces_longer_than_a_slice_and_by_the_turns_alone():
    turns = [spin.Turn(0.0, 1.0, False), spin.Turn(1.1, 2.1, True)]
    quiet = [n / 1000 for n in range(1001)]
    halved = [1.05, *(1.1 + n / 500 for n in range(501)), 2.2]
    assert spin.judged([*quiet, *halved], turns).times == pytest.approx(2.0)
    starved = [*quiet, 1.2, 1.9]
    assert spin.judged(starved, turns).beside == spin.TURN_SECONDS, "it did not finish a piece"
    held_up = [*quiet, *(1.1 + n / 1000 for n in range(100)), *(1.4 + n / 1000 for n in range(700))]
    assert spin.judged(held_up, turns).beside == pytest.approx(0.22), "each piece that began before the gap"
    with pytest.raises(ValueError, match="did not get to work"):
        spin.judged([], turns)
