"""In which order lines are looked at: by deadline, or by fair share. Heaps that change with events.

Entries are checked when they come up, not when they go stale: a line or a tenant whose turn changed gets a second
entry, and the outdated one is dropped or moved when it reaches the top.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from headway.core.queue import Line, LineKey

Turn = tuple[float, int, LineKey]
"""When the head of a line is due, its cap, and the line."""
Lines = dict[LineKey, Line]
FOREVER = float("inf")
_SLACK = 1e-12


class DeadlineOrder:
    """Lines by when their head must start, then by the shortest cap."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._turns: list[Turn] = []

    def add(self, line: Line) -> None:
        """The line's head is new."""
        heapq.heappush(self._turns, (line.first.start_by, line.first.cap_ms, line.key))

    def next(self) -> Line | None:
        """Takes the first line out; `add` puts it back."""
        line = self.peek()
        if line is not None:
            heapq.heappop(self._turns)
        return line

    def peek(self) -> Line | None:
        """The first line, outdated turns before it dropped."""
        while self._turns:
            start_by, _, key = self._turns[0]
            line = self._lines.get(key)
            if line and not line.parked and line.first.start_by == start_by:
                return line
            heapq.heappop(self._turns)
        return None

    def until(self) -> float:
        """When the first line is due; infinity when there is none."""
        line = self.peek()
        return line.first.start_by if line is not None else FOREVER


class _Tenant:
    __slots__ = ("lines", "score")

    def __init__(self, lines: Lines) -> None:
        self.lines = DeadlineOrder(lines)
        self.score: float | None = None
        """What its valid entry in the tier's heap says; None when it has none."""


class _Tier:
    __slots__ = ("heap", "tenants")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int]] = []
        self.tenants: dict[int, _Tenant] = {}


class FairOrder:
    """Tiers by what they use for their weight, in it the tenant that has had least, of a tenant the line due first."""

    def __init__(
        self, lines: Lines, *, tier_score: Callable[[str], float], tenant_score: Callable[[str, int], float]
    ) -> None:
        self._lines = lines
        self._tier_score = tier_score
        self._tenant_score = tenant_score
        self._tiers: dict[str, _Tier] = {}

    def add(self, tier: str, line: Line) -> None:
        """The line's head is new."""
        book = self._tiers.get(tier)
        if book is None:
            book = self._tiers[tier] = _Tier()
        tenant = book.tenants.get(line.key.tenant)
        if tenant is None:
            tenant = book.tenants[line.key.tenant] = _Tenant(self._lines)
        tenant.lines.add(line)
        if tenant.score is None:
            self._enter(book, line.key.tenant, tenant, self._tenant_score(tier, line.key.tenant))

    def changed(self, tier: str, tenant: int) -> None:
        """The tenant gave something back: its turn may have come nearer."""
        book = self._tiers.get(tier)
        known = book.tenants.get(tenant) if book is not None else None
        if book is not None and known is not None and known.score is not None:
            self._enter(book, tenant, known, self._tenant_score(tier, tenant))

    def next(self) -> tuple[str, Line, float] | None:
        """Takes out the tenant whose turn it is and its first line, and says when its next one is due; `put_back`
        returns the tenant, `add` the line."""
        while tiers := [name for name, book in self._tiers.items() if book.heap]:
            tier = min(tiers, key=self._tier_score) if len(tiers) > 1 else tiers[0]
            line = self._next_of(tier, self._tiers[tier])
            if line is not None:
                return tier, line, self._tiers[tier].tenants[line.key.tenant].lines.until()
        return None

    def ahead(self, tier: str) -> float:
        """How much more the tenant taken out may get until it is the turn of the next one in its tier."""
        book = self._tiers[tier]
        while book.heap:
            score, number = book.heap[0]
            known = book.tenants.get(number)
            if known is not None and known.score == score:
                return score
            heapq.heappop(book.heap)
        return FOREVER

    def tiers_waiting(self, but: str) -> list[str]:
        """The other tiers that have lines."""
        return [name for name, book in self._tiers.items() if book.heap and name != but]

    def tenants_waiting(self, tier: str) -> int:
        """How many tenants of a tier have lines."""
        return len(self._tiers[tier].tenants)

    def put_back(self, tier: str, tenant: int) -> None:
        """The tenant has its turn again when its new score comes up."""
        book = self._tiers[tier]
        known = book.tenants[tenant]
        if known.lines.peek() is None:
            del book.tenants[tenant]
        else:
            self._enter(book, tenant, known, self._tenant_score(tier, tenant))

    def _next_of(self, tier: str, book: _Tier) -> Line | None:
        while book.heap:
            score, number = heapq.heappop(book.heap)
            tenant = book.tenants.get(number)
            if tenant is None or tenant.score != score:
                continue
            actual = self._tenant_score(tier, number)
            if book.heap and actual > book.heap[0][0] + _SLACK and actual > score + _SLACK:
                self._enter(book, number, tenant, actual)
                continue
            line = tenant.lines.next()
            if line is None:
                del book.tenants[number]
                continue
            tenant.score = None
            return line
        return None

    @staticmethod
    def _enter(book: _Tier, number: int, tenant: _Tenant, score: float) -> None:
        if tenant.score != score:
            tenant.score = score
            heapq.heappush(book.heap, (score, number))
