"""Keeping nodes for wide tasks, and until when the short may still go there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.core.nodes import Footprint, Nodes
from headway.core.placement import NodeRoom, Shape
from headway.core.queue import LineKey
from headway.core.resources import fits, give

KEPT_MAX = 8
KEPT_PART = 8
"""At most so many nodes are kept at a time, and one in so many: more would empty a small pool for the wide."""
LOOK_SECONDS = 0.25


class Running(NamedTuple):
    """Something that occupies a node until its cap at the latest."""

    ends_by: float
    shape: int


class Reservation(NamedTuple):
    """A node kept for a footprint that was passed over."""

    key: LineKey
    """The line whose head will get it."""
    node: int
    starts_by: float


class Reservations:
    """The nodes that are kept, by the footprint they are kept for."""

    def __init__(self, nodes: Nodes, running_on: Callable[[int], Iterable[Running]]) -> None:
        self._nodes = nodes
        self._running_on = running_on
        self._kept: dict[int, Reservation] = {}
        self.looks_at = 0.0
        """When to look again whether somebody is passed over."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def most(self) -> int:
        """How many nodes may be kept at a time."""
        return min(max(self._nodes.count // KEPT_PART, 1), KEPT_MAX)

    def footprints(self) -> set[int]:
        """The numbers of the footprints that something is kept for."""
        return set(self._kept)

    def all(self) -> list[Reservation]:
        """Everything that is kept."""
        return list(self._kept.values())

    def kept(self) -> list[tuple[Footprint, int]]:
        """Each footprint that something is kept for, and the node."""
        return [(self._nodes.by_number(number), kept.node) for number, kept in self._kept.items()]

    def make(self, footprint: Footprint, key: LineKey, shape: int, now: float) -> None:
        """Keeps the node that will have room first."""
        if len(self._kept) >= self.most or footprint.number in self._kept:
            return
        rooms = [room for room in self._nodes.some_candidates(shape) if room.kept_for is None and not room.is_closed]
        times = [(*self._free_at(room, footprint, now), room.node) for room in rooms]
        _, starts_by, node = min(times, default=(True, float("inf"), 0))
        room = self._nodes.get(node)
        if room is not None and starts_by < float("inf"):
            self._nodes.keep(room, footprint, starts_by)
            self._kept[footprint.number] = Reservation(key, node, starts_by)

    def _free_at(self, room: NodeRoom, footprint: Footprint, now: float) -> tuple[bool, float]:
        """When a node has room, and whether only if one of the same footprint ends there. That room would be theirs in
        any case: what is kept for those who have too little must be room that others hold."""
        running = list(self._running_on(room.node))
        others = [one for one in running if self._nodes.footprint(one.shape) is not footprint]
        at = free_at(self._nodes, room, footprint.shape, others, now)
        if at < float("inf") or len(others) == len(running):
            return at == float("inf"), at
        return True, free_at(self._nodes, room, footprint.shape, running, now)

    def end(self, footprint: Footprint) -> None:
        """The footprint was served, or nothing of it waits any more."""
        reservation = self._kept.pop(footprint.number, None)
        room = self._nodes.get(reservation.node) if reservation is not None else None
        if room is not None and room.kept_for == footprint.number:
            self._nodes.release(room)

    def end_unwanted(self) -> None:
        """Nothing is kept for a footprint that is open when a round is over: all of it that may start has."""
        for number in [number for number in self._kept if self._nodes.by_number(number).is_open]:
            self.end(self._nodes.by_number(number))

    def end_all(self) -> None:
        """Nothing is kept any more."""
        for kept in self._kept.values():
            room = self._nodes.get(kept.node)
            if room is not None:
                self._nodes.release(room)
        self._kept.clear()

    def left(self, node: int) -> None:
        """A node is gone."""
        self._kept = {number: kept for number, kept in self._kept.items() if kept.node != node}


def free_at(nodes: Nodes, room: NodeRoom, shape: Shape, running: Iterable[Running], now: float) -> float:
    """When a node has room for a shape if everything on it runs to its cap; infinity when never."""
    free = dict(room.free)
    if fits(shape.needs, free) and not shape.exclusive:
        return now
    ends = now
    for ends_by, number in sorted(running):
        give(free, nodes.shape(number).needs)
        ends = max(ends_by, now)
        if fits(shape.needs, free) and not shape.exclusive:
            return ends
    return ends if shape.exclusive else float("inf")
