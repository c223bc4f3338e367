"""Peak and off-peak: what is in use of each resource against a line, with hysteresis so that it does not flutter.

It is peak time for whoever needs something that is busy. Everybody needs cpu; work that asks for no GPU does not wait
for those that do.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.resources import Vector

NEEDED_BY_ALL = "cpu"


def in_use(free: Mapping[str, int], capacity: Mapping[str, int]) -> dict[str, float]:
    """The part in use of each resource; what waits in a window counts as in use, up to all."""
    return {name: 1.0 - max(free.get(name, 0), 0) / amount for name, amount in capacity.items() if amount > 0}


class Peak:
    """Which resources are busy."""

    def __init__(self) -> None:
        self.busy: frozenset[str] = frozenset()
        self.used: dict[str, float] = {}

    @property
    def is_peak(self) -> bool:
        """Whether it is peak time for anybody."""
        return bool(self.busy)

    @property
    def utilization(self) -> float:
        """The part in use of the resource that is used most."""
        return max(self.used.values(), default=0.0)

    def observe(self, used: dict[str, float], *, line: float, hysteresis: float) -> bool:
        """Takes what is in use; True when peak began or ended for somebody by it."""
        self.used, before = used, self.busy
        busy = [name for name, part in used.items() if part >= (line - hysteresis if name in before else line)]
        if len(busy) == len(before) and before.issuperset(busy):
            return False
        self.busy = frozenset(busy)
        return True

    def is_for(self, needs: Vector) -> bool:
        """Whether it is peak time for whoever needs these."""
        return bool(self.busy) and (NEEDED_BY_ALL in self.busy or not self.busy.isdisjoint(needs))
