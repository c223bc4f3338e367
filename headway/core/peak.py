"""Peak and off-peak: the pool's utilization against a line, with hysteresis so that it does not flutter."""

from __future__ import annotations

from collections.abc import Mapping


def utilization(free: Mapping[str, int], capacity: Mapping[str, int]) -> float:
    """The part in use of the resource that is used most; what waits in a window counts as in use, up to all."""
    parts = [1.0 - max(free.get(name, 0), 0) / amount for name, amount in capacity.items() if amount > 0]
    return max(parts, default=0.0)


class Peak:
    """Whether it is peak time."""

    def __init__(self) -> None:
        self.is_peak = False
        self.utilization = 0.0

    def observe(self, used: float, *, line: float, hysteresis: float) -> bool:
        """Takes a utilization in; True when peak began or ended by it."""
        self.utilization = used
        before = self.is_peak
        self.is_peak = used >= line - hysteresis if before else used >= line
        return self.is_peak != before
