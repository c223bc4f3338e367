"""Which task starts next, and where: the planner of a pool.

Its rounds, in this order: what must start soon (urgent tasks, and those of any lane whose slack has shrunk to the
margin) within each tenant's urgent share; what schedules ask for; then everything by fair share, tiers by weight,
tenants equally, of a tenant what is due first; and off-peak work last, while the pool is under the peak line.

It decides in runs: as long as one line's turn lasts, its tasks are placed many at a time. A line that cannot go on is
parked with the reason, and comes back when that very reason is gone; so it hides nobody and costs nothing meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.core.lifecycle import Lane
from headway.core.limits import Blocker, Limits, quota_room
from headway.core.order import FOREVER, DeadlineOrder, FairOrder
from headway.core.peak import Peak, utilization
from headway.core.placement import NodeRoom, Nodes, Shape
from headway.core.policy import Policy
from headway.core.queue import Line, LineKey, ReadyTask
from headway.core.reservation import Reservation, Running, free_at
from headway.core.usage import Usage


class Placement(NamedTuple):
    """Tasks of one line that shall start on one node."""

    key: LineKey
    node: int
    tasks: list[ReadyTask]
    express: bool
    """Whether they count against the tenant's urgent share."""


class Planner:
    """The queue of a pool and every decision about it. Knows no clock: each call says what time it is."""

    def __init__(self, nodes: Nodes, policy: Policy, *, running_on: Callable[[int], Iterable[Running]]) -> None:
        self.nodes = nodes
        self.policy = policy
        self.limits = Limits()
        self.peak = Peak()
        self.reservation: Reservation | None = None
        self.placed = 0
        self._running_on = running_on
        self._lines: dict[LineKey, Line] = {}
        self._fresh: list[Line] = []
        self._held: set[int] = set()
        self._now = 0.0
        self._usage = Usage(policy)
        self._express = DeadlineOrder(self._lines)
        self._periodic = DeadlineOrder(self._lines)
        self._fair = FairOrder(self._lines, tier_score=self._tier_score, tenant_score=self._tenant_score)
        self._offpeak = FairOrder(self._lines, tier_score=self._tier_score, tenant_score=self._tenant_score)
        self._pressing: list[tuple[float, LineKey]] = []
        self._over_budget: dict[int, set[LineKey]] = {}
        self._parked: dict[Blocker, set[LineKey]] = {}

    # ── what there is to decide about ─────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, task: int) -> bool:
        return task in self._held

    def line(self, key: LineKey) -> Line | None:
        """A line that holds something."""
        return self._lines.get(key)

    def lines(self) -> Iterable[Line]:
        """Every line that holds something."""
        return self._lines.values()

    def fresh_lines(self) -> list[Line]:
        """The lines that appeared since this was last asked."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def offer(self, key: LineKey, tasks: Iterable[ReadyTask]) -> int:
        """Takes ready tasks in; those already held change nothing. Answers how many were new."""
        line = self._lines.get(key)
        if line is None:
            line = Line(key)
        head, known = line.first if line else None, len(line)
        for task in tasks:
            if task.id not in self._held:
                self._held.add(task.id)
                line.add(task)
        if line and known == 0:
            self._lines[key] = line
            self._fresh.append(line)
        if line and line.first != head:
            self._try_again(line)
            self._enter(line)
        return len(line) - known

    def _try_again(self, line: Line) -> None:
        """A line that waits for room has a new head, which may be short enough to go where a node is being kept."""
        if line.parked is not None and line.parked.code == "room" and self.reservation is not None:
            self._parked[line.parked].discard(line.key)
            line.parked = None

    def drop(self, ids: Iterable[int]) -> None:
        """Forgets tasks that were cancelled or paused."""
        gone = frozenset(ids) & self._held
        self._held -= gone
        for line in list(self._lines.values()) if gone else ():
            head = line.first
            line.drop(gone)
            if not line:
                self._forget(line)
            elif line.first != head:
                self._enter(line)

    def clear(self) -> None:
        """Forgets everything that waits and runs; the past of the accounts stays."""
        self.__init__(self.nodes, self.policy, running_on=self._running_on)

    # ── what happens around it ────────────────────────────────────────────────────────────────────────────────────

    def set_policy(self, policy: Policy) -> None:
        """The operators decided something."""
        self.policy = policy
        self._usage.heed(policy)
        if self.reservation is not None:  # who is paused now keeps no node; who is not has it again in a second
            self._release_reservation()
        self._unpark(list(self._parked))

    def join(self, room: NodeRoom, now: float) -> None:
        """A node offers its room."""
        self.nodes.join(room)
        self._resized(now)

    def leave(self, node: int, now: float) -> None:
        """A node is gone, and what it ran with it (see `ended`)."""
        self.nodes.leave(node)
        if self.reservation is not None and self.reservation.node == node:
            self.reservation = None
        self._resized(now)

    def resize_window(self, node: int, windows: dict[str, int]) -> None:
        """A node will hold more or less beyond what fits."""
        room = self.nodes.get(node)
        if room is not None:
            room.windows = windows
            self._room_on(node)

    def adopt(self, node: int, key: LineKey, count: int, now: float) -> None:
        """A node brought running tasks along."""
        self._occupy(node, key, count, now, express=False)

    def ended(self, node: int, key: LineKey, count: int, now: float, *, express: bool) -> None:
        """Tasks on a node ended, or never began: their room and their limits are free again."""
        if not self.nodes.knows(key.shape):
            return
        shape = self.nodes.shape(key.shape)
        self.nodes.vacate(node, key.shape, count)
        self._usage.vacate(key.tenant, shape, count, now, express=express)
        if express:
            self._restore_budget(key.tenant)
        for order in (self._fair, self._offpeak):
            order.changed(shape.tier, key.tenant)
        self._unpark(self.limits.give(key.tenant, shape.concurrency, count))
        self._unpark([Blocker("quota", key.tenant)])
        self._room_on(node)

    # ── the round ─────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, now: float, *, most: int) -> list[Placement]:
        """Takes up to `most` tasks out of the queue, and books room and limits for them."""
        self._now = now
        self._unpark(self.limits.opened(now))
        if self.policy.paused:
            return []
        placed: list[Placement] = []
        self._press(now)
        most -= self._plan_express(now, most, placed)
        most -= self._plan_deadlines(now, most, placed)
        most -= self._plan_fair(self._fair, now, most, placed)
        self._observe_peak()
        self._plan_offpeak(now, most, placed)
        self._reserve(now)
        return placed

    def _press(self, now: float) -> None:
        """Lines whose head's slack has shrunk to the margin go to the express order."""
        while self._pressing and self._pressing[0][0] <= now:
            _, key = heapq.heappop(self._pressing)
            line = self._lines.get(key)
            if line and not line.parked and self._is_pressing(line.first, now):
                self._express.add(line)

    def _is_pressing(self, task: ReadyTask, now: float) -> bool:
        return task.start_by - now <= self.policy.promotion_margin_seconds

    def _plan_express(self, now: float, most: int, placed: list[Placement]) -> int:
        count = 0
        while count < most and (line := self._express.next()) is not None:
            tenant = line.key.tenant
            if self._over_urgent_share(tenant):
                self._over_budget.setdefault(tenant, set()).add(line.key)
                continue
            until = self._express.until()
            if line.key.lane != Lane.URGENT:
                if not self._is_pressing(line.first, now):
                    heapq.heappush(self._pressing, (self._presses_at(line), line.key))
                    continue
                until = min(until, now + self.policy.promotion_margin_seconds)
            wanted = min(line.run_until(until, most - count), self._urgent_room(line))
            count += self._place(line, wanted, now, placed, express=True)
            self._after(line, express=True)
        return count

    def _plan_deadlines(self, now: float, most: int, placed: list[Placement]) -> int:
        count = 0
        while count < most and (line := self._periodic.next()) is not None:
            wanted = line.run_until(self._periodic.until(), most - count)
            count += self._place(line, wanted, now, placed)
            self._after(line)
        return count

    def _plan_fair(self, order: FairOrder, now: float, most: int, placed: list[Placement]) -> int:
        count = 0
        while count < most and (turn := order.next()) is not None:
            tier, line, until = turn
            wanted = line.run_until(until, min(most - count, self._turn_length(order, tier, line)))
            got = self._place(line, wanted, now, placed)
            count += got
            self._after(line)
            order.put_back(tier, line.key.tenant)
        return count

    def _plan_offpeak(self, now: float, most: int, placed: list[Placement]) -> None:
        """Off-peak work starts while the pool is under the line, one run at a time: each moves the utilization."""
        while most > 0 and not self.peak.is_peak and (turn := self._offpeak.next()) is not None:
            tier, line, until = turn
            room = self._below_peak(self.nodes.shape(line.key.shape)) if self.nodes.knows(line.key.shape) else 1
            wanted = line.run_until(until, min(most, room, self._turn_length(self._offpeak, tier, line)))
            most -= self._place(line, wanted, now, placed)
            self._after(line)
            self._offpeak.put_back(tier, line.key.tenant)
            self._observe_peak()

    def _below_peak(self, shape: Shape) -> int:
        """How many more of a shape keep the pool under the peak line; the one that reaches it may still start."""
        part = self._usage.part(shape)
        return max(int((self.policy.peak_line - self.peak.utilization) / part + 1e-9), 1) if part > 0 else 1 << 30

    def _turn_length(self, order: FairOrder, tier: str, line: Line) -> int:
        """How many tasks a tenant may start until it is somebody else's turn; at least one."""
        if not self.nodes.knows(line.key.shape):
            return 1
        part = self._usage.part(self.nodes.shape(line.key.shape))
        if part <= 0:
            return 1 << 30
        ahead = order.ahead(tier) - self._tenant_score(tier, line.key.tenant)
        for other in order.tiers_waiting(tier):
            apart = (self._tier_score(other) - self._tier_score(tier)) * self.policy.weight(tier)
            ahead = min(ahead, apart)
        return 1 << 30 if ahead == FOREVER else max(int(ahead / part) + 1, self._quantum(order, tier, line))

    def _quantum(self, order: FairOrder, tier: str, line: Line) -> int:
        """The least a turn is worth: of what goes into windows, a quarter of everybody's equal part. Windows hold some
        50 ms of work, so nobody notices, and a turn is decided for many at once."""
        shape = self.nodes.shape(line.key.shape)
        rooms = self.nodes.some_candidates(line.key.shape)
        held_ahead = sum(room.window_left(shape) for room in rooms)
        return max(held_ahead // (4 * (order.tenants_waiting(tier) + 1)), 1)

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, line: Line, wanted: int, now: float, placed: list[Placement], *, express: bool = False) -> int:
        """Places up to `wanted` tasks from the front of a line; parks the line when it cannot go on."""
        key = line.key
        if not self.nodes.knows(key.shape):
            self._park(line, Blocker("unknown", key.shape))
            return 0
        shape = self.nodes.shape(key.shape)
        allowed, blocker = self._allowed(key, shape, wanted, now)
        got = 0
        for room, count in self._shares_of(key.shape, shape, line.first.cap_ms, allowed, now) if allowed else ():
            tasks = line.take(count)
            self._held.difference_update([task.id for task in tasks])
            self._occupy(room.node, key, count, now, express=express)
            if shape.rates:
                self.limits.take(key.tenant, (), shape.rates, count, now)
            placed.append(Placement(key, room.node, tasks, express))
            got += count
        self.placed += got
        if got < allowed:
            self._park(line, Blocker("room", key.shape))
        elif allowed < wanted and blocker is not None:
            self._park(line, blocker)
        if got and self.reservation is not None and self.reservation.key == key:
            self._release_reservation()
        return got

    def _allowed(self, key: LineKey, shape: Shape, wanted: int, now: float) -> tuple[int, Blocker | None]:
        if key.tenant in self.policy.paused_tenants:
            return 0, Blocker("tenant_paused", key.tenant)
        if shape.hold and (name := self.paused_name(key)) is not None:
            return 0, Blocker("name_paused", (key.tenant, name))
        allowed = quota_room(self.policy, key.tenant, self._usage.held(key.tenant), shape.needs, wanted)
        blocker = Blocker("quota", key.tenant) if allowed < wanted else None
        if shape.concurrency or shape.rates:
            fewer, by = self.limits.room(key.tenant, shape.concurrency, shape.rates, allowed, now)
            if fewer < allowed:
                return fewer, by
        return allowed, blocker

    def paused_name(self, key: LineKey) -> str | None:
        """The paused name that holds a line, if one does."""
        hold = self.nodes.shape(key.shape).hold if self.nodes.knows(key.shape) else ()
        return next((name for name in hold if (key.tenant, name) in self.policy.paused_names), None)

    def _shares_of(self, number: int, shape: Shape, cap_ms: int, wanted: int, now: float) -> list[tuple[NodeRoom, int]]:
        """How many each node gets: first where they start at once, best fit first; then the windows in equal parts."""
        shares: dict[int, tuple[NodeRoom, int]] = {}
        left = wanted
        one_each = shape.spread is not None
        for room in self.nodes.with_room(number, cap_ms, now):
            if left == 0:
                break
            count = room.fitting(shape, 1 if one_each else left)
            shares[room.node] = (room, count)
            left -= count
        rooms = self.nodes.some_candidates(number) if left else []
        for index, room in enumerate(rooms):
            if left == 0:
                break
            even = -(-left // (len(rooms) - index))
            count = min(room.window_left(shape), even) if room.lets_in(number, cap_ms, now) else 0
            if count:
                _, already = shares.get(room.node, (room, 0))
                shares[room.node] = (room, already + count)
                left -= count
        return list(shares.values())

    def _occupy(self, node: int, key: LineKey, count: int, now: float, *, express: bool) -> None:
        shape = self.nodes.shape(key.shape)
        self.nodes.occupy(node, key.shape, count)
        self._usage.occupy(key.tenant, shape, count, now, express=express)
        if shape.concurrency:
            self.limits.take(key.tenant, shape.concurrency, (), count, now)

    def _after(self, line: Line, *, express: bool = False) -> None:
        """A line that still takes part gets a turn for its new head; an empty one is forgotten."""
        if not line:
            self._forget(line)
        elif not line.parked:
            self._enter(line, again_express=express)

    # ── turns, parking, budgets ───────────────────────────────────────────────────────────────────────────────────

    def _enter(self, line: Line, *, again_express: bool = False) -> None:
        if line.parked:
            return
        lane = line.key.lane
        if lane == Lane.URGENT or (again_express and self._is_pressing(line.first, self._now)):
            self._express.add(line)
        else:
            heapq.heappush(self._pressing, (self._presses_at(line), line.key))
        if lane == Lane.PERIODIC:
            self._periodic.add(line)
        order = self._offpeak if lane == Lane.OFFPEAK else self._fair
        order.add(self._tier_of(line.key), line)

    def _presses_at(self, line: Line) -> float:
        return line.first.start_by - self.policy.promotion_margin_seconds

    def _forget(self, line: Line) -> None:
        self._lines.pop(line.key, None)
        if line.parked is not None:
            self._parked.get(line.parked, set()).discard(line.key)
        if self.reservation is not None and self.reservation.key == line.key:
            self._release_reservation()

    def _park(self, line: Line, blocker: Blocker) -> None:
        if not line:
            return
        line.parked, line.parked_at, line.placed_then = blocker, self._now, self.placed
        self._parked.setdefault(blocker, set()).add(line.key)

    def _unpark(self, blockers: Iterable[Blocker]) -> None:
        for blocker in blockers:
            for key in self._parked.pop(blocker, ()):
                line = self._lines.get(key)
                if line is not None and line.parked == blocker:
                    line.parked = None
                    self._enter(line)

    def learned(self, number: int) -> None:
        """A shape that lines wait for is known now."""
        waiting = self._parked.get(Blocker("unknown", number))
        if waiting:
            self._unpark([Blocker("unknown", number)])

    def tidy(self, running: set[int], now: float) -> None:
        """Drops what is known of shapes that nothing waits or runs in, and of accounts that are long idle."""
        self._usage.forget_idle(now)
        self.nodes.forget_shapes(running | {key.shape for key in self._lines})

    def _room_on(self, node: int) -> None:
        """A node has room: whoever waits for room that it could give takes part again."""
        room = self.nodes.get(node)
        if room is None:
            return
        opened: list[Blocker] = []
        for blocker in self._parked:
            if blocker.code == "room" and isinstance(blocker.what, int):
                shape = self.nodes.shape(blocker.what)
                if (room.fitting(shape, 1) or room.window_left(shape)) and room.could_run(shape):
                    opened.append(blocker)
        self._unpark(opened)

    def _resized(self, now: float) -> None:
        self._usage.resize(self.nodes.capacity, now)
        self._unpark([blocker for blocker in self._parked if blocker.code == "room"])

    def _observe_peak(self) -> None:
        used = utilization(self.nodes.free, self.nodes.capacity)
        self.peak.observe(used, line=self.policy.peak_line, hysteresis=self.policy.peak_hysteresis)

    def _over_urgent_share(self, tenant: int) -> bool:
        return self._usage.urgent_share(tenant) >= self.policy.plan(tenant).urgent_share - 1e-9

    def _urgent_room(self, line: Line) -> int:
        """How many more fit into the tenant's urgent share; one more than that may begin it."""
        if not self.nodes.knows(line.key.shape):
            return 1
        part = self._usage.part(self.nodes.shape(line.key.shape))
        left = self.policy.plan(line.key.tenant).urgent_share - self._usage.urgent_share(line.key.tenant)
        return 1 << 30 if part <= 0 else max(int(left / part + 1e-9), 1)

    def _restore_budget(self, tenant: int) -> None:
        if tenant in self._over_budget and not self._over_urgent_share(tenant):
            for key in self._over_budget.pop(tenant):
                line = self._lines.get(key)
                if line is not None and not line.parked:
                    self._express.add(line)

    def _tier_of(self, key: LineKey) -> str:
        return self.nodes.shape(key.shape).tier if self.nodes.knows(key.shape) else ""

    def _tier_score(self, tier: str) -> float:
        history = self.policy.history_weight
        return self._usage.tier_score(tier, self._now, history_weight=history) / self.policy.weight(tier)

    def _tenant_score(self, tier: str, tenant: int) -> float:
        return self._usage.tenant_score(tier, tenant, self._now, history_weight=self.policy.history_weight)

    # ── wide tasks ────────────────────────────────────────────────────────────────────────────────────────────────

    def _reserve(self, now: float) -> None:
        """Keeps a node for the line that others have been passing for a while: only who is gone by the time the node is
        free may still go there. One at a time: the line whose head is due first."""
        if self.reservation is not None:
            return
        line = min(self._passed_over(now), key=lambda line: line.first, default=None)
        if line is None:
            return
        shape = self.nodes.shape(line.key.shape)
        rooms = self.nodes.some_candidates(line.key.shape)
        times = [(free_at(self.nodes, room, shape, self._running_on(room.node), now), room.node) for room in rooms]
        starts_by, node = min(times, default=(FOREVER, 0))
        room = self.nodes.get(node)
        if room is not None and starts_by < FOREVER:
            room.kept_for, room.kept_from = line.key.shape, starts_by
            self.reservation = Reservation(line.key, node, starts_by)

    def _passed_over(self, now: float) -> list[Line]:
        return [
            line
            for blocker, keys in self._parked.items()
            if blocker.code == "room"
            for key in keys
            if (line := self._lines.get(key)) is not None
            and now - line.parked_at >= self.policy.reserve_after_seconds
            and self.placed > line.placed_then
            and self.nodes.knows(key.shape)
        ]

    def _release_reservation(self) -> None:
        assert self.reservation is not None
        room = self.nodes.get(self.reservation.node)
        if room is not None:
            room.kept_for = None
        self.reservation = None
