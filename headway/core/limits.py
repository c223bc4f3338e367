"""Limits that must all pass before a task starts: quotas, concurrency keys, dispatch rates.

Each answers how many more may start now, and each knows what it blocks: a line that ran into a limit is set aside until
that very limit has room again, so it neither hides others nor is asked about over and over.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headway.core.fairness import Use
from headway.core.resources import Vector


class Concurrency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """At most `limit` tasks with this key run at once in the tenant; 1 is mutual exclusion."""

    key: str
    limit: int


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """At most `rate` tasks with this key start in any `per` seconds."""

    key: str
    rate: int
    per: float = 60.0


class Blocker(NamedTuple):
    """What stands in the way: a stable code and which one."""

    code: str
    what: int | tuple[int, str]


class Limits:
    """Who holds which key, and when a rate lets the next one through."""

    def __init__(self) -> None:
        self._holders: Counter[tuple[int, str]] = Counter()
        self._starts: dict[tuple[int, str], deque[tuple[float, int]]] = {}
        self._periods: dict[tuple[int, str], float] = {}
        """The longest that anybody asked for: tasks may give one key different rates."""
        self._wakeups: list[tuple[float, Blocker]] = []

    def heed(self, tenant: int, rates: tuple[Rate, ...]) -> None:
        """Somebody waits for these: from now on no start is forgotten that they count."""
        for rate in rates:
            key = (tenant, rate.key)
            if rate.per > self._periods.get(key, 0.0):
                self._periods[key] = rate.per

    def room(
        self, tenant: int, concurrency: tuple[Concurrency, ...], rates: tuple[Rate, ...], most: int, now: float
    ) -> tuple[int, Blocker | None]:
        """How many may start now, and what lets no more through."""
        blocker: Blocker | None = None
        for limit in concurrency:
            left = max(limit.limit - self._holders[tenant, limit.key], 0)
            if left < most:
                most, blocker = left, Blocker("concurrency", (tenant, limit.key))
        for rate in rates:
            left, at = self._rate_room(tenant, rate, now)
            if left < most:
                most, blocker = left, Blocker("rate", (tenant, rate.key))
                heapq.heappush(self._wakeups, (at, blocker))
        return most, blocker

    def take(
        self, tenant: int, concurrency: tuple[Concurrency, ...], rates: tuple[Rate, ...], count: int, now: float
    ) -> None:
        """`count` tasks start."""
        for limit in concurrency:
            self._holders[tenant, limit.key] += count
        for rate in rates:
            key = (tenant, rate.key)
            self._starts.setdefault(key, deque()).append((now, count))
        self.heed(tenant, rates)

    def give(self, tenant: int, concurrency: tuple[Concurrency, ...], count: int) -> list[Blocker]:
        """`count` tasks ended; answers the limits that have room again."""
        for limit in concurrency:
            left = self._holders[tenant, limit.key] - count
            if left > 0:
                self._holders[tenant, limit.key] = left
            else:
                del self._holders[tenant, limit.key]
        return [Blocker("concurrency", (tenant, limit.key)) for limit in concurrency]

    def holders(self, tenant: int, key: str) -> int:
        """How many hold a key now."""
        return self._holders[tenant, key]

    def opens_at(self, tenant: int, rate: Rate, now: float) -> float | None:
        """When a rate that lets no more through now lets the next one through; None when it lets one through."""
        left, at = self._rate_room(tenant, rate, now)
        return None if left else at

    def opened(self, now: float) -> list[Blocker]:
        """The rates that let one through again by now."""
        found: list[Blocker] = []
        while self._wakeups and self._wakeups[0][0] <= now:
            found.append(heapq.heappop(self._wakeups)[1])
        return found

    def next_opening(self) -> float | None:
        """When the next rate lets one through."""
        return self._wakeups[0][0] if self._wakeups else None

    def tidy(self, waiting: Iterable[tuple[int, tuple[Rate, ...]]], now: float) -> None:
        """Forgets the keys that nobody waits for and in whose time nothing started."""
        used = {(tenant, rate.key) for tenant, rates in waiting for rate in rates}
        for key in [key for key in self._periods if key not in used]:
            starts = self._starts.get(key)
            if starts:
                self._fade(key, starts, now)
            if not starts:
                del self._periods[key]
                self._starts.pop(key, None)

    def _fade(self, key: tuple[int, str], starts: deque[tuple[float, int]], now: float) -> None:
        since = now - self._periods[key]
        while starts and starts[0][0] <= since:
            starts.popleft()

    def _rate_room(self, tenant: int, rate: Rate, now: float) -> tuple[int, float]:
        """How many may start in the window that ends now, and when the oldest start leaves it."""
        key = (tenant, rate.key)
        starts = self._starts.get(key)
        if starts is None:
            return rate.rate, now
        self._fade(key, starts, now)
        within = [(at, count) for at, count in starts if at > now - rate.per]
        if not within:
            return rate.rate, now
        return max(rate.rate - sum(count for _, count in within), 0), within[0][0] + rate.per


def quota_room(quota: Mapping[str, int], uses: Iterable[Use], needs: Vector, most: int) -> int:
    """How many more a tenant's quota allows, by all that it uses. It bounds how many are `running`, and resources."""
    for name, bound in quota.items():
        each = 1 if name == "running" else needs.get(name, 0)
        if each > 0:
            held = 0
            for use in uses:
                held += use.count if name == "running" else use.held.get(name, 0)
            if bound - held < most * each:
                most = max(bound - held, 0) // each
    return most
