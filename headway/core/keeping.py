"""For whom a node is kept: whoever had a turn, found no room, and sees others served who have had more since.

A reservation follows the order and never makes one of its own. Without it a wide task would wait for ever beside small
ones that take whatever comes free; with one for everybody who waits, the wide would get more than their share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headway.core.budget import UrgentBudget
from headway.core.nodes import Footprint, Nodes
from headway.core.order import DeadlineOrder, FairOrder, Score
from headway.core.place import Placing
from headway.core.policy import Policy
from headway.core.queue import Line, LineKey, ReadyTask
from headway.core.reservation import LOOK_SECONDS, Reservations

Orders = tuple[DeadlineOrder, DeadlineOrder, FairOrder, FairOrder]
"""Express, periodic, fair, off-peak."""
_HAIR = 1e-9


class Keeping:
    """Decides after a round for whom nodes are kept, and before one what may pass them."""

    def __init__(
        self, *, nodes: Nodes, orders: Orders, placing: Placing, reservations: Reservations, budget: UrgentBudget,
        puts_off: Callable[[Footprint], bool], score: Score, due: Callable[[LineKey, ReadyTask, float], float],
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self._orders = orders
        self._placing = placing
        self._reservations = reservations
        self._budget = budget
        self._puts_off = puts_off
        self._score = score
        self._due = due

    def look(self, now: float, policy: Policy) -> None:
        """Keeps nodes for those whom others have been passing for a while, the first in the order before others: only
        who is gone by the time a node is free may still go there."""
        closed, served = self._placing.closed, self._placing.served
        if not closed or now < self._reservations.looks_at:
            return
        self._reservations.looks_at = now + LOOK_SECONDS
        for account in [account for account, (line, _) in served.items() if not line.use.count]:
            del served[account]
        passed = self._passed(now, _Passing(served.values(), policy, self._score))
        first = sorted(passed, key=lambda one: one[:3])[: self._reservations.most]
        for footprint in sorted(self._reservations.footprints() - {one[2] for one in first}):
            self._reservations.end(self._nodes.by_number(footprint))
        for *_, number, line in first:
            footprint = self._nodes.by_number(number)
            if footprint.passed_since is not None and now - footprint.passed_since >= policy.reserve_after_seconds:
                self._reservations.make(footprint, line.key, line.key.shape, now)

    def _passed(self, now: float, passing: _Passing) -> Iterator[tuple[int, tuple[float, float], int, Line]]:
        """Each footprint that is passed by others, with the line whose turn it is and its place in the order."""
        for footprint in list(self._placing.closed.values()):
            line, order = self._turn_in(footprint)
            if line is None or not self._placing.may_start(line, now) or not passing.passes(line, ahead=order < 2):
                footprint.passed_since = None
                continue
            if footprint.passed_since is None:
                footprint.passed_since = now
            place = (line.first.start_by, 0.0) if order < 2 else (passing.of_tier(line), self._score.of(line.use))
            yield order, place, footprint.number, line

    def rank(self, now: float) -> None:
        """What presses passes a reservation for what does not, or not as much."""
        express = self._orders[0]
        for footprint, node in self._reservations.kept():
            while (line := express.first_of(footprint)) is not None and self._budget.is_used_up(line.key.tenant):
                express.drop_first_of(footprint)
                self._budget.set_aside(line.key)
            room, line = self._nodes.get(node), self.first_of(footprint)
            if room is not None and line is not None:
                self._nodes.rank(room, self._due(line.key, line.first, now))

    def without_room(self) -> Iterable[tuple[Footprint, Line]]:
        """Each footprint that finds no room, with the line whose turn it is in it."""
        for footprint in list(self._placing.closed.values()):
            line = self.first_of(footprint)
            if line is not None:
                yield footprint, line

    def first_of(self, footprint: Footprint) -> Line | None:
        """Whose turn it is in a closed footprint. What waits for the peak to end has none; nothing is kept for it."""
        return self._turn_in(footprint)[0]

    def _turn_in(self, footprint: Footprint) -> tuple[Line | None, int]:
        """Whose turn it is, and by which order."""
        for number, order in enumerate(self._orders[: 3 if self._puts_off(footprint) else 4]):
            line = order.first_of(footprint)
            if line is not None:
                return line, number
        self._reservations.end(footprint)
        return None, len(self._orders)


class _Passing:
    """Who was served while others found no room, and how much they have by now."""

    def __init__(self, served: Iterable[tuple[Line, float]], policy: Policy, score: Score) -> None:
        self._policy = policy
        self._score = score
        self._tiers: dict[str, float] = {}
        self._tenants: dict[str, float] = {}
        self._dues: dict[tuple[str, int], float] = {}
        for line, due in served:
            self._tiers[line.tier] = self.of_tier(line)
            self._tenants[line.tier] = max(self._tenants.get(line.tier, 0.0), score.of(line.use))
            self._dues[line.tier, line.key.tenant] = due

    def passes(self, line: Line, *, ahead: bool) -> bool:
        """Whether somebody was served whose turn came after that of a line."""
        if not self._tiers:
            return False
        if ahead or self._dues.get((line.tier, line.key.tenant), 0.0) >= line.first.start_by:
            return True
        if self._tenants.get(line.tier, 0.0) > self._score.of(line.use) + _HAIR:
            return True
        mine = self.of_tier(line) + _HAIR
        return any(score > mine for tier, score in self._tiers.items() if tier != line.tier)

    def of_tier(self, line: Line) -> float:
        """What stands against a line's tier."""
        return self._score.of(line.tier_use) / self._policy.weight(line.tier)
