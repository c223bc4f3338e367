"""The catalogue of attacks from inside gVisor, each with a kernel of its own: it takes a minute."""

from __future__ import annotations

import os
import shutil

import pytest

from headway.agent.sandbox.escapes.catalogue import Attack, attacks, try_all
from headway.agent.sandbox.escapes.ground import a_ground
from headway.core.profiles import HOSTILE


async def test_no_attack_gets_out_of_gvisor():
    if shutil.which("runsc") is None or os.geteuid() != 0:
        pytest.skip("gVisor is not installed, or this is not root")
    broken: dict[str, str] = {}
    tried: set[str] = set()

    def judged(attack: Attack, why: str) -> None:
        tried.add(attack.name)
        if why:
            broken[attack.name] = why

    async with a_ground(HOSTILE) as ground:
        await try_all(ground, judged)
    assert broken == {}
    assert tried == {attack.name for attack in attacks(HOSTILE)}
    assert len(tried) >= 60
