"""Whether a pool has enough: its resources against what is asked of it, over a minute, ten minutes and an hour.

What is asked for is what is in use, and what waits for room, as far as it would take its room for the length of the
window: a million tasks of a millisecond ask a minute's window for little, and an hour's for nothing to speak of. Work
that more nodes would not start (paused, over a quota, a key or a rate, put off until off-peak hours) asks for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headway.core.resources import Vector

WINDOWS: dict[str, float] = {"1m": 60.0, "10m": 600.0, "1h": 3600.0}
RATIO_MAX = 1000.0
"""What is said when next to nothing is asked for."""
NODES_BY = ("1m", "10m")
"""More nodes are wanted as soon as a minute asks for them, fewer when ten minutes do not."""


class Asked(NamedTuple):
    """What one tier holds, and what it has waiting for room."""

    held: Vector
    waiting: Vector
    seconds: float
    """How long what waits would stay, on average."""


class Ratio(msgspec.Struct, frozen=True):
    """Resources against demand: 1 is exactly enough."""

    tier: str | None
    """None: the whole pool. A tier's resources are what the other tiers leave it."""
    window: str
    ratio: float
    resource: str | None
    """The resource that is scarcest."""


class Demand:
    """Averages over each window; each second counts for less, the longer ago it was."""

    def __init__(self) -> None:
        self._capacity = {name: _Average(seconds) for name, seconds in WINDOWS.items()}
        self._asked: dict[str, dict[str, _Average]] = {name: {} for name in WINDOWS}
        self._held: dict[str, dict[str, _Average]] = {name: {} for name in WINDOWS}
        self._mean_node: dict[str, float] = {}
        self._looked_at: float | None = None

    def observe(self, capacity: Vector, nodes: int, tiers: Mapping[str, Asked], now: float) -> None:
        """Takes in how things are; once a second is often enough."""
        if nodes:
            self._mean_node = {name: amount / nodes for name, amount in capacity.items() if amount > 0}
        for window, seconds in WINDOWS.items():
            self._capacity[window].observe(capacity, now)
            asked, held = self._asked[window], self._held[window]
            for tier in asked.keys() | tiers.keys():
                one = tiers.get(tier, _NOTHING)
                share = min(one.seconds / seconds, 1.0)
                names = one.held.keys() | one.waiting.keys()
                wants = {name: one.held.get(name, 0) + one.waiting.get(name, 0) * share for name in names}
                asked.setdefault(tier, _Average(seconds, self._looked_at)).observe(wants, now)
                held.setdefault(tier, _Average(seconds, self._looked_at)).observe(one.held, now)
            for tier in [tier for tier, average in asked.items() if tier not in tiers and average.is_nothing]:
                del asked[tier], held[tier]
        self._looked_at = now

    def ratios(self) -> list[Ratio]:
        """Every ratio there is: of the pool, and of each tier that asks for something."""
        found: list[Ratio] = []
        for window in WINDOWS:
            capacity, asked, held = self._capacity[window].amounts, self._asked[window], self._held[window]
            found.append(_ratio(None, window, capacity, _sum(asked)))
            for tier, average in sorted(asked.items()):
                others = _sum({name: one for name, one in held.items() if name != tier})
                left = {name: max(amount - others.get(name, 0.0), 0.0) for name, amount in capacity.items()}
                found.append(_ratio(tier, window, left, average.amounts))
        return found

    def nodes_wanted(self, target: float) -> int:
        """How many nodes of the pool's mean size would make the ratio the target."""
        return max(self._nodes_for(window, target) for window in NODES_BY)

    def _nodes_for(self, window: str, target: float) -> int:
        asked = {name: amount for name, amount in _sum(self._asked[window]).items() if amount > _TRACE}
        if not asked:
            return 0
        sizes = [
            amount * target / self._mean_node[name] for name, amount in asked.items() if self._mean_node.get(name, 0)
        ]
        return max(math.ceil(max(sizes, default=0.0) - _TRACE), 1)


class _Average:
    """A vector's mean over a window, fading."""

    def __init__(self, window_seconds: float, since: float | None = None) -> None:
        self._window_seconds = window_seconds
        self._since = since
        self.amounts: dict[str, float] = {}

    def observe(self, vector: Mapping[str, float], now: float) -> None:
        """What it is now. Where nothing was known before, it counts as if it had always been so."""
        if self._since is None:
            self._since, self.amounts = now, dict(vector)
            return
        kept = math.exp(-max(now - self._since, 0.0) / self._window_seconds)
        self._since = now
        for name in self.amounts.keys() | vector.keys():
            self.amounts[name] = self.amounts.get(name, 0.0) * kept + vector.get(name, 0) * (1.0 - kept)

    @property
    def is_nothing(self) -> bool:
        """Whether it has faded away."""
        return all(amount < _TRACE for amount in self.amounts.values())


_TRACE = 1e-3
_NOTHING = Asked({}, {}, 0.0)


def _sum(averages: Mapping[str, _Average]) -> dict[str, float]:
    total: dict[str, float] = {}
    for average in averages.values():
        for name, amount in average.amounts.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _ratio(tier: str | None, window: str, there: Mapping[str, float], asked: Mapping[str, float]) -> Ratio:
    ratios = [(there.get(name, 0.0) / amount, name) for name, amount in asked.items() if amount > _TRACE]
    ratio, name = min(ratios, default=(RATIO_MAX, None))
    return Ratio(tier, window, round(min(ratio, RATIO_MAX), 3), name)
