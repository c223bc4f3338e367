"""Scenarios as tests write them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from headway.sim.outcome import Outcome, Row
from headway.sim.reading import read
from headway.sim.running import simulate
from headway.sim.world import World, world

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"


def a_world(text: str, *, nodes: int | None = None, seed: int | None = None) -> World:
    scenario, source = read(dedent(text).encode(), "scenario.yml")
    return world(scenario, source, nodes=nodes, seed=seed)


def an_example(name: str, *, nodes: int | None = None, seed: int | None = None) -> World:
    scenario, source = read((EXAMPLES / f"{name}.yml").read_bytes(), name)
    return world(scenario, source, nodes=nodes, seed=seed)


def simulated(text: str, policy: str = "headway", **other: int) -> Outcome:
    return simulate(a_world(text, **other), policy, checks=True)


def row(found: Outcome, tenant: str, lane: str = "normal") -> Row:
    return next(one for one in found.rows if (one.tenant, one.lane) == (tenant, lane))
