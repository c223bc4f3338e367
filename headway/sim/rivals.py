"""What Headway is compared with: first come first served, plain priority, and fair-share with backfill as in Slurm.

All place by the same best fit onto the same nodes, within the same quotas, keys and rates, skip what finds no room, and
decide in every round without any delay of their own: they differ in whose turn it is. None of them pauses anything.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Callable, Iterable

from headway.core.feedback import Preemption, Run
from headway.core.lifecycle import Lane
from headway.core.limits import Blocker, Limits, quota_room
from headway.core.nodes import Footprint, Nodes
from headway.core.order import FOREVER
from headway.core.place import Placement
from headway.core.placement import NodeRoom, Shape
from headway.core.policy import Policy
from headway.core.queue import LineKey, ReadyTask
from headway.core.reservation import Running, free_at
from headway.core.usage import EVERYBODY, Usage

Turn = tuple[float, ...]
"""Whose turn it is: the least goes first."""
PRIORITIES_SECONDS = 1.0
"""How often fair-share priorities are computed anew; Slurm's own default is five minutes."""
AGE_MAX_SECONDS = 7 * 86_400.0
QUALITY_WEIGHT, FAIR_WEIGHT, AGE_WEIGHT = 100_000.0, 10_000.0, 1_000.0
BACKFILL_SECONDS = 1.0
"""How often it is looked for whom nodes are kept; Slurm's own default is 30 s."""
LOOKED_AT_MAX = 256


class _Queue:
    """What one tenant has waiting in one shape and lane, the oldest first."""

    __slots__ = ("footprint", "key", "shape", "tasks")

    def __init__(self, key: LineKey, shape: Shape, footprint: Footprint) -> None:
        self.key = key
        self.shape = shape
        self.footprint = footprint
        self.tasks: list[tuple[int, float, ReadyTask]] = []
        """By number; with the time at which each was offered."""


class Rival:
    """Everything but whose turn it is."""

    def __init__(self, policy: Policy, running_on: Callable[[int], Iterable[Running]]) -> None:
        self.nodes = Nodes()
        self.policy = policy
        self.limits = Limits()
        self.running_on = running_on
        self._usage = Usage(policy)
        self._waiting = 0
        self._queues: dict[LineKey, _Queue] = {}
        self._open: dict[LineKey, _Queue] = {}
        self._without_room: dict[int, tuple[Footprint, dict[LineKey, _Queue]]] = {}
        self._kept_out: dict[LineKey, _Queue] = {}
        self._limited: dict[Blocker, dict[LineKey, _Queue]] = {}

    @abstractmethod
    def turn(self, queue: _Queue, now: float) -> Turn:
        """When it is the turn of the head of a queue."""

    def __len__(self) -> int:
        return self._waiting

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, room: NodeRoom, now: float) -> None:
        """A node is there."""
        self.nodes.join(room)
        self._usage.resize(self.nodes.capacity, now)

    def leave(self, node: int, now: float) -> None:
        """A node is gone."""
        self.nodes.leave(node)
        self._usage.resize(self.nodes.capacity, now)

    def offer(self, key: LineKey, tasks: list[ReadyTask], now: float) -> None:
        """Tasks are ready."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key, self.nodes.shape(key.shape), self.nodes.footprint(key.shape))
        if not queue.tasks:
            self._let_try(queue)
        for task in tasks:
            heapq.heappush(queue.tasks, (task.id, now, task))
        self._waiting += len(tasks)

    def began(self, run: Run) -> None:
        """A preemptible task runs: nobody will pause it."""

    def ended(self, node: int, key: LineKey, task: int, now: float, *, express: bool) -> None:
        """A task does not run any more."""
        shape = self.nodes.shape(key.shape)
        self.nodes.vacate(node, key.shape, 1)
        self._usage.vacate(key.tenant, shape, 1, now, express=False)
        for blocker in [*self.limits.give(key.tenant, shape.concurrency, 1), Blocker("quota", key.tenant)]:
            self._open.update(self._limited.pop(blocker, {}))

    def adopt(self, node: int, key: LineKey, now: float) -> None:
        """A paused task keeps room."""
        raise AssertionError(f"nothing is ever paused, yet a task of {key} stays on node {node} at {now}")

    def pauses(self, now: float) -> list[Preemption]:
        """Nobody is paused."""
        return []

    def presses(self, room: NodeRoom, shape: Shape, now: float) -> bool:
        """Nothing is paused, so nothing comes before what is."""
        return False

    def opens_at(self) -> float | None:
        """When the next rate lets one through."""
        return self.limits.next_opening()

    # ── the round ─────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, now: float) -> list[Placement]:
        """What starts now."""
        for blocker in self.limits.opened(now):
            self._open.update(self._limited.pop(blocker, {}))
        self._reopen(self.nodes.freshly_vacated())
        placed: list[Placement] = []
        turns = [(self.turn(queue, now), key) for key, queue in self._open.items()]
        heapq.heapify(turns)
        while turns:
            _, key = turns[0]
            queue = self._open.get(key)
            if queue is not None and queue.footprint.number not in self._without_room:
                if self._start(queue, now, placed) and queue.tasks:
                    heapq.heapreplace(turns, (self.turn(queue, now), key))
                    continue
            elif queue is not None:
                self._set_aside(queue)
            heapq.heappop(turns)
        return placed

    def _start(self, queue: _Queue, now: float, placed: list[Placement]) -> bool:
        """Starts the head of a queue, or sets the queue aside."""
        key, shape, task = queue.key, queue.shape, queue.tasks[0][2]
        blocker = self._limit(key, shape, now)
        if blocker is not None:
            self._limited.setdefault(blocker, {})[key] = self._open.pop(key)
            return False
        room = self.nodes.best(queue.footprint, task.cap_ms, now, due=FOREVER)
        if room is None:
            self._found_no_room(queue)
            return False
        heapq.heappop(queue.tasks)
        self._waiting -= 1
        self.nodes.book(room, shape, 1, beyond=0)
        if shape.spread is not None:
            self.nodes.placed_apart(queue.footprint)
        self._usage.occupy(key.tenant, shape, 1, now, express=False)
        self.limits.take(key.tenant, shape.concurrency, shape.rates, 1, now)
        placed.append(Placement(key, room.node, [task], express=False))
        if not queue.tasks:
            del self._open[key]
        return True

    def _limit(self, key: LineKey, shape: Shape, now: float) -> Blocker | None:
        quota = self.policy.plan(key.tenant).quota
        if quota and not quota_room(quota, self._usage.in_all(key.tenant), shape.needs, 1):
            return Blocker("quota", key.tenant)
        return self.limits.room(key.tenant, shape.concurrency, shape.rates, 1, now)[1]

    def _let_try(self, queue: _Queue) -> None:
        self._open[queue.key] = queue
        if queue.footprint.number in self._without_room:
            self._set_aside(queue)

    def _found_no_room(self, queue: _Queue) -> None:
        """Its whole footprint waits; unless a node has room that is kept, where a shorter cap may yet be let in."""
        if self.nodes.is_kept_from(queue.footprint):
            self._kept_out[queue.key] = self._open.pop(queue.key)
        else:
            self._without_room[queue.footprint.number] = (queue.footprint, {})
            self._set_aside(queue)

    def _set_aside(self, queue: _Queue) -> None:
        """Its footprint finds no room until a node is vacated."""
        self._without_room[queue.footprint.number][1][queue.key] = self._open.pop(queue.key)

    def _reopen(self, fresh: list[NodeRoom]) -> None:
        if fresh:
            self._open.update(self._kept_out)
            self._kept_out.clear()
        for number, (footprint, queues) in list(self._without_room.items()):
            if any(room.has_room(footprint.shape) and room.could_run(footprint.shape) for room in fresh):
                del self._without_room[number]
                self._open.update(queues)


class Fifo(Rival):
    """Who came first goes first; what does not fit is passed over, as most task queues do it."""

    def turn(self, queue: _Queue, now: float) -> Turn:
        """In the order of arrival."""
        return (queue.tasks[0][0],)


class Priority(Rival):
    """Classes one after the other: urgent, periodic, normal, off-peak; in each, who came first."""

    def turn(self, queue: _Queue, now: float) -> Turn:
        """By class, then in the order of arrival."""
        return (queue.key.lane, queue.tasks[0][0])


class FairShare(Rival):
    """Priorities made of quality of service (the classes), fair-share and age, with backfill, as Slurm has them.

    Fair-share is ranked as Slurm's Fair Tree does: accounts (tiers) by what they used for their shares, fading with the
    half-life of the pool, and in each its users (tenants). A node is kept for the one of the highest priority that
    finds no room; who ends before it is needed, by the caps, may still go there (EASY backfill).
    """

    def __init__(self, policy: Policy, running_on: Callable[[int], Iterable[Running]]) -> None:
        super().__init__(policy, running_on)
        self._ranks: dict[tuple[str, int], float] = {}
        self._ranked_at = self._kept_at = -PRIORITIES_SECONDS
        self._kept: NodeRoom | None = None
        self._cursor = 0

    def turn(self, queue: _Queue, now: float) -> Turn:
        """The highest priority first."""
        number, came, _ = queue.tasks[0]
        quality = 1.0 - queue.key.lane / Lane.OFFPEAK
        fair = self._ranks.get((queue.shape.tier, queue.key.tenant), 1.0)
        age = min((now - came) / AGE_MAX_SECONDS, 1.0)
        return (-(QUALITY_WEIGHT * quality + FAIR_WEIGHT * fair + AGE_WEIGHT * age), number)

    def plan(self, now: float) -> list[Placement]:
        """What starts now."""
        if now >= self._ranked_at + PRIORITIES_SECONDS:
            self._ranked_at = now
            self._rank(now)
        if now >= self._kept_at + BACKFILL_SECONDS:
            self._kept_at = now
            self._keep(now)
        return super().plan(now)

    def leave(self, node: int, now: float) -> None:
        """A node is gone."""
        if self._kept is not None and self._kept.node == node:
            self._kept = None
        super().leave(node, now)

    def _rank(self, now: float) -> None:
        """Who has had how much for its share; who is before all others gets 1."""
        usage = self._usage
        usage.score.begin(now, 1.0)

        def had(tier: str, tenant: int) -> float:
            use = usage.of(tier, tenant, now)
            usage.score.of(use)  # lets its past fade up to now
            return use.history

        tenants = {(queue.shape.tier, queue.key.tenant) for queue in self._queues.values() if queue.tasks}
        tiers = {tier: had(tier, EVERYBODY) / self.policy.weight(tier) for tier in {tier for tier, _ in tenants}}
        had_by = sorted((tiers[tier], tier, had(tier, tenant), tenant) for tier, tenant in tenants)
        self._ranks.clear()
        before: tuple[float, str, float] | None = None
        rank = 1.0
        for place, (of_tier, tier, of_tenant, tenant) in enumerate(had_by):
            if (of_tier, tier, of_tenant) != before:
                before, rank = (of_tier, tier, of_tenant), 1.0 - place / len(had_by)
            self._ranks[tier, tenant] = rank

    def _keep(self, now: float) -> None:
        """Looks anew for whom a node is kept, and which: where there is room first if all run to their caps."""
        if self._kept is not None:
            self.nodes.release(self._kept)
            self._kept = None
        blocked = [queue for _, queues in self._without_room.values() for queue in queues.values()]
        first = min(blocked, key=lambda queue: self.turn(queue, now), default=None)
        if first is None:
            return
        rooms = self._some(self.nodes.candidates(first.key.shape))
        times = [(free_at(self.nodes, room, first.shape, self.running_on(room.node), now), room.node) for room in rooms]
        at, node = min(times, default=(float("inf"), 0))
        room = self.nodes.get(node)
        if room is not None and at < float("inf"):
            self.nodes.keep(room, first.footprint, at)
            self._kept = room

    def _some(self, rooms: list[NodeRoom]) -> list[NodeRoom]:
        """All of them, or of very many some, others each time."""
        if len(rooms) <= LOOKED_AT_MAX:
            return rooms
        self._cursor = (self._cursor + LOOKED_AT_MAX) % len(rooms)
        return (rooms[self._cursor :] + rooms[: self._cursor])[:LOOKED_AT_MAX]
