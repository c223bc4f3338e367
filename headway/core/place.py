"""One run: as many tasks of a line as may start now, onto nodes.

What stops a run is said where it stops: a limit parks the line with the reason; lack of room closes its footprint, and
everybody in it is passed over until a node is vacated.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.limits import Blocker, Limits, quota_room
from headway.core.nodes import Footprint, Nodes
from headway.core.order import FOREVER
from headway.core.parking import Parking
from headway.core.placement import NodeRoom, Shape
from headway.core.policy import Policy
from headway.core.queue import Line, LineKey, ReadyTask
from headway.core.reservation import Reservations
from headway.core.resources import fits
from headway.core.usage import Usage


class Placement(NamedTuple):
    """Tasks of one line that shall start on one node."""

    key: LineKey
    node: int
    tasks: list[ReadyTask]
    express: bool
    """Whether they count against the tenant's urgent share."""


class Placing:
    """Moves tasks from the front of lines onto nodes, and books what they take."""

    def __init__(
        self, *, nodes: Nodes, usage: Usage, limits: Limits, parking: Parking, reservations: Reservations,
        held: dict[int, Line], policy: Policy,
    ) -> None:  # fmt: skip
        self.policy = policy
        self.closed: dict[int, Footprint] = {}
        """The footprints that found no room, by number."""
        self.served: dict[tuple[str, int], tuple[Line, float]] = {}
        """Of each tenant in a tier that was served while others found no room: a line, and the latest it had due."""
        self._nodes = nodes
        self._usage = usage
        self._limits = limits
        self._parking = parking
        self._reservations = reservations
        self._held = held
        self._kept_out: set[Blocker] = set()

    def place(self, line: Line, wanted: int, now: float, placed: list[Placement], *, express: bool = False) -> int:
        """Places up to `wanted` tasks from the front of a line; says what stops it when it cannot go on."""
        key, shape, footprint = line.key, line.shape, line.footprint
        allowed, blocker = self._allowed(key, shape, wanted, now)
        got = 0
        while got < allowed:
            first = line.first
            room = self._nodes.best(footprint, first.cap_ms, now, due=first.start_by if express else FOREVER)
            if room is None:
                break
            left = allowed - got if shape.spread is None and room.kept_for is None else 1  # each cap is looked at
            count = room.fitting(footprint.shape, left) if left > 1 else 1
            is_own = room.kept_for == footprint.number
            self._start(line, room, count, now, placed, express=express)
            if is_own:
                self._reservations.end(footprint)
                if self._kept_out and not express:  # the node is nobody's now: who was kept out may be next
                    wanted = allowed = got + count
            if shape.spread is not None:
                self._nodes.placed_apart(footprint)
            got += count
        if got < allowed:
            got += self._fill_windows(line, allowed - got, now, placed, express=express)
        if got < allowed:
            self._found_no_room(line, now)
        elif allowed < wanted and blocker is not None:
            self._parking.park(line, blocker)
        if got:
            self._served(footprint, got, now)
        return got

    def _fill_windows(self, line: Line, wanted: int, now: float, placed: list[Placement], *, express: bool) -> int:
        """Gives nodes something to hold for the moment room comes up, each an equal part."""
        got = 0
        while got < wanted:
            rooms = self._nodes.windowed(line.footprint)
            if not rooms:
                break
            for index, room in enumerate(rooms):
                even = -(-(wanted - got) // (len(rooms) - index))
                count = min(room.window_left(line.shape), even)
                if count:
                    self._start(line, room, count, now, placed, express=express, beyond=count)
                    got += count
        return got

    def _start(
        self, line: Line, room: NodeRoom, count: int, now: float, placed: list[Placement], *, express: bool,
        beyond: int = 0,
    ) -> None:  # fmt: skip
        key, shape = line.key, line.shape
        tasks = line.take(count)
        for task in tasks:
            del self._held[task.id]
        if self.closed:
            self._note_served(line, tasks[-1].start_by)
        self._nodes.book(room, shape, count, beyond=beyond)
        self._usage.charge(line.use, line.tier_use, shape, count, now)
        if express:
            self._usage.charge_urgent(key.tenant, shape, count, now)
        if shape.concurrency or shape.rates:
            self._limits.take(key.tenant, shape.concurrency, shape.rates, count, now)
        placed.append(Placement(key, room.node, tasks, express))

    def _note_served(self, line: Line, due: float) -> None:
        account = (line.tier, line.key.tenant)
        before = self.served.get(account)
        self.served[account] = (line, due if before is None else max(due, before[1]))

    def _allowed(self, key: LineKey, shape: Shape, wanted: int, now: float) -> tuple[int, Blocker | None]:
        policy = self.policy
        if key.tenant in policy.paused_tenants:
            return 0, Blocker("tenant_paused", key.tenant)
        if shape.hold and (name := self.paused_name(key)) is not None:
            return 0, Blocker("name_paused", (key.tenant, name))
        allowed, blocker = wanted, None
        if quota := policy.plan(key.tenant).quota:
            allowed = quota_room(quota, self._usage.in_all(key.tenant), shape.needs, wanted)
            blocker = Blocker("quota", key.tenant) if allowed < wanted else None
        if shape.concurrency or shape.rates:
            fewer, by = self._limits.room(key.tenant, shape.concurrency, shape.rates, allowed, now)
            if fewer < allowed:
                return fewer, by
        return allowed, blocker

    def may_start(self, line: Line, now: float) -> bool:
        """Whether only room is what a line waits for."""
        return self._allowed(line.key, line.shape, 1, now)[0] > 0

    def paused_name(self, key: LineKey) -> str | None:
        """The paused name that holds a line, if one does."""
        hold = self._nodes.shape(key.shape).hold if self._nodes.knows(key.shape) else ()
        return next((name for name in hold if (key.tenant, name) in self.policy.paused_names), None)

    def _found_no_room(self, line: Line, now: float) -> None:
        """Its footprint is closed; unless a node has room that is kept, where a shorter cap may yet be let in."""
        if self._nodes.is_kept_from(line.footprint):
            kept = Blocker("kept", line.footprint.number)
            self._kept_out.add(kept)
            self._parking.park(line, kept)
        else:
            self._close(line.footprint, now)

    def _close(self, footprint: Footprint, now: float) -> None:
        footprint.is_open = False
        if footprint.closed_at is None:
            footprint.closed_at = now
        self.closed[footprint.number] = footprint

    def _served(self, footprint: Footprint, count: int, now: float) -> None:
        if footprint.is_open:
            footprint.closed_at = footprint.passed_since = None
        else:
            footprint.closed_at = now

    def reopened(self, fresh: list[NodeRoom]) -> tuple[list[Footprint], list[Line]]:
        """What may go on now that these nodes were vacated: footprints that one of them could take, and lines for which
        room was kept back."""
        back = self._parking.release(self._kept_out) if self._kept_out else []
        self._kept_out.clear()
        return self._openable(fresh) if self.closed else [], back

    def _openable(self, fresh: list[NodeRoom]) -> list[Footprint]:
        most: dict[str, int] = {}
        for room in fresh:
            for name, amount in room.free.items():
                if amount > most.get(name, 0):
                    most[name] = amount
        opened = [one for one in self.closed.values() if fits(one.shape.needs, most) or self._has_window(one, fresh)]
        for footprint in opened:
            footprint.is_open = True
            del self.closed[footprint.number]
        return opened

    def _has_window(self, footprint: Footprint, fresh: list[NodeRoom]) -> bool:
        return self._nodes.has_windows(footprint) and any(room.window_left(footprint.shape) for room in fresh)
