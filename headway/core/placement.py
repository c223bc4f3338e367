"""Where a task may run: shapes, and the room that nodes have for them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from headway.core.constraints import Constraint, holds
from headway.core.limits import Concurrency, Rate
from headway.core.resources import fits, give, how_many_fit, take
from headway.core.task import Kind

COMMON = frozenset({"cpu", "memory", "disk", "iops", "ports", "workers"})
"""What every node has. Anything else makes a node special, and special nodes are kept for who needs them."""
LOOK_AT = 6
"""How many nodes with room are compared for one placement; of thousands, more buys nothing."""


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
    hold: tuple[str, ...] = ()
    """The paused names that hold its tasks, as long as they are paused (core/names.py)."""


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
        "_ahead", "_exclusive", "_special", "capacity", "count", "free", "functions", "kept_for", "kept_from", "kinds",
        "labels", "name", "node", "spread", "windows",
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
    ) -> None:
        self.node = node
        self.name = name
        self.capacity = capacity
        self.free = dict(capacity)
        self.kinds = frozenset(kinds)
        self.functions = frozenset(functions)
        self.windows = windows
        self.labels = labels or {}
        self.count = 0
        self.spread: Counter[str] = Counter()
        self.kept_for: int | None = None
        """The shape this node is reserved for, and from when on."""
        self.kept_from = 0.0
        self._ahead: dict[str, int] = {}
        self._exclusive = 0
        self._special = capacity.keys() - COMMON

    def could_run(self, shape: Shape) -> bool:
        """Whether the node, were it idle, could run a task of this shape."""
        if shape.kind not in self.kinds or not fits(shape.needs, self.capacity):
            return False
        if shape.function is not None and shape.function not in self.functions:
            return False
        return all(holds(constraint, self.labels) for constraint in shape.constraints)

    def fitting(self, shape: Shape, most: int) -> int:
        """How many more would start at once."""
        if self._exclusive:
            return 0
        if shape.exclusive:
            return 1 if self.count == 0 and fits(shape.needs, self.free) else 0
        return how_many_fit(shape.needs, self.free, most=most)

    def window_left(self, shape: Shape) -> int:
        """How many more it would hold for the moment the next one ends."""
        if self._exclusive or shape.exclusive or shape.spread is not None:
            return 0
        return max(self.windows.get(shape.kind, 0) - self._ahead.get(shape.kind, 0), 0)

    def lets_in(self, number: int, cap_ms: int, now: float) -> bool:
        """Whether a reservation leaves the node to this shape: its own, or who is gone by then."""
        return self.kept_for is None or self.kept_for == number or now + cap_ms / 1000 <= self.kept_from

    def occupy(self, shape: Shape, count: int) -> None:
        """Books `count` tasks."""
        beyond = count - self.fitting(shape, count)
        take(self.free, shape.needs, count)
        self.count += count
        if beyond > 0:
            self._ahead[shape.kind] = self._ahead.get(shape.kind, 0) + beyond
        if shape.exclusive:
            self._exclusive += count
        if shape.spread is not None:
            self.spread[shape.spread] += count

    def vacate(self, shape: Shape, count: int) -> None:
        """Gives the room of `count` tasks back; as many of those that wait there move up."""
        give(self.free, shape.needs, count)
        self.count -= count
        ahead = self._ahead.get(shape.kind, 0)
        if ahead:
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
        slack = 0.0
        for name, amount in shape.needs.items():
            whole = self.capacity.get(name, 0)
            if whole > 0:
                slack = max(slack, (self.free.get(name, 0) - amount) / whole)
        return missed, alike, special, slack


class Nodes:
    """The nodes of a pool and which of them could run a shape."""

    def __init__(self) -> None:
        self._rooms: dict[int, NodeRoom] = {}
        self._shapes: dict[int, Shape] = {}
        self._candidates: dict[int, list[NodeRoom]] = {}
        self._cursor: dict[int, int] = {}
        self._vacated: deque[int] = deque(maxlen=8 * LOOK_AT)
        self.capacity: dict[str, int] = {}
        self.free: dict[str, int] = {}

    def join(self, room: NodeRoom) -> None:
        """A node (again) offers its room."""
        self.leave(room.node)
        self._rooms[room.node] = room
        give(self.capacity, room.capacity)
        give(self.free, room.free)
        self._forget_candidates()

    def leave(self, node: int) -> None:
        """A node offers nothing any more."""
        room = self._rooms.pop(node, None)
        if room is not None:
            take(self.capacity, room.capacity)
            take(self.free, room.free)
            self._forget_candidates()

    def get(self, node: int) -> NodeRoom | None:
        """A node's room."""
        return self._rooms.get(node)

    def all(self) -> Iterable[NodeRoom]:
        """Every node's room."""
        return self._rooms.values()

    def learn(self, number: int, shape: Shape) -> None:
        """Makes a shape known by its number."""
        self._shapes[number] = shape

    def knows(self, number: int) -> bool:
        """Whether a shape's number is known."""
        return number in self._shapes

    def shape(self, number: int) -> Shape:
        """A known shape."""
        return self._shapes[number]

    def forget_shapes(self, but: set[int]) -> None:
        """Drops the shapes that nothing waits or runs in."""
        for number in self._shapes.keys() - but:
            del self._shapes[number]
            self._candidates.pop(number, None)
            self._cursor.pop(number, None)

    def candidates(self, number: int) -> list[NodeRoom]:
        """The nodes that could run a shape were they idle."""
        found = self._candidates.get(number)
        if found is None:
            shape = self._shapes[number]
            found = self._candidates[number] = [room for room in self._rooms.values() if room.could_run(shape)]
        return found

    def with_room(self, number: int, cap_ms: int, now: float) -> list[NodeRoom]:
        """Some candidates where a task would start at once, best first. Nodes vacated lately are looked at before all
        others, and a look goes on from where the last one ended: of thousands of full nodes hardly any is touched."""
        shape, rooms = self._shapes[number], self.candidates(number)
        if len(rooms) > LOOK_AT and (found := self._lately_vacated(number, shape, cap_ms, now)):
            return found
        found = self._look_on(number, shape, rooms, cap_ms, now)
        if len(found) > 1:
            found.sort(key=lambda room: room.score(shape))
        return found

    def _lately_vacated(self, number: int, shape: Shape, cap_ms: int, now: float) -> list[NodeRoom]:
        found: list[NodeRoom] = []
        for node in dict.fromkeys(self._vacated):
            room = self._rooms.get(node)
            if (
                room is not None
                and room.fitting(shape, 1)
                and room.lets_in(number, cap_ms, now)
                and room.could_run(shape)
            ):
                found.append(room)
                if len(found) == LOOK_AT:
                    break
        found.sort(key=lambda room: room.score(shape))
        return found

    def _look_on(self, number: int, shape: Shape, rooms: list[NodeRoom], cap_ms: int, now: float) -> list[NodeRoom]:
        found: list[NodeRoom] = []
        start = self._cursor.get(number, 0) % max(len(rooms), 1)
        for step in range(len(rooms)):
            room = rooms[(start + step) % len(rooms)]
            if room.fitting(shape, 1) and room.lets_in(number, cap_ms, now):
                found.append(room)
                if len(found) == LOOK_AT:
                    self._cursor[number] = (start + step + 1) % len(rooms)
                    break
        return found

    def some_candidates(self, number: int) -> list[NodeRoom]:
        """A bounded part of the candidates, another one each time."""
        rooms = self.candidates(number)
        if len(rooms) <= LOOK_AT:
            return rooms
        start = self._cursor.get(number, 0) % len(rooms)
        self._cursor[number] = start + LOOK_AT
        return [rooms[(start + step) % len(rooms)] for step in range(LOOK_AT)]

    def occupy(self, node: int, number: int, count: int) -> None:
        """Books tasks on a node that is still there."""
        room, shape = self._rooms.get(node), self._shapes.get(number)
        if room is not None and shape is not None:
            room.occupy(shape, count)
            take(self.free, shape.needs, count)

    def vacate(self, node: int, number: int, count: int) -> None:
        """Gives room back on a node that is still there."""
        room, shape = self._rooms.get(node), self._shapes.get(number)
        if room is not None and shape is not None:
            room.vacate(shape, count)
            give(self.free, shape.needs, count)
            self._vacated.append(node)

    def _forget_candidates(self) -> None:
        self._candidates.clear()
        self._cursor.clear()
