"""Whether any node could ever have what a task asks for: so that one that would wait for ever is refused at once.

Nodes count that were seen within a day, for one that is away may come back. A pool without any refuses nothing: its
nodes are yet to come. What fits some node that was known lately needs no look at the database; only a refusal does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

import structlog

from headway.core.quantity import amount_text
from headway.core.refusal import Refused
from headway.core.resources import fits, nearest
from headway.core.task import Admitted, Submission
from headway.gateway.within_plan import Verdict
from headway.store.cluster import ClusterStore
from headway.store.database import GONE

Needs = tuple[tuple[str, int], ...]
Nodes = Mapping[str, Mapping[str, int]]

FITTING_SECONDS = 60.0
"""How long what fits is taken to fit."""
REFUSING_SECONDS = 1.0
"""How old what is known of the nodes may be when a task is refused by it."""
LOOK_SECONDS = 2.0
FITTING_MAX = 20_000
"""How many vectors are remembered as fitting."""
_log = structlog.get_logger("headway.gateway")


class Lack(NamedTuple):
    """What keeps a vector off every node: one resource, by the node that has most of it; or all of them together, by
    the node that comes nearest."""

    node: str
    resources: tuple[str, ...]
    alone: bool


class KnownNodes:
    """The capacities of the pool's nodes, as last read."""

    def __init__(self, cluster: ClusterStore) -> None:
        self._cluster = cluster
        self._nodes: Nodes = {}
        self._largest: dict[str, str] = {}
        self._read_at = float("-inf")
        self._fitting: set[Needs] = set()

    async def judged(self, said: Sequence[Submission], verdicts: list[Verdict]) -> list[Verdict]:
        """The verdicts, with a refusal of what no node could ever run."""
        lacks = await self._lacks({verdict.needs for verdict in verdicts if _is_process(verdict)})
        if not lacks:
            return verdicts
        return [
            [_refusal(one, verdict.needs, lacks[verdict.needs], self._nodes)]
            if _is_process(verdict) and verdict.needs in lacks
            else verdict
            for one, verdict in zip(said, verdicts, strict=True)
        ]

    async def _lacks(self, wanted: set[Needs]) -> dict[Needs, Lack]:
        """Those that fit no node, known for sure, and why."""
        if time.monotonic() - self._read_at > FITTING_SECONDS:
            await self._look()
        lacks = await self._compared(wanted - self._fitting)
        if lacks and time.monotonic() - self._read_at > REFUSING_SECONDS:
            await self._look()
            lacks = await self._compared(set(lacks))
        return lacks

    async def _compared(self, wanted: set[Needs]) -> dict[Needs, Lack]:
        """Compares vectors with the nodes; others get a turn in between, for there may be thousands of both."""
        lacks: dict[Needs, Lack] = {}
        nodes = self._nodes
        for needs in wanted if nodes else ():
            lack = self._lack(needs)
            if lack is not None:
                lacks[needs] = lack
            elif len(self._fitting) < FITTING_MAX:
                self._fitting.add(needs)
            await asyncio.sleep(0)
            if self._nodes is not nodes:  # read anew meanwhile, for somebody else
                return await self._compared(wanted)
        return lacks

    def _lack(self, needs: Needs) -> Lack | None:
        for name, amount in needs:
            largest = self._largest.get(name) or next(iter(self._nodes))
            if self._nodes[largest].get(name, 0) < amount:
                return Lack(largest, (name,), alone=True)
        vector = dict(needs)
        if any(fits(vector, capacity) for capacity in self._nodes.values()):
            return None
        node, lacking = nearest(vector, self._nodes)
        return Lack(node, tuple(lacking), alone=False)

    async def _look(self) -> None:
        """Reads the nodes; while the database is away, nothing is known of any."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                self._nodes = await self._cluster.known_capacities()
        except GONE as fault:
            self._nodes = {}
            _log.warning("nodes_not_read", why=str(fault))
        names = {name for capacity in self._nodes.values() for name in capacity}
        self._largest = {name: max(self._nodes, key=lambda node: self._nodes[node].get(name, 0)) for name in names}
        self._fitting.clear()
        self._read_at = time.monotonic()


def _is_process(verdict: Verdict) -> TypeGuard[Admitted]:
    """Functions run in worker slots, and a worker that offers them may be yet to start."""
    return isinstance(verdict, Admitted) and verdict.function is None


def _refusal(said: Submission, needs: Needs, lack: Lack, nodes: Nodes) -> Refused:
    if lack.alone:
        (name,) = lack.resources
        path, who = (f"resources.{name}", "it") if name in said.resources else ("tier", f"tier {said.tier}")
        asked = amount_text(name, dict(needs)[name])
        there = amount_text(name, nodes[lack.node].get(name, 0))
        what = f"{who} asks for {name} {asked}, and the largest node, {lack.node}, has {there}"
        return Refused(path, f"{what}; ask for no more than that, or add a node that has it")
    asked = ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in needs)
    has = ", ".join(f"{name} {amount_text(name, nodes[lack.node].get(name, 0))}" for name in lack.resources)
    what = f"no node has all of this at once: {asked}; the nearest, {lack.node}, has only {has}"
    return Refused("resources" if said.resources else "tier", f"{what}; ask for less, or add a node that has it")
