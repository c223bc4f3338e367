"""Whether any node could ever have what a task asks for: so that one that would wait for ever is refused at once.

Nodes count that were seen within a day, for one that is away may come back. A pool without any refuses nothing: its
nodes are yet to come. What fits some node that was known lately needs no look at the database; only a refusal does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TypeGuard

import structlog

from headway.core.refusal import Refused
from headway.core.resources import fits, nearest
from headway.core.task import Admitted, Submission
from headway.gateway.amounts import for_people
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
_log = structlog.get_logger("headway.gateway")


class KnownNodes:
    """The capacities of the pool's nodes, as last read."""

    def __init__(self, cluster: ClusterStore) -> None:
        self._cluster = cluster
        self._nodes: Nodes = {}
        self._read_at = float("-inf")
        self._fitting: set[Needs] = set()

    async def judged(self, said: Iterable[Submission], verdicts: list[Verdict]) -> list[Verdict]:
        """The verdicts, with a refusal of what no node could ever run."""
        wanted = {verdict.needs for verdict in verdicts if _is_process(verdict)}
        too_much = await self._too_much(wanted)
        if not too_much:
            return verdicts
        return [
            [_refusal(one, verdict, self._nodes)] if _is_process(verdict) and verdict.needs in too_much else verdict
            for one, verdict in zip(said, verdicts, strict=True)
        ]

    async def _too_much(self, wanted: set[Needs]) -> set[Needs]:
        """Those that fit no node, known for sure."""
        now = time.monotonic()
        if now - self._read_at > FITTING_SECONDS:
            await self._look()
        doubtful = {needs for needs in wanted - self._fitting if not self._fits_some(needs)}
        if doubtful and now - self._read_at > REFUSING_SECONDS:
            await self._look()
            doubtful = {needs for needs in doubtful if not self._fits_some(needs)}
        return doubtful

    def _fits_some(self, needs: Needs) -> bool:
        if not self._nodes:
            return True
        vector = dict(needs)
        found = any(fits(vector, capacity) for capacity in self._nodes.values())
        if found:
            self._fitting.add(needs)
        return found

    async def _look(self) -> None:
        """Reads the nodes; while the database is away, nothing is known of any."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                self._nodes = await self._cluster.known_capacities()
        except (*GONE, TimeoutError) as fault:
            self._nodes = {}
            _log.warning("nodes_not_read", why=str(fault))
        self._fitting.clear()
        self._read_at = time.monotonic()


def _is_process(verdict: Verdict) -> TypeGuard[Admitted]:
    """Functions run in worker slots, and a worker that offers them may be yet to start."""
    return isinstance(verdict, Admitted) and verdict.function is None


def _refusal(said: Submission, admitted: Admitted, nodes: Nodes) -> Refused:
    needs = dict(admitted.needs)
    for name, amount in admitted.needs:
        largest = max(nodes, key=lambda node: nodes[node].get(name, 0))
        has = nodes[largest].get(name, 0)
        if has < amount:
            path, who = (f"resources.{name}", "it") if name in said.resources else ("tier", f"tier {said.tier}")
            asked, there = for_people(name, amount), for_people(name, has)
            what = f"{who} asks for {name} {asked}, and the largest node, {largest}, has {there}"
            return Refused(path, f"{what}; ask for no more than that, or add a node that has it")
    node, lacking = nearest(needs, nodes)
    asked = ", ".join(f"{name} {for_people(name, amount)}" for name, amount in admitted.needs)
    lacks = ", ".join(f"{name} {for_people(name, nodes[node].get(name, 0))}" for name in lacking)
    what = f"no node has all of this at once: {asked}; the nearest, {node}, has only {lacks}"
    return Refused("resources" if said.resources else "tier", f"{what}; ask for less, or add a node that has it")
