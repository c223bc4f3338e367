"""The nodes of a pool, and where among thousands of them there is room.

Shapes that ask the same of a node share a footprint, and each footprint remembers how far it has looked. A node that
was full is looked at again only when something on it ended: the nodes vacated since form a log, and a look goes on from
where in that log the last one stopped. So a placement on a full pool costs the same with ten nodes and ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from headway.core.placement import NodeRoom, Shape, kept, number_of
from headway.core.resources import give, take

LOOK_AT = 6
"""How many nodes with room are compared for one placement; of thousands, more buys nothing."""
LOG_LEAST = 4096
NEWS_MAX = 64
"""How many nodes that were just vacated are looked at to see whether somebody need not wait for the one kept for it."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Search:
    """How far a footprint has looked for one kind of room."""

    __slots__ = ("cursor", "epoch", "found", "has_layer", "seen")

    def __init__(self) -> None:
        self.epoch = -1
        self.found: list[NodeRoom] = []
        """Nodes that had room when they were looked at, the best last."""
        self.cursor = 0
        self.seen = 0
        self.has_layer = False
        """Of a spread: whether the pass under way has placed something."""


class Footprint:
    """What shapes ask of a node, once for all shapes alike in it."""

    __slots__ = (
        "candidates",
        "closed_at",
        "is_open",
        "number",
        "passed_since",
        "rooms",
        "shape",
        "windows",
    )

    def __init__(self, number: int, shape: Shape) -> None:
        self.number = number
        self.shape = shape
        self.is_open = True
        """Whether there may be room. A closed one is passed over until a node is vacated."""
        self.closed_at: float | None = None
        """Since when nothing of it has been placed for lack of room."""
        self.passed_since: float | None = None
        """Since when others are served before those of it whose turn it is."""
        self.candidates: list[NodeRoom] | None = None
        """The nodes that could run it were they idle, light ones first; None until somebody asks."""
        self.rooms = Search()
        self.windows = Search()


class Nodes:
    """The nodes of a pool, and what is known of the shapes that tasks have."""

    def __init__(self) -> None:
        self._rooms: dict[int, NodeRoom] = {}
        self._shapes: dict[int, Shape] = {}
        self._prints: dict[bytes, Footprint] = {}
        self._print_of: dict[int, Footprint] = {}
        self._by_number: dict[int, Footprint] = {}
        self._kept: list[NodeRoom] = []
        self._log: list[NodeRoom] = []
        self._vacated: dict[NodeRoom, None] = {}
        self._epoch = 0
        self._gone = 0
        self._windowed_kinds: set[str] = set()
        self._numbered = 0
        self.capacity: dict[str, int] = {}
        self.free: dict[str, int] = {}

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, room: NodeRoom) -> None:
        """A node (again) offers its room."""
        self.leave(room.node)
        self._rooms[room.node] = room
        self._windowed_kinds.update(kind for kind, window in room.windows.items() if window > 0)
        if not room.is_closed:
            self._count(room)
        for footprint in self._by_number.values():
            if footprint.candidates is not None and room.could_run(footprint.shape):
                footprint.candidates.append(room)
        self._vacated[room] = None

    def leave(self, node: int) -> None:
        """A node offers nothing any more."""
        room = self._rooms.pop(node, None)
        if room is None:
            return
        room.is_gone = True
        if not room.is_closed:
            self._discount(room)
        self.release(room)
        self._gone += 1
        if self._gone * 8 > len(self._rooms):
            self._look_anew()

    def close(self, node: int, *, closed: bool) -> bool:
        """A node takes no more, or takes more again; what it has counts for nobody meanwhile. False: it was so."""
        room = self._rooms.get(node)
        if room is None or room.is_closed == closed:
            return False
        if closed:
            self.release(room)
            self._discount(room)
        else:
            self._count(room)
            self._vacated[room] = None
        room.is_closed = closed
        return True

    def _count(self, room: NodeRoom) -> None:
        give(self.capacity, room.capacity)
        give(self.free, room.free)

    def _discount(self, room: NodeRoom) -> None:
        take(self.capacity, room.capacity)
        take(self.free, room.free)

    def get(self, node: int) -> NodeRoom | None:
        """A node's room."""
        return self._rooms.get(node)

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._rooms)

    def all(self) -> Iterable[NodeRoom]:
        """Every node's room."""
        return self._rooms.values()

    def book(self, room: NodeRoom, shape: Shape, count: int, *, beyond: int) -> None:
        """Books tasks on a node, some of them beyond what fits now."""
        pool, free = self.free, room.free
        for name, amount in shape.needs.items():
            free[name] -= amount * count
            pool[name] -= amount * count
        room.count_in(shape, count, beyond)

    def occupy(self, node: int, number: int, count: int) -> None:
        """Books tasks on a node that is still there."""
        room, shape = self._rooms.get(node), self._shapes.get(number)
        if room is not None and shape is not None:
            room.occupy(shape, count)
            if not room.is_closed:
                take(self.free, shape.needs, count)

    def vacate(self, node: int, number: int, count: int) -> None:
        """Gives room back on a node that is still there."""
        room, shape = self._rooms.get(node), self._shapes.get(number)
        if room is not None and shape is not None:
            room.vacate(shape, count)
            if not room.is_closed:
                pool = self.free
                for name, amount in shape.needs.items():
                    pool[name] = pool.get(name, 0) + amount * count
                self._vacated[room] = None

    def resize_window(self, node: int, windows: dict[str, int]) -> None:
        """A node will hold more or less beyond what fits."""
        room = self._rooms.get(node)
        if room is not None:
            room.windows = windows
            self._windowed_kinds.update(kind for kind, window in windows.items() if window > 0)
            self._vacated[room] = None

    def keep(self, room: NodeRoom, footprint: Footprint, until: float) -> None:
        """Reserves a node: only its own, and who is gone by then, may still go there."""
        self.release(room)
        room.kept_for, room.kept_from, room.kept_due = footprint.number, until, float("inf")
        self._kept.append(room)

    def rank(self, room: NodeRoom, due: float) -> None:
        """Those a reserved node is kept for must start by then, or do not press: who was kept out may get in now."""
        if due > room.kept_due:
            self._vacated[room] = None
        room.kept_due = due

    def release(self, room: NodeRoom) -> None:
        """Ends a reservation."""
        if room.kept_for is not None:
            room.kept_for = None
            self._kept.remove(room)
            self._vacated[room] = None

    @property
    def is_vacated(self) -> bool:
        """Whether some node may have more room than when `freshly_vacated` was last asked."""
        return bool(self._vacated)

    def freshly_vacated(self) -> list[NodeRoom]:
        """The nodes that may have more room than when this was last asked; from now on looks will find them."""
        if not self._vacated:
            return []
        fresh = list(self._vacated)
        self._vacated.clear()
        if len(self._log) > max(LOG_LEAST, 4 * len(self._rooms)):
            self._log.clear()
            self._epoch += 1
        self._log.extend(fresh)
        return fresh

    def begin_anew(self) -> None:
        """Nothing waits any more, so nobody is known to find no room."""
        for footprint in self._by_number.values():
            footprint.is_open, footprint.closed_at = True, None

    # ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, number: int, shape: Shape) -> None:
        """Makes a shape known by its number."""
        if not all(shape.needs.values()):  # what asks for none of something fits where there is none
            shape = msgspec.structs.replace(shape, needs={name: need for name, need in shape.needs.items() if need})
        self._shapes[number] = shape
        alike = msgspec.structs.replace(
            shape, tier="", concurrency=(), rates=(), preemptible=False, frozen_only=False, checkpoints=False, hold=()
        )
        name = _encode(alike)
        footprint = self._prints.get(name)
        if footprint is None:
            self._numbered += 1
            footprint = self._prints[name] = self._by_number[self._numbered] = Footprint(self._numbered, alike)
        self._print_of[number] = footprint

    def knows(self, number: int) -> bool:
        """Whether a shape's number is known."""
        return number in self._shapes

    def known(self, number: int) -> Shape | None:
        """A shape, if it is known."""
        return self._shapes.get(number)

    def shape(self, number: int) -> Shape:
        """A known shape."""
        return self._shapes[number]

    def standing(self, number: int) -> int:
        """The number of the shape that tasks of a shape have while they stand still: of what they ask, what stays."""
        shape = self._shapes[number]
        still = msgspec.structs.replace(shape, needs=kept(shape.needs), preemptible=False)
        found, _ = number_of(still)
        if found not in self._shapes:
            self.learn(found, still)
        return found

    def footprint(self, number: int) -> Footprint:
        """What a known shape asks of a node."""
        return self._print_of[number]

    def by_number(self, number: int) -> Footprint:
        """A footprint by its own number."""
        return self._by_number[number]

    def forget_shapes(self, but: set[int]) -> list[Footprint]:
        """Drops the shapes that nothing waits or runs in; answers the footprints that went with them."""
        for number in self._shapes.keys() - but:
            del self._shapes[number]
            del self._print_of[number]
        used = {footprint.number for footprint in self._print_of.values()}
        gone = [footprint for number, footprint in self._by_number.items() if number not in used]
        if gone:
            self._prints = {name: footprint for name, footprint in self._prints.items() if footprint.number in used}
            self._by_number = {footprint.number: footprint for footprint in self._prints.values()}
        return gone

    # ── room ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def candidates(self, number: int) -> list[NodeRoom]:
        """The nodes that could run a shape were they idle."""
        rooms = self._candidates(self._print_of[number])
        return [room for room in rooms if not room.is_gone] if self._gone else rooms

    def some_candidates(self, number: int) -> list[NodeRoom]:
        """A bounded part of the candidates: those that were looked at last, and the heaviest."""
        footprint = self._print_of[number]
        rooms = self._candidates(footprint)
        at = footprint.rooms.cursor if 0 < footprint.rooms.cursor <= len(rooms) else len(rooms)
        return [room for room in rooms[max(at - LOOK_AT, 0) : at] if not room.is_gone]

    def best(self, footprint: Footprint, cap_ms: int, now: float, *, due: float) -> NodeRoom | None:
        """A node where a task would start at once: of some with room, the one where it sits best."""
        if self._kept and (kept := self._kept_room(footprint, cap_ms, now, due)) is not None:
            return kept
        shape, search = footprint.shape, footprint.rooms
        while True:
            found = search.found
            while found:
                room = found[-1]
                if room.kept_for is None and room.has_room(shape):
                    return room
                found.pop()
            if not self._look(footprint, search):
                return None

    def placed_apart(self, footprint: Footprint) -> None:
        """Of a spread: the next one goes to another node, while there is one."""
        footprint.rooms.has_layer = True
        if footprint.rooms.found:
            footprint.rooms.found.pop()

    def has_windows(self, footprint: Footprint) -> bool:
        """Whether there ever was a node with a window for such tasks."""
        return footprint.shape.kind in self._windowed_kinds

    def windowed(self, footprint: Footprint) -> list[NodeRoom]:
        """Some nodes that would hold more of a footprint for the moment room comes up. Kept ones would not."""
        search, shape = footprint.windows, footprint.shape
        if not self.has_windows(footprint):
            return []
        search.found = [room for room in search.found if room.kept_for is None and room.window_left(shape)]
        if not search.found:
            self._look(footprint, search)
        return list(search.found)

    def is_kept_from(self, footprint: Footprint) -> bool:
        """Whether some node has room for it that is kept for others: a shorter cap may yet be let in."""
        return any(room.has_room(footprint.shape) and room.could_run(footprint.shape) for room in self._kept)

    def is_kept_still(self, room: NodeRoom) -> bool:
        """Whether those a node is kept for have no room yet, there or elsewhere. Once they have, it is only their turn
        that is awaited: the next round ends the reservation, whether they start or something else stops them."""
        if room.kept_for is None:
            return False
        keeper = self._by_number[room.kept_for]
        return not keeper.is_open and not any(
            (one.has_room(keeper.shape) or (one.kept_for is None and one.window_left(keeper.shape)))
            and one.could_run(keeper.shape)
            for one in (room, *islice(self._vacated, NEWS_MAX))
        )

    def _kept_room(self, footprint: Footprint, cap_ms: int, now: float, due: float) -> NodeRoom | None:
        shape = footprint.shape
        for room in self._kept:
            if room.has_room(shape) and room.lets_in(footprint.number, cap_ms, now, due) and room.could_run(shape):
                return room
        return None

    def _look(self, footprint: Footprint, search: Search) -> bool:
        """Looks for some more nodes: those never looked at, and those vacated since; True when there were any."""
        if search.epoch != self._epoch:
            search.epoch, search.cursor, search.seen = self._epoch, 0, len(self._log)
            search.found.clear()
        shape, found = footprint.shape, search.found
        if shape.spread is not None:
            self._scan(footprint, search)
        self._read_log(footprint, search)
        if len(found) < LOOK_AT and shape.spread is None:
            self._scan(footprint, search)
        if not found and search.has_layer:
            search.has_layer, search.cursor = False, 0
            self._scan(footprint, search)
        if len(found) > 1:
            found.sort(key=lambda room: room.score(shape), reverse=True)
        return bool(found)

    def _read_log(self, footprint: Footprint, search: Search) -> None:
        log, at, found, rooms = self._log, search.seen, search.found, search is footprint.rooms
        shape = footprint.shape
        end = len(log)
        while at < end and len(found) < LOOK_AT:
            room = log[at]
            at += 1
            has_room = room.has_room(shape) if rooms else room.window_left(shape)
            if not has_room or room.kept_for is not None or room in found:
                continue
            if room.admits(shape) if rooms else room.could_run(shape):
                found.append(room)
        search.seen = at

    def _scan(self, footprint: Footprint, search: Search) -> None:
        """On through the candidates, each once."""
        if search.cursor < 0:
            return
        rooms, at, found, is_room = self._candidates(footprint), search.cursor, search.found, search is footprint.rooms
        shape = footprint.shape
        end = len(rooms)
        while at < end and len(found) < LOOK_AT:
            room = rooms[at]
            at += 1
            has_room = room.has_room(shape) if is_room else room.window_left(shape)
            if has_room and room.kept_for is None and room not in found:
                found.append(room)
        search.cursor = at if at < end else -1

    def _candidates(self, footprint: Footprint) -> list[NodeRoom]:
        rooms = footprint.candidates
        if rooms is None:
            shape = footprint.shape
            rooms = [room for room in self._rooms.values() if room.could_run(shape)]
            rooms.sort(key=lambda room: (*room.score(shape)[:1], *room.weight))
            footprint.candidates = rooms
        return rooms

    def _look_anew(self) -> None:
        """Many nodes went: whatever was known about where to look is put together again."""
        self._gone = 0
        self._epoch += 1
        self._log.clear()
        for footprint in self._by_number.values():
            footprint.candidates = None
