"""Quantiles of millions of values in a few hundred counters: buckets that grow by 2.2 % each, so that is the error."""

from __future__ import annotations

from array import array
from math import log2

PER_DOUBLING = 32
UNIT = 0.01
"""Below this all values are one."""
SIZE = 40 * PER_DOUBLING


class Histogram:
    """Counts of values from 0 up, such as seconds."""

    __slots__ = ("_counts", "count", "most", "sum")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * SIZE))
        self.count = 0
        self.sum = 0.0
        self.most = 0.0

    def add(self, value: float) -> None:
        """Takes a value in."""
        self.count += 1
        if value <= 0.0:
            self._counts[0] += 1
            return
        self.sum += value
        if value > self.most:
            self.most = value
        place = int(log2(value / UNIT + 1.0) * PER_DOUBLING)
        self._counts[place if place < SIZE else SIZE - 1] += 1

    def quantile(self, part: float) -> float:
        """The value that so large a part does not exceed; 0 when there is none."""
        if not self.count:
            return 0.0
        wanted, seen = part * self.count, 0
        for place, count in enumerate(self._counts):
            seen += count
            if seen >= wanted and count:
                return min(((2.0 ** ((place + 0.5) / PER_DOUBLING)) - 1.0) * UNIT, self.most) if place else 0.0
        return self.most

    @property
    def mean(self) -> float:
        """The mean; 0 when there is none."""
        return self.sum / self.count if self.count else 0.0

    def merge(self, other: Histogram) -> None:
        """Takes all of another in."""
        self.count += other.count
        self.sum += other.sum
        self.most = max(self.most, other.most)
        for place, count in enumerate(other._counts):
            if count:
                self._counts[place] += count

    def steps(self, points: int = 60) -> list[tuple[float, float]]:
        """How large a part does not exceed which value: at most so many points of the curve, from the first on."""
        found: list[tuple[float, float]] = []
        seen, told = 0, -1.0
        for place, count in enumerate(self._counts):
            seen += count
            part = seen / self.count if self.count else 0.0
            if count and (part - told >= 1 / points or part == 1.0 or part >= 0.99):
                edge = ((2.0 ** ((place + 1) / PER_DOUBLING)) - 1.0) * UNIT if place else 0.0
                found.append((min(edge, self.most), part))  # a bucket reaches beyond the last value in it
                told = part
        return found
