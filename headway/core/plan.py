"""Which task starts next, and where: the planner of a pool.

Its rounds, in this order: what must start soon (urgent tasks, and those of any lane whose slack has shrunk to the
margin) within each tenant's urgent share; what schedules ask for; then everything by fair share, tiers by weight,
tenants equally, of a tenant what is due first; and off-peak work last, while the pool is under the peak line.

What waits for room waits by footprint, which is closed until a node is vacated; what waits for a limit is parked with
the reason and comes back when that very reason is gone. So nothing hides anything else, and waiting costs nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count

from headway.core.budget import UrgentBudget
from headway.core.deferral import OFFPEAK, Deferral
from headway.core.keeping import Keeping
from headway.core.lifecycle import Lane
from headway.core.limits import Blocker, Limits
from headway.core.nodes import Footprint, Nodes
from headway.core.order import FOREVER, DeadlineOrder, FairOrder, FairTurn
from headway.core.parking import Parking
from headway.core.place import Placement, Placing
from headway.core.placement import NodeRoom
from headway.core.policy import Policy
from headway.core.queue import Line, LineKey, ReadyTask
from headway.core.reservation import Reservations, Running
from headway.core.usage import Usage

REFRESHES = 32
"""How often in a half-life the order of tenants is put right for the time that passed."""


class Planner:
    """The queue of a pool and every decision about it. Knows no clock: each call says what time it is."""

    def __init__(self, nodes: Nodes, policy: Policy, *, running_on: Callable[[int], Iterable[Running]]) -> None:
        self.nodes = nodes
        self.policy = policy
        self.limits = Limits()
        self.deferral = Deferral(nodes, policy, is_full=self._is_full)
        self.peak = self.deferral.peak
        self.reservations = Reservations(nodes, running_on)
        self._running_on = running_on
        self._lines: dict[LineKey, Line] = {}
        self._fresh: list[Line] = []
        self._held: dict[int, Line] = {}
        self._now = 0.0
        self._usage = Usage(policy)
        self._express = DeadlineOrder()
        self._periodic = DeadlineOrder()
        self._fair = FairOrder(self._usage.score)
        self._offpeak = FairOrder(self._usage.score, self.deferral.puts_off)
        self._orders = (self._express, self._periodic, self._fair, self._offpeak)
        self._pressing: list[tuple[float, LineKey]] = []
        self.budget = UrgentBudget(self._usage, policy)
        self._parking = Parking()
        self._placing = Placing(
            nodes=nodes, usage=self._usage, limits=self.limits, parking=self._parking, reservations=self.reservations,
            held=self._held, policy=policy,
        )  # fmt: skip
        self._keeping = Keeping(
            nodes=nodes, orders=self._orders, placing=self._placing, reservations=self.reservations, budget=self.budget,
            puts_off=self.deferral.puts_off, score=self._usage.score, due=self.pressing_due,
        )  # fmt: skip
        self._gave_back: set[tuple[str, int]] = set()
        self._refreshes_at = 0.0
        self._serials = count()

    # ── what there is to decide about ─────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._held)

    def paused_name(self, key: LineKey) -> str | None:
        """The paused name that holds a line, if one does."""
        return self._placing.paused_name(key)

    def __contains__(self, task: int) -> bool:
        return task in self._held

    def line(self, key: LineKey) -> Line | None:
        """A line that holds something."""
        return self._lines.get(key)

    def lines(self) -> Iterable[Line]:
        """Every line that holds something."""
        return self._lines.values()

    @property
    def usage(self) -> Usage:
        """Who holds what; to be read."""
        return self._usage

    def fresh_lines(self) -> list[Line]:
        """The lines that appeared since this was last asked."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def blocker(self, line: Line) -> Blocker | None:
        """What a line waits for; None when only for its turn."""
        if line.parked is not None or not line.is_known or line.footprint.is_open:
            return line.parked
        return Blocker("room", line.key.shape)

    def offer(self, key: LineKey, tasks: Iterable[ReadyTask]) -> int:
        """Takes ready tasks in; those already held change nothing. Answers how many were new."""
        held, line = self._held, self._lines.get(key)
        if line is None:
            line = Line(key, next(self._serials))
        head, known = line.first if line else None, len(line)
        for task in tasks:
            if task.id not in held:
                held[task.id] = line
                line.add(task)
        if line and known == 0:
            self._lines[key] = line
            self._fresh.append(line)
            self._learn(line)
            if key.lane == OFFPEAK:
                self.deferral.offered(line)
        if line and line.first != head:
            self._let_try(line)
            self._enter(line)
        return len(line) - known

    def _let_try(self, line: Line) -> None:
        """A line for which room is kept back has a new head, which may be short enough to go there."""
        if line.parked is not None and line.parked.code == "kept":
            self._parking.leave(line)

    def drop(self, ids: Iterable[int]) -> None:
        """Forgets tasks that were cancelled or paused."""
        gone: dict[LineKey, tuple[Line, set[int]]] = {}
        for task in ids:
            line = self._held.pop(task, None)
            if line is not None:
                gone.setdefault(line.key, (line, set()))[1].add(task)
        for line, tasks in gone.values():
            head = line.first
            line.drop(tasks)
            if not line:
                self._forget(line)
            elif line.first != head:
                self._enter(line)

    def clear(self) -> None:
        """Forgets everything that waits and runs."""
        self.nodes.begin_anew()
        behind = self.deferral.behind
        self.__init__(self.nodes, self.policy, running_on=self._running_on)
        self.deferral.behind = behind

    # ── what happens around it ────────────────────────────────────────────────────────────────────────────────────

    def set_policy(self, policy: Policy) -> None:
        """The operators decided something."""
        self.policy = self._placing.policy = self.budget.policy = self.deferral.policy = policy
        self._usage.heed(policy)
        self.reservations.end_all()  # who is paused now keeps no node; who is not has one again in a second
        self._unpark(self._parking.blockers())
        self._go_ahead(self.budget.all_restored())
        for line in self._lines.values():  # the margin may be another
            line.presses_at = None
            self._appoint(line)

    def join(self, room: NodeRoom, now: float) -> None:
        """A node offers its room."""
        self.nodes.join(room)
        self._resized(now)

    def leave(self, node: int, now: float) -> None:
        """A node is gone, and what it ran with it (see `ended`)."""
        self.nodes.leave(node)
        self.reservations.left(node)
        self._resized(now)

    def _resized(self, now: float) -> None:
        """The same tasks are another part of the pool now, maybe a smaller one: turns and budgets come back by it."""
        self._usage.resize(self.nodes.capacity, now)
        self._refreshes_at = 0.0
        self._go_ahead(self.budget.all_restored())

    def close(self, node: int, now: float, *, closed: bool) -> None:
        """A node takes no more, or takes more again; what runs there goes on."""
        if self.nodes.close(node, closed=closed):
            if closed:
                self.reservations.left(node)
            self._usage.resize(self.nodes.capacity, now)

    def resize_window(self, node: int, windows: dict[str, int]) -> None:
        """A node will hold more or less beyond what fits."""
        self.nodes.resize_window(node, windows)

    def adopt(self, node: int, key: LineKey, count: int, now: float, *, express: bool) -> None:
        """A node brought running tasks along."""
        shape = self.nodes.shape(key.shape)
        self.nodes.occupy(node, key.shape, count)
        self._usage.occupy(key.tenant, shape, count, now, express=express)
        if key.lane == OFFPEAK:
            self.deferral.occupy(shape, count)
        if shape.concurrency:
            self.limits.take(key.tenant, shape.concurrency, (), count, now)

    def ended(self, node: int, key: LineKey, count: int, now: float, *, express: bool) -> None:
        """Tasks on a node ended, or never began: their room and their limits are free again."""
        tenant, number = key.tenant, key.shape
        shape = self.nodes.known(number)
        if shape is None:
            return
        self.nodes.vacate(node, number, count)
        self._usage.vacate(tenant, shape, count, now, express=express)
        self._gave_back.add((shape.tier, tenant))
        if express:
            self._go_ahead(self.budget.restored(tenant))
        if key.lane == OFFPEAK:
            self.deferral.vacate(shape, count)
        if shape.concurrency:
            freed = self.limits.give(tenant, shape.concurrency, count)
            if self._parking:
                self._unpark(freed)
        if self._parking:
            self._unpark((Blocker("quota", tenant),))

    def learned(self, number: int) -> None:
        """A shape that lines wait for is known now."""
        self._unpark([Blocker("unknown", number)])

    def tidy(self, running: set[int], now: float) -> None:
        """Drops what is known of shapes that nothing waits or runs in, and of accounts that are long idle."""
        self._usage.forget_idle(
            now, but={(line.tier, line.key.tenant) for line in self._lines.values() if line.is_known}
        )
        rated = ((line.key.tenant, line.shape.rates) for line in self._lines.values() if line.is_known)
        self.limits.tidy(rated, now)
        for footprint in self.nodes.forget_shapes(running | {key.shape for key in self._lines}):
            self._placing.closed.pop(footprint.number, None)
            self.reservations.end(footprint)
            for order in self._orders:
                order.forget(footprint)

    # ── the round ─────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, now: float, *, most: int) -> list[Placement]:
        """Takes up to `most` tasks out of the queue, and books room and limits for them."""
        self._now = now
        self._unpark(self.limits.opened(now))
        if self.policy.paused:
            return []
        self._settle(now)
        if len(self.reservations):
            self._keeping.rank(now)
        self._reopen()
        placed: list[Placement] = []
        most -= self._plan_all(now, most, placed)
        while most > 0 and self._ends_reservations():
            self._reopen()
            most -= self._plan_all(now, most, placed)
        self._keeping.look(now, self.policy)
        while most > 0 and self.nodes.is_vacated:  # something is kept no longer
            self._reopen()
            most -= self._plan_all(now, most, placed)
        return placed

    def _plan_all(self, now: float, most: int, placed: list[Placement]) -> int:
        """Every order once, the more pressing first."""
        left = most
        left -= self._plan_express(now, left, placed)
        left -= self._plan_periodic(now, left, placed)
        left -= self._plan_fair(self._fair, now, left, placed)
        self._observe_peak(now)
        left -= self._plan_offpeak(now, left, placed)
        return most - left

    def _ends_reservations(self) -> bool:
        """Whether a node is kept no longer: it was served, or those it was kept for had room and something else stops
        them. Then those who were kept out have their turn in the same round."""
        self.reservations.end_unwanted()
        return self.nodes.is_vacated

    def _reopen(self) -> None:
        """Whatever may go where a node was vacated since takes part again."""
        fresh = self.nodes.freshly_vacated()
        if fresh:
            opened, lines = self._placing.reopened(fresh)
            for order in self._orders if opened else ():
                for footprint in opened:
                    order.opened(footprint)
            for line in lines:
                self._enter(line)

    def _settle(self, now: float) -> None:
        """What events and time changed about whose turn it is."""
        self._press(now)
        orders = (self._fair, self._offpeak)
        self._usage.score.begin(now, self.policy.history_weight)
        if now >= self._refreshes_at:
            self._refreshes_at = now + self.policy.half_life_seconds / REFRESHES
            self._gave_back.clear()
            for order in orders:
                order.refresh()
        for tier, tenant in self._gave_back:
            for order in orders:
                order.changed(tier, tenant)
        self._gave_back.clear()

    def _press(self, now: float) -> None:
        """Lines whose head's slack has shrunk to the margin go to the express order."""
        while self._pressing and self._pressing[0][0] <= now:
            at, key = heapq.heappop(self._pressing)
            line = self._lines.get(key)
            if line is None or line.presses_at != at:
                continue
            line.presses_at = None
            if line.parked is not None:
                if line.parked.code == "kept":  # what presses may go where it was kept out
                    self._parking.leave(line)
                    self._enter(line)
                continue  # it comes back when what it waits for is gone
            if self._is_pressing(line.first, now):
                self._express.add(line)
            else:
                self._appoint(line)

    def pressing_due(self, key: LineKey, task: ReadyTask, now: float) -> float:
        """When a task that goes ahead of others must start; infinity when it takes its fair turn."""
        is_ahead = (key.lane == Lane.URGENT or self._is_pressing(task, now)) and not self.budget.is_used_up(key.tenant)
        return task.start_by if is_ahead else FOREVER

    def _is_pressing(self, task: ReadyTask, now: float) -> bool:
        return task.start_by - self.policy.promotion_margin_seconds <= now

    def _plan_express(self, now: float, most: int, placed: list[Placement]) -> int:
        count = 0
        while count < most and (line := self._express.next()) is not None:
            if self.budget.is_used_up(line.key.tenant):
                self.budget.set_aside(line.key)
                continue
            until = self._express.until()
            if line.key.lane != Lane.URGENT:
                if not self._is_pressing(line.first, now):
                    self._appoint(line)
                    continue
                until = min(until, now + self.policy.promotion_margin_seconds)
            wanted = min(line.run_until(until, most - count), self.budget.room(line))
            got = self._placing.place(line, wanted, now, placed, express=True)
            count += got
            if line.key.lane == OFFPEAK:
                self.deferral.started(line, got)
            self._after(line)
        return count

    def _plan_periodic(self, now: float, most: int, placed: list[Placement]) -> int:
        count = 0
        while count < most and (line := self._periodic.next()) is not None:
            wanted = line.run_until(self._periodic.until(), most - count)
            count += self._placing.place(line, wanted, now, placed)
            self._after(line)
        return count

    def _plan_fair(self, order: FairOrder, now: float, most: int, placed: list[Placement]) -> int:
        """In turns, until a node is kept no longer: then those who were kept out take part again, by `plan`."""
        order.begin(self.policy.weight)
        count = 0
        while count < most and not self.nodes.is_vacated and (turn := order.next()) is not None:
            wanted = turn[2].run_until(turn[3], min(most - count, self._turn_length(order, turn)))
            count += self._take_turn(order, turn, wanted, now, placed)
        return count

    def _plan_offpeak(self, now: float, most: int, placed: list[Placement]) -> int:
        """Off-peak work starts while what it needs is under the line, one run at a time: each moves the utilization."""
        order, count = self._offpeak, 0
        order.begin(self.policy.weight)
        while count < most and not self.nodes.is_vacated and (turn := order.next()) is not None:
            line = turn[2]
            room = max(self.deferral.room(line), 1)
            wanted = line.run_until(turn[3], min(most - count, room, self._turn_length(order, turn)))
            got = self._take_turn(order, turn, wanted, now, placed)
            count += got
            if self.deferral.started(line, got):
                order.heed_peak()
            self._observe_peak(now)
        return count

    def _take_turn(self, order: FairOrder, turn: FairTurn, wanted: int, now: float, placed: list[Placement]) -> int:
        line = turn[2]
        count = self._placing.place(line, wanted, now, placed)
        if line.due is not None:
            self._attend(line)
        elif not line:
            self._forget(line)
        order.put_back(turn)
        return count

    def _turn_length(self, order: FairOrder, turn: FairTurn) -> int:
        """How many tasks a tenant may start until it is somebody else's turn; at least one."""
        tier, group, line, _, ahead = turn
        behind = order.others_behind(tier)
        if behind < ahead:
            ahead = behind
        if ahead == FOREVER:
            return 1 << 30
        part = self._usage.part(line)
        if part <= 0:
            return 1 << 30
        length = int(ahead / part) + 1
        return max(length, self._quantum(line, len(group.tenants))) if line.footprint.windows.found else length

    def _quantum(self, line: Line, tenants: int) -> int:
        """The least a turn is worth: of what goes into windows, a quarter of everybody's equal part. Windows hold some
        50 ms of work, so nobody notices, and a turn is decided for many at once."""
        footprint = line.footprint
        held_ahead = sum(room.window_left(footprint.shape) for room in footprint.windows.found)
        return max(held_ahead // (4 * (tenants + 1)), 1)

    # ── turns and budgets ─────────────────────────────────────────────────────────────────────────────────────────

    def _after(self, line: Line) -> None:
        """A line that still takes part gets a turn for its new head; an empty one is forgotten."""
        if not line:
            self._forget(line)
        elif line.parked is None:
            self._enter(line)

    def _learn(self, line: Line) -> None:
        number = line.key.shape
        if self.nodes.knows(number):
            shape, now = self.nodes.shape(number), self._now
            use, tier_use = self._usage.of(shape.tier, line.key.tenant, now), self._usage.of_tier(shape.tier, now)
            line.learn(shape, self.nodes.footprint(number), use, tier_use)
            if shape.rates:
                self.limits.heed(line.key.tenant, shape.rates)
        else:
            self._parking.park(line, Blocker("unknown", number))

    def _enter(self, line: Line) -> None:
        if line.parked is not None:
            return
        self._attend(line)
        (self._offpeak if line.key.lane == Lane.OFFPEAK else self._fair).add(line)

    def _attend(self, line: Line) -> None:
        """Sees to the deadline of a new head."""
        lane, presses_at = line.key.lane, line.first.start_by - self.policy.promotion_margin_seconds
        if lane == Lane.URGENT or presses_at <= self._now:
            self._express.add(line)
        elif line.presses_at is None or presses_at < line.presses_at:
            self._appoint(line)
        if lane == Lane.PERIODIC:
            self._periodic.add(line)

    def _appoint(self, line: Line) -> None:
        """Makes sure that somebody looks when the head begins to press; once for each line."""
        at = line.first.start_by - self.policy.promotion_margin_seconds
        if line.key.lane != Lane.URGENT and (line.presses_at is None or at < line.presses_at):
            line.presses_at = at
            heapq.heappush(self._pressing, (at, line.key))

    def _forget(self, line: Line) -> None:
        self._lines.pop(line.key, None)
        if line.key.lane == OFFPEAK:
            self.deferral.forget(line)
        if line.parked is not None:
            self._parking.leave(line)
        if line.is_known and len(self.reservations) and not line.footprint.is_open:
            self._keeping.first_of(line.footprint)  # which ends what is kept for nobody

    def _unpark(self, blockers: Iterable[Blocker]) -> None:
        for line in self._parking.release(blockers):
            if not line.is_known:
                self._learn(line)
            self._enter(line)

    def _observe_peak(self, now: float) -> None:
        is_other = self.deferral.observe()
        if self.deferral.look(now) or is_other:
            self._offpeak.heed_peak()

    def _go_ahead(self, keys: Iterable[LineKey]) -> None:
        """There is something left of the urgent share that these waited for."""
        for key in keys:
            line = self._lines.get(key)
            if line is not None and line.parked is None:
                self._express.add(line)

    def _is_full(self) -> bool:
        """Whether something finds no room that does not wait for off-peak hours: room that is left is of no use to it,
        and what is to come first is theirs."""
        return any(line.key.lane != OFFPEAK for _, line in self.without_room())

    def without_room(self) -> Iterable[tuple[Footprint, Line]]:
        """Each footprint that finds no room, with the line whose turn it is in it."""
        return self._keeping.without_room()
