"""Tasks that are alike: of one tenant, one kind of work; when they come and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from headway.core.lifecycle import Lane
from headway.core.placement import Shape, number_of
from headway.core.queue import LineKey
from headway.core.task import Admitted
from headway.sim.scenario import Overstated

Draw = Callable[[Random], float]


class Stream:
    """Tasks alike: of one tenant, one kind of work."""

    __slots__ = (
        "arrive", "cap", "cap_ms", "caps", "checkpoint_every", "draw", "group", "key", "lane", "number", "shape",
        "tenant", "tier", "tolerance", "work",
    )  # fmt: skip

    def __init__(self, number: int, tenant: int, group: str, work: str, admitted: Admitted, *, periodic: bool) -> None:
        self.number = number
        self.tenant = tenant
        self.group = group
        """What it is reported under: the name of the tenant, or of those alike."""
        self.work = work
        self.lane = Lane.PERIODIC if periodic and admitted.lane != Lane.URGENT else admitted.lane
        self.tier = admitted.tier
        self.tolerance = admitted.delay_tolerance_ms / 1000
        self.cap_ms = admitted.execution_cap_ms
        self.cap: Overstated | None = None
        self.caps: Iterator[int] | None = None
        """Milliseconds, of one task after the other; 0 where `cap_ms` counts."""
        self.shape = Shape("command", dict(admitted.needs), admitted.tier)
        self.key = LineKey(tenant, self.lane, 0)
        self.draw: Draw = lambda _: 1.0
        self.arrive: Iterable[float] = ()
        self.checkpoint_every: float | None = None

    def become(self, shape: Shape) -> None:
        """Its tasks are of this shape."""
        self.shape = shape
        self.key = LineKey(self.tenant, self.lane, number_of(shape)[0])
