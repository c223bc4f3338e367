"""Where a task may run: shapes, and the room that nodes have for them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from headway.core.resources import fits, give, how_many_fit, take
from headway.core.task import Kind


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that decides where a task may run. Tasks of one shape are interchangeable to the planner."""

    kind: Kind
    needs: dict[str, int]
    tier: str
    function: str | None = None


_encode = msgspec.json.Encoder(order="deterministic").encode


def shape_of(kind: Kind, needs: Iterable[tuple[str, int]], tier: str, function: str | None) -> tuple[int, str]:
    """A shape's number and its stored body. The number is a hash of the body: nobody has to hand numbers out."""
    body = _encode(Shape(kind, dict(needs), tier, function))
    return int.from_bytes(blake2b(body, digest_size=8).digest()) >> 1, body.decode()


class NodeRoom:
    """What one node has left, by the leader's books.

    A node also takes a window of tasks beyond those that fit, so that it never idles for the length of a round trip;
    the node itself sizes the window to some 50 ms of work. `free` goes below zero by what waits in the window.
    """

    __slots__ = ("_ahead", "capacity", "free", "functions", "kinds", "name", "node", "windows")

    def __init__(
        self,
        node: int,
        name: str,
        *,
        capacity: dict[str, int],
        kinds: Iterable[str],
        functions: Iterable[str],
        windows: dict[str, int],
    ) -> None:
        self.node = node
        self.name = name
        self.capacity = capacity
        self.free = dict(capacity)
        self.kinds = frozenset(kinds)
        self.functions = frozenset(functions)
        self.windows = windows
        self._ahead: dict[str, int] = {}

    def could_run(self, shape: Shape) -> bool:
        """Whether the node, were it idle, could run a task of this shape."""
        if shape.kind not in self.kinds or not fits(shape.needs, self.capacity):
            return False
        return shape.function is None or shape.function in self.functions

    def fitting(self, shape: Shape, most: int) -> int:
        """How many more would start at once."""
        return how_many_fit(shape.needs, self.free, most=most)

    def window_left(self, shape: Shape) -> int:
        """How many more it would hold for the moment the next one ends."""
        return max(self.windows.get(shape.kind, 0) - self._ahead.get(shape.kind, 0), 0)

    def occupy(self, shape: Shape, count: int) -> None:
        """Books `count` tasks."""
        beyond = count - self.fitting(shape, count)
        take(self.free, shape.needs, count)
        if beyond:
            self._ahead[shape.kind] = self._ahead.get(shape.kind, 0) + beyond

    def vacate(self, shape: Shape, count: int) -> None:
        """Gives the room of `count` tasks back; as many of those that wait there move up."""
        give(self.free, shape.needs, count)
        ahead = self._ahead.get(shape.kind, 0)
        if ahead:
            self._ahead[shape.kind] = max(ahead - count, 0)


class Nodes:
    """The nodes of a pool and which of them could run a shape."""

    def __init__(self) -> None:
        self._rooms: dict[int, NodeRoom] = {}
        self._shapes: dict[int, Shape] = {}
        self._candidates: dict[int, list[NodeRoom]] = {}

    def join(self, room: NodeRoom) -> None:
        """A node (again) offers its room."""
        self._rooms[room.node] = room
        self._candidates.clear()

    def leave(self, node: int) -> None:
        """A node offers nothing any more."""
        if self._rooms.pop(node, None) is not None:
            self._candidates.clear()

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

    def candidates(self, number: int) -> list[NodeRoom]:
        """The nodes that could run a shape were they idle."""
        found = self._candidates.get(number)
        if found is None:
            shape = self._shapes[number]
            found = self._candidates[number] = [room for room in self._rooms.values() if room.could_run(shape)]
        return found

    def occupy(self, node: int, number: int, count: int) -> None:
        """Books tasks on a node that is still there."""
        room, shape = self._rooms.get(node), self._shapes.get(number)
        if room is not None and shape is not None:
            room.occupy(shape, count)

    def vacate(self, node: int, number: int, count: int) -> None:
        """Gives room back on a node that is still there."""
        room, shape = self._rooms.get(node), self._shapes.get(number)
        if room is not None and shape is not None:
            room.vacate(shape, count)
