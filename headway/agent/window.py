"""How many assignments to hold beyond those that fit: pure arithmetic on run times.

The promise: a queue of short tasks never runs dry between two rounds to the leader, and a long task never
finds itself waiting behind another here while a node elsewhere is idle.
"""

from __future__ import annotations

QUEUE_SECONDS = 0.05
"""How much work the queue should hold: a few rounds to the leader."""
LONG_SECONDS = 0.1
"""Tasks longer than this are not queued here at all."""
FAR_SECONDS = 0.5
"""Longer is not told apart: a few short tasks after an hour-long one open the window again."""
LEAST_SECONDS = 0.0005
"""Nothing takes less, whatever was measured."""
WEIGHT = 0.1
"""How much one run time counts against all before it."""


class Window:
    """One kind's window. `most` bounds it; `first` is the guess before anything ran."""

    def __init__(self, *, first: int, most: int) -> None:
        self._first = first
        self._most = most
        self.mean: float | None = None

    def ran(self, seconds: float, count: int = 1) -> None:
        """Learns that `count` tasks took `seconds` in all."""
        each = min(seconds / count, FAR_SECONDS)
        weight = min(1.0, WEIGHT * count) if self.mean is not None else 1.0
        self.mean = each if self.mean is None else self.mean + weight * (each - self.mean)

    def drags(self, seconds: float) -> None:
        """Learns that a task has been running for so long already."""
        self.mean = max(self.mean or 0.0, min(seconds, FAR_SECONDS))

    def size(self, slots: int) -> int:
        """The window, with `slots` of them running at once."""
        if slots <= 0:
            return 0
        if self.mean is None:
            return self._first
        if self.mean > LONG_SECONDS:
            return 0
        return min(self._most, int(slots * QUEUE_SECONDS / max(self.mean, 1e-6)))

    def lasts(self, waiting: int, slots: int) -> float:
        """For how many seconds so many that wait will keep all of them busy."""
        return waiting * max(self.mean or 0.0, LEAST_SECONDS) / max(slots, 1)


def differs(told: int, now: int) -> bool:
    """Whether the leader should hear of the change: a doubling, a halving, or to and from nothing."""
    return now != told and (min(told, now) == 0 or now >= 2 * told or told >= 2 * now)
