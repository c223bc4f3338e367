"""Every attack of the catalogue, from inside a real sandbox: each must fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headway.agent.sandbox.escapes import program
from headway.agent.sandbox.escapes.catalogue import Attack, attacks, try_all
from headway.agent.sandbox.escapes.ground import a_ground
from headway.wire import Outcome


@pytest.mark.parametrize("fresh", [False, True], ids=["warm", "fresh"])
async def test_no_attack_gets_out(fresh: bool):
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
