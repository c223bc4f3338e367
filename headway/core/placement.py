"""Where a task may run: shapes, and the room that nodes have for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from headway.core.constraints import Constraint, holds
from headway.core.limits import Concurrency, Rate
from headway.core.profiles import TRUSTED
from headway.core.resources import fits, how_many_fit, take
from headway.core.task import Kind

COMMON = frozenset({"cpu", "memory", "disk", "iops", "ports", "workers"})
"""What every node has. Anything else makes a node special, and special nodes are kept for who needs them."""


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that decides where and when a task may run; tasks of one shape are interchangeable."""

    kind: Kind
    needs: dict[str, int]
    tier: str
    function: str | None = None
    constraints: tuple[Constraint, ...] = ()
    preferred: tuple[Constraint, ...] = ()
    spread: str | None = None
    exclusive: bool = False
    concurrency: tuple[Concurrency, ...] = ()
    rates: tuple[Rate, ...] = ()
    preemptible: bool = False
    profile: str = TRUSTED
    """How closed in a process has to run; a function runs in its worker."""
    frozen_only: bool = False
    """Of a preemptible one: it writes no checkpoint, so it can stand still and not leave."""
    checkpoints: bool = False
    """It writes checkpoints, and begins from the last one."""
    hold: tuple[str, ...] = ()
    """The paused names that hold its tasks, as long as they are paused (core/names.py)."""


STAYS = frozenset({"memory", "disk", "ports", "gpu", "workers"})
"""What a task keeps that stands still; it gives back what it uses up by the second."""


def kept(needs: Mapping[str, int]) -> dict[str, int]:
    """Of what a task asks, what it keeps while it stands still."""
    return {name: amount for name, amount in needs.items() if name in STAYS}


def ceded(needs: Mapping[str, int]) -> dict[str, int]:
    """Of what a task asks, what others may use while it stands still."""
    return {name: amount for name, amount in needs.items() if name not in STAYS}


_encode = msgspec.json.Encoder(order="deterministic").encode


def number_of(shape: Shape) -> tuple[int, str]:
    """A shape's number and its stored body. The number is a hash of the body: nobody has to hand numbers out."""
    body = _encode(shape)
    return int.from_bytes(blake2b(body, digest_size=8).digest()) >> 1, body.decode()


class NodeRoom:
    """What one node has left, by the leader's books.

    A node also takes a window of tasks beyond those that fit, so that it never idles for the length of a round trip;
    the node itself sizes the window to some 50 ms of work. `free` goes below zero by what waits in the window.
    """

    __slots__ = (
        "_ahead", "_exclusive", "_special", "capacity", "count", "free", "functions", "is_closed", "is_gone",
        "kept_due", "kept_for", "kept_from", "kinds", "labels", "name", "node", "profiles", "spread", "windows",
    )  # fmt: skip

    def __init__(
        self,
        node: int,
        name: str,
        *,
        capacity: dict[str, int],
        kinds: Iterable[str],
        functions: Iterable[str],
        windows: dict[str, int],
        labels: Mapping[str, str] | None = None,
        profiles: Iterable[str] = (TRUSTED,),
    ) -> None:
        self.node = node
        self.name = name
        self.capacity = capacity
        self.free = dict(capacity)
        self.kinds = frozenset(kinds)
        self.functions = frozenset(functions)
        self.profiles = frozenset(profiles)
        self.windows = windows
        self.labels = labels or {}
        self.count = 0
        self.spread: Counter[str] = Counter()
        self.is_gone = False
        self.is_closed = False
        """Whether it takes no more; what runs there goes on."""
        self.kept_for: int | None = None
        """The footprint this node is reserved for, and from when on."""
        self.kept_from = 0.0
        self.kept_due = 0.0
        """When the one that it is kept for must start, if that is pressing; only what is due earlier goes before it."""
        self._ahead: dict[str, int] = {}
        self._exclusive = 0
        self._special = capacity.keys() - COMMON

    def could_run(self, shape: Shape) -> bool:
        """Whether the node, were it idle, could run a task of this shape."""
        return fits(shape.needs, self.capacity) and self.admits(shape)

    def admits(self, shape: Shape) -> bool:
        """The same, of a node that has room for it."""
        if shape.kind not in self.kinds:
            return False
        if shape.function is not None:
            if shape.function not in self.functions:
                return False
        elif shape.profile not in self.profiles:
            return False
        return not shape.constraints or all(holds(constraint, self.labels) for constraint in shape.constraints)

    def fitting(self, shape: Shape, most: int) -> int:
        """How many more would start at once."""
        if self._exclusive or self.is_gone or self.is_closed:
            return 0
        if shape.exclusive:
            return 1 if self.count == 0 and fits(shape.needs, self.free) else 0
        return how_many_fit(shape.needs, self.free, most=most)

    def has_room(self, shape: Shape) -> bool:
        """Whether one would start at once, on a node that could run it."""
        if self._exclusive or self.is_gone or self.is_closed or (shape.exclusive and self.count):
            return False
        free = self.free
        for name, amount in shape.needs.items():  # noqa: SIM110  the innermost loop of all: `fits` without its call
            if free.get(name, 0) < amount:
                return False
        return True

    def window_left(self, shape: Shape) -> int:
        """How many more it would hold for the moment the next one ends. Small ones that ended do not make room for the
        large that wait, so what is owed already counts as well as how many wait."""
        window = self.windows.get(shape.kind, 0)
        if (
            not window
            or self._exclusive
            or self.is_gone
            or self.is_closed
            or shape.exclusive
            or shape.spread is not None
        ):
            return 0
        left, free = window - self._ahead.get(shape.kind, 0), self.free
        for name, amount in shape.needs.items():
            if amount and window + free.get(name, 0) // amount < left:
                left = window + free.get(name, 0) // amount
        return max(left, 0)

    def lets_in(self, footprint: int, cap_ms: int, now: float, due: float) -> bool:
        """Whether a reservation leaves the node to this footprint: its own, who is gone by then, and what presses and
        is due before the one it is kept for."""
        if self.kept_for is None or self.kept_for == footprint:
            return True
        return due < self.kept_due or now + cap_ms / 1000 <= self.kept_from

    @property
    def weight(self) -> tuple[int, int]:
        """How much of a node it is: special things first, then size. The light ones are filled first."""
        return len(self._special), sum(self.capacity.values())

    def occupy(self, shape: Shape, count: int) -> None:
        """Books `count` tasks; those that do not fit wait in the window."""
        beyond = count - self.fitting(shape, count)
        take(self.free, shape.needs, count)
        self.count_in(shape, count, beyond)

    def count_in(self, shape: Shape, count: int, beyond: int) -> None:
        """Of `count` tasks that have taken their room, `beyond` wait in the window."""
        self.count += count
        if beyond > 0:
            self._ahead[shape.kind] = self._ahead.get(shape.kind, 0) + beyond
        if shape.exclusive:
            self._exclusive += count
        if shape.spread is not None:
            self.spread[shape.spread] += count

    def vacate(self, shape: Shape, count: int) -> None:
        """Gives the room of `count` tasks back; as many of those that wait there move up."""
        free = self.free
        for name, amount in shape.needs.items():
            free[name] = free.get(name, 0) + amount * count
        self.count -= count
        if self._ahead and (ahead := self._ahead.get(shape.kind, 0)):
            self._ahead[shape.kind] = max(ahead - count, 0)
        if shape.exclusive:
            self._exclusive -= count
        if shape.spread is not None:
            self.spread[shape.spread] -= count
            if self.spread[shape.spread] <= 0:
                del self.spread[shape.spread]

    def score(self, shape: Shape) -> tuple[int, int, int, float]:
        """How badly a task of this shape would sit here; the least is best. Preferred labels first, then spread, then
        nodes without special things it does not need, then the tightest fit."""
        missed = sum(not holds(wish, self.labels) for wish in shape.preferred) if shape.preferred else 0
        alike = self.spread[shape.spread] if shape.spread is not None else 0
        special = len(self._special - shape.needs.keys()) if self._special else 0
        slack, capacity, free = 0.0, self.capacity, self.free
        for name, amount in shape.needs.items():
            whole = capacity.get(name, 0)
            if whole > 0 and (left := (free.get(name, 0) - amount) / whole) > slack:
                slack = left
        return missed, alike, special, slack
