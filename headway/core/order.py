"""In which order lines are looked at: by deadline, or by fair share. Heaps that change with events.

Lines are kept apart by footprint, and only open footprints show their front: what waits for room costs nothing until
there may be some. Entries are checked when they come up, not when they go stale: a line or a tenant whose turn changed
gets a second entry, and the outdated one is dropped or moved when it reaches the top.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from headway.core.fairness import Shares, Use
from headway.core.nodes import Footprint
from headway.core.queue import Line

Turn = tuple[float, int, Line]
"""When the head of a line is due, its cap, and the line."""
FOREVER = float("inf")
_SLACK = 1e-12
_COMPACT_AT = 64


def _front(turns: list[Turn]) -> Line | None:
    """The first line of a heap of turns, outdated turns before it dropped."""
    while turns:
        turn = turns[0]
        if turn[2].due == turn[0]:
            return turn[2]
        heapq.heappop(turns)
    return None


class DeadlineOrder:
    """Lines by when their head must start, then by the shortest cap."""

    def __init__(self) -> None:
        self._groups: dict[int, tuple[Footprint, list[Turn]]] = {}
        self._fronts: list[tuple[float, int, int]] = []

    def add(self, line: Line) -> None:
        """The line's head is new."""
        footprint = line.footprint
        group = self._groups.get(footprint.number)
        if group is None:
            group = self._groups[footprint.number] = (footprint, [])
        turns, first = group[1], line.first
        turn = (first.start_by, first.cap_ms, line)
        heapq.heappush(turns, turn)
        if turns[0] is turn and footprint.is_open:
            heapq.heappush(self._fronts, (turn[0], turn[1], footprint.number))

    def next(self) -> Line | None:
        """Takes the first line out; `add` puts it back."""
        line = self.peek()
        if line is not None:
            heapq.heappop(self._groups[self._fronts[0][2]][1])
        return line

    def peek(self) -> Line | None:
        """The first line whose footprint is open."""
        fronts = self._fronts
        while fronts:
            start_by, cap_ms, number = fronts[0]
            group = self._groups.get(number)
            line = _front(group[1]) if group is not None and group[0].is_open else None
            if line is None or group is None:
                heapq.heappop(fronts)
                continue
            turn = group[1][0]
            if turn[0] == start_by and turn[1] == cap_ms:
                return line
            heapq.heapreplace(fronts, (turn[0], turn[1], number))
        return None

    def until(self) -> float:
        """When the first line is due; infinity when there is none."""
        line = self.peek()
        return line.first.start_by if line is not None else FOREVER

    def first_of(self, footprint: Footprint) -> Line | None:
        """The first line of a footprint, open or not."""
        group = self._groups.get(footprint.number)
        return _front(group[1]) if group is not None else None

    def drop_first_of(self, footprint: Footprint) -> None:
        """That line takes no part any more until it is added again."""
        heapq.heappop(self._groups[footprint.number][1])

    def opened(self, footprint: Footprint) -> None:
        """There may be room for a footprint again."""
        group = self._groups.get(footprint.number)
        if group is not None and _front(group[1]) is not None:
            heapq.heappush(self._fronts, (*group[1][0][:2], footprint.number))

    def forget(self, footprint: Footprint) -> None:
        """Nothing has this footprint any more."""
        self._groups.pop(footprint.number, None)


class Score:
    """What stands against accounts, as of the round under way."""

    __slots__ = ("_history_weight", "_now", "_shares")

    def __init__(self, shares: Shares[tuple[str, int]]) -> None:
        self._shares = shares
        self._now = 0.0
        self._history_weight = 0.0

    def begin(self, now: float, history_weight: float) -> None:
        """A round begins."""
        self._now, self._history_weight = now, history_weight

    def of(self, use: Use) -> float:
        """The share in use, and the fading past."""
        if use.since < self._now:
            self._shares.advance(use, self._now)
        return use.share + self._history_weight * use.history


class _Waiting:
    """The lines of one tenant in one footprint."""

    __slots__ = ("due", "score", "turns", "use")

    def __init__(self, use: Use) -> None:
        self.turns: list[Turn] = []
        self.use = use
        self.score: float | None = None
        """With `due`, what its valid entry in the group's heap says; None when it has none."""
        self.due = FOREVER


Front = tuple[float, float, int]
"""The least that may stand against the first tenant of a group, when its line is due, and the footprint."""


class _Group:
    """The tenants of a tier that wait in one footprint, who has had least first."""

    __slots__ = ("footprint", "heap", "is_put_off", "shown", "tenants")

    def __init__(self, footprint: Footprint, *, is_put_off: bool) -> None:
        self.footprint = footprint
        self.is_put_off = is_put_off
        """Whether it is passed over though it is open."""
        self.heap: list[tuple[float, float, int]] = []
        self.shown: Front | None = None
        """Its entry among the tier's fronts that still counts."""
        self.tenants: dict[int, _Waiting] = {}

    def enter(self, tenant: int, waiting: _Waiting, score: float) -> bool:
        """Gives a tenant its turn; True when it is the first."""
        due = waiting.turns[0][0]
        if waiting.score == score and waiting.due == due:
            return False
        waiting.score, waiting.due = score, due
        if len(self.heap) > 4 * len(self.tenants) + _COMPACT_AT:
            self.heap = [(w.score, w.due, number) for number, w in self.tenants.items() if w.score is not None]
            heapq.heapify(self.heap)
        else:
            heapq.heappush(self.heap, (score, due, tenant))
        return self.heap[0][2] == tenant

    def top(self, score: Score) -> tuple[float, float, int] | None:
        """The first entry that still holds."""
        heap, tenants = self.heap, self.tenants
        while heap:
            entry = heap[0]
            waiting = tenants.get(entry[2])
            if waiting is None or waiting.score != entry[0] or waiting.due != entry[1]:
                heapq.heappop(heap)
                continue
            if _front(waiting.turns) is None:
                heapq.heappop(heap)
                del tenants[entry[2]]
                continue
            actual, due = score.of(waiting.use), waiting.turns[0][0]
            if actual <= entry[0] + _SLACK and due == entry[1]:
                return entry
            waiting.score, waiting.due = actual, due
            heapq.heapreplace(heap, (actual, due, entry[2]))
        return None


class Tier:
    """The groups of a tier, and what stands against it."""

    __slots__ = ("front", "fronts", "groups", "name", "score", "use", "weight")

    def __init__(self, name: str, use: Use) -> None:
        self.name = name
        self.use = use
        self.weight = 1.0
        self.score = 0.0
        self.front: tuple[_Group, Front] | None = None
        """The first group and its entry, if that was just looked up and nothing has changed since."""
        self.fronts: list[Front] = []
        self.groups: dict[int, _Group] = {}

    def show(self, group: _Group) -> None:
        """A group has a new front."""
        self.front = None
        if group.heap and group.footprint.is_open and not group.is_put_off:
            score, due, _ = group.heap[0]
            front = (score, due, group.footprint.number)
            if group.shown is None or front < group.shown:
                group.shown = front
                heapq.heappush(self.fronts, front)


FairTurn = tuple[Tier, _Group, Line, float, float]
"""Whose turn it is: tier, group and line; when the tenant's next line in the group is due; and how much more the tenant
may get until it is the turn of the next one in its tier. A bare tuple: there is one for every decision."""


class FairOrder:
    """Tiers by what they use for their weight, in it the tenant that has had least, of a tenant the line due first."""

    def __init__(self, score: Score, puts_off: Callable[[Footprint], bool] | None = None) -> None:
        self._score = score
        self._puts_off = puts_off
        self._tiers: dict[str, Tier] = {}

    def begin(self, weight: Callable[[str], float]) -> None:
        """What stands against the tiers is looked up anew: others had their turns since."""
        for tier in self._tiers.values():
            tier.front = None
            tier.weight = weight(tier.name)
            tier.score = self._score.of(tier.use) / tier.weight

    def add(self, line: Line) -> None:
        """The line's head is new."""
        footprint, number = line.footprint, line.key.tenant
        tier = self._tiers.get(line.tier)
        if tier is None:
            tier = self._tiers[line.tier] = Tier(line.tier, line.tier_use)
        tier.use = line.tier_use  # idle accounts are forgotten, and begin anew
        group = tier.groups.get(footprint.number)
        if group is None:
            is_put_off = self._puts_off is not None and self._puts_off(footprint)
            group = tier.groups[footprint.number] = _Group(footprint, is_put_off=is_put_off)
        waiting = group.tenants.get(number)
        if waiting is None:
            waiting = group.tenants[number] = _Waiting(line.use)
        waiting.use = line.use
        first = line.first
        heapq.heappush(waiting.turns, (first.start_by, first.cap_ms, line))
        if waiting.score is None:
            if group.enter(number, waiting, self._score.of(waiting.use)):
                tier.show(group)
        elif first.start_by < waiting.due and group.enter(number, waiting, waiting.score):
            tier.show(group)

    def changed(self, tier_name: str, number: int) -> None:
        """The tenant gave something back: its turn may have come nearer."""
        tier = self._tiers.get(tier_name)
        if tier is None:
            return
        for group in tier.groups.values():
            waiting = group.tenants.get(number)
            if waiting is not None and waiting.score is not None and _front(waiting.turns) is not None:
                score = self._score.of(waiting.use)
                if score < waiting.score and group.enter(number, waiting, score):
                    tier.show(group)

    def next(self) -> FairTurn | None:
        """Takes out the tenant whose turn it is, with its first line; `put_back` returns both."""
        while (tier := self._first_tier()) is not None:
            turn = self._next_of(tier)
            if turn is not None:
                return turn
        return None

    def put_back(self, turn: FairTurn) -> None:
        """The tenant has its turn again when its new score comes up."""
        tier, group, line, _, _ = turn
        tier.score = self._score.of(tier.use) / tier.weight
        number = line.key.tenant
        if tier.front is not None and tier.front[1][2] == number:
            tier.front = None  # it has had more since
        waiting = group.tenants.get(number)
        if waiting is None:
            return
        if line.due is not None:
            first = line.first
            heapq.heappush(waiting.turns, (first.start_by, first.cap_ms, line))
        if _front(waiting.turns) is None:
            del group.tenants[number]
        elif group.enter(number, waiting, self._score.of(waiting.use)):
            tier.show(group)

    def others_behind(self, tier: Tier) -> float:
        """How much more may stand against the tier's tenants until it is the turn of another tier."""
        least = FOREVER
        for other in self._tiers.values():
            if other is not tier and other.fronts and other.score < least:
                least = other.score
        return (least - tier.score) * tier.weight if least < FOREVER else FOREVER

    def opened(self, footprint: Footprint) -> None:
        """There may be room for a footprint again."""
        for tier in self._tiers.values():
            group = tier.groups.get(footprint.number)
            if group is not None:
                tier.show(group)

    def heed_peak(self) -> None:
        """Others are put off than before."""
        if self._puts_off is None:
            return
        for tier in self._tiers.values():
            for group in tier.groups.values():
                was, group.is_put_off = group.is_put_off, self._puts_off(group.footprint)
                if group.is_put_off:
                    tier.front = None
                elif was:
                    tier.show(group)

    def first_of(self, footprint: Footprint) -> Line | None:
        """The line whose turn is first among those of a footprint, open or not."""
        for tier in sorted(self._tiers.values(), key=lambda tier: tier.score):
            group = tier.groups.get(footprint.number)
            entry = group.top(self._score) if group is not None else None
            if group is not None and entry is not None:
                return _front(group.tenants[entry[2]].turns)
        return None

    def forget(self, footprint: Footprint) -> None:
        """Nothing has this footprint any more."""
        for tier in self._tiers.values():
            tier.groups.pop(footprint.number, None)
            tier.front = None

    def refresh(self) -> None:
        """Time alone changed what stands against tenants: every turn is put where it belongs."""
        for tier in self._tiers.values():
            for group in tier.groups.values():
                for waiting in group.tenants.values():
                    if waiting.score is not None:
                        waiting.score = self._score.of(waiting.use)
                group.heap = [(w.score, w.due, n) for n, w in group.tenants.items() if w.score is not None]
                heapq.heapify(group.heap)
                tier.show(group)

    def _first_tier(self) -> Tier | None:
        first: Tier | None = None
        for tier in self._tiers.values():
            if tier.fronts and (first is None or tier.score < first.score):
                first = tier
        return first

    def _next_of(self, tier: Tier) -> FairTurn | None:
        front = tier.front
        if front is None or not front[0].footprint.is_open or front[0].is_put_off:
            front = self._front_of(tier)
        return self._take(tier, *front) if front is not None else None

    def _front_of(self, tier: Tier) -> tuple[_Group, Front] | None:
        """The group whose first tenant has had least, and that tenant's entry in it."""
        fronts = tier.fronts
        while fronts:
            front = fronts[0]
            number = front[2]
            group = tier.groups.get(number)
            if group is None or group.shown != front:
                heapq.heappop(fronts)
                continue
            entry = group.top(self._score) if group.footprint.is_open and not group.is_put_off else None
            if entry is None:
                heapq.heappop(fronts)
                group.shown = None
            elif entry[0] == front[0] and entry[1] == front[1]:
                return group, entry
            else:
                group.shown = (entry[0], entry[1], number)
                heapq.heapreplace(fronts, group.shown)
        return None

    def _take(self, tier: Tier, group: _Group, entry: Front) -> FairTurn:
        score, _, tenant = entry
        heapq.heappop(group.heap)
        heapq.heappop(tier.fronts)
        group.shown = None
        tier.show(group)
        waiting = group.tenants[tenant]
        line = heapq.heappop(waiting.turns)[2]
        waiting.score = None
        following = _front(waiting.turns) if waiting.turns else None
        until = following.first.start_by if following is not None else FOREVER
        ahead = FOREVER
        behind = tier.front = self._front_of(tier)
        if behind is not None:
            ahead, other_due, other = behind[1]
            if other == tenant:  # elsewhere too: what is due first goes first
                until = min(until, other_due)
                ahead = min([one[0] for one in (*tier.fronts[1:3], *behind[0].heap[1:3])], default=FOREVER)
        return tier, group, line, until, ahead - score if ahead > score else 0.0
