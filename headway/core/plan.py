"""Which task starts next, and where.

Lanes in order, in a lane the earliest `start_by` first. Decided in runs: as long as one line stays ahead of all others,
its tasks are placed many at a time. A shape that found no room is passed over for the rest of the round, so that it
never hides those behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.lifecycle import Lane
from headway.core.placement import NodeRoom, Nodes, Shape
from headway.core.queue import Line, LineKey, ReadyQueue, ReadyTask


class Placement(NamedTuple):
    """Tasks of one line that shall start on one node."""

    key: LineKey
    node: int
    tasks: list[ReadyTask]


def plan(queue: ReadyQueue, nodes: Nodes, *, most: int) -> list[Placement]:
    """Takes up to `most` tasks out of the queue and books the room for them."""
    placed: list[Placement] = []
    for lane in Lane:
        if most <= 0:
            break
        most -= _plan_lane(queue, nodes, lane, most, placed)
    return placed


def _plan_lane(queue: ReadyQueue, nodes: Nodes, lane: Lane, most: int, placed: list[Placement]) -> int:
    blocked: dict[int, bool] = {}
    aside: list[Line] = []
    count = 0
    while count < most and (line := queue.next_line(lane)) is not None:
        if line.key.shape in blocked:
            aside.append(line)
            continue
        wanted = line.run_until(queue.due_next(lane), most - count)
        got = _place_run(queue, nodes, line, wanted, placed)
        count += got
        if got < wanted:
            blocked[line.key.shape] = True
        queue.put_back(line)
    for line in aside:
        queue.put_back(line)
    return count


def _place_run(queue: ReadyQueue, nodes: Nodes, line: Line, wanted: int, placed: list[Placement]) -> int:
    if not nodes.knows(line.key.shape):
        return 0  # its description is still being read
    shape = nodes.shape(line.key.shape)
    rooms = nodes.candidates(line.key.shape)
    got = 0
    for room, count in _shares(rooms, shape, wanted):
        room.occupy(shape, count)
        placed.append(Placement(line.key, room.node, queue.take(line, count)))
        got += count
    return got


def _shares(rooms: list[NodeRoom], shape: Shape, wanted: int) -> list[tuple[NodeRoom, int]]:
    """How many each node gets: first those that start at once, then the windows in equal parts."""
    shares: dict[int, int] = {}
    left = wanted
    for index, room in enumerate(rooms):
        if left == 0:
            break
        if count := room.fitting(shape, left):
            shares[index] = count
            left -= count
    for index, room in enumerate(rooms):
        if left == 0:
            break
        even = -(-left // (len(rooms) - index))
        if count := min(room.window_left(shape), even):
            shares[index] = shares.get(index, 0) + count
            left -= count
    return [(rooms[index], count) for index, count in shares.items()]
