"""Keeping a node for a wide task, and until when the short may still go there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headway.core.placement import NodeRoom, Nodes, Shape
from headway.core.queue import LineKey
from headway.core.resources import fits, give


class Running(NamedTuple):
    """Something that occupies a node until its cap at the latest."""

    ends_by: float
    shape: int


class Reservation(NamedTuple):
    """A node kept for the head of a line that was passed over."""

    key: LineKey
    node: int
    starts_by: float


def free_at(nodes: Nodes, room: NodeRoom, shape: Shape, running: Iterable[Running], now: float) -> float:
    """When a node has room for a shape if everything on it runs to its cap; infinity when never."""
    free = dict(room.free)
    if fits(shape.needs, free):
        return now
    for ends_by, number in sorted(running):
        give(free, nodes.shape(number).needs)
        if fits(shape.needs, free):
            return max(ends_by, now)
    return float("inf")
