"""Who has had how much: dominant-resource shares in use, and what they were before, fading.

A share is the largest part of the pool that an account holds of any one resource. History is the average share over
time, with the half-life that the policy says; idle time forgives. Accounts are looked at lazily: an account that nobody
asks about costs nothing. Whoever decides often keeps the account's `Use` at hand.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from typing import Generic, TypeVar

from headway.core.resources import Vector

Account = TypeVar("Account", bound=Hashable)


class Use:
    """What one account holds, and its past."""

    __slots__ = ("count", "held", "history", "share", "since")

    def __init__(self, now: float) -> None:
        self.held: dict[str, int] = {}
        self.count = 0
        self.share = 0.0
        self.history = 0.0
        self.since = now


class Shares(Generic[Account]):
    """The shares of accounts in a pool of some capacity."""

    def __init__(self, *, half_life_seconds: float) -> None:
        self.half_life_seconds = half_life_seconds
        self._part_of_one: dict[str, float] = {}
        self._uses: dict[Account, Use] = {}

    def resize(self, capacity: Mapping[str, int], now: float) -> None:
        """The pool grew or shrank: shares mean something else from now on."""
        for use in self._uses.values():
            self.advance(use, now)
        self._part_of_one = {name: 1 / amount for name, amount in capacity.items() if amount > 0}
        for use in self._uses.values():
            use.share = self.part(use.held)

    def part(self, needs: Vector) -> float:
        """The dominant share that a vector would be."""
        one = self._part_of_one
        return max([amount * one[name] for name, amount in needs.items() if name in one], default=0.0)

    def use(self, account: Account, now: float) -> Use:
        """The use of an account; whoever keeps it at hand says so when others are forgotten."""
        use = self._uses.get(account)
        if use is None:
            use = self._uses[account] = Use(now)
        return use

    def find(self, account: Account) -> Use | None:
        """The use of an account that is known."""
        return self._uses.get(account)

    def occupy(self, use: Use, needs: Vector, count: int, now: float) -> None:
        """The account holds `count` more."""
        if now > use.since:
            self.advance(use, now)
        use.count += count
        held, one, share = use.held, self._part_of_one, use.share
        for name, amount in needs.items():
            all_of_it = held[name] = held.get(name, 0) + amount * count
            part = all_of_it * one.get(name, 0.0)
            if part > share:
                share = part
        use.share = share

    def occupy_both(self, use: Use, other: Use, needs: Vector, count: int, now: float) -> None:
        """Two accounts at once, as every start does: what it holds counts for the tenant and for the tier."""
        if now > use.since:
            self.advance(use, now)
        if now > other.since:
            self.advance(other, now)
        use.count += count
        other.count += count
        one, held, others = self._part_of_one, use.held, other.held
        for name, amount in needs.items():
            more, whole = amount * count, one.get(name, 0.0)
            mine = held[name] = held.get(name, 0) + more
            if mine * whole > use.share:
                use.share = mine * whole
            theirs = others[name] = others.get(name, 0) + more
            if theirs * whole > other.share:
                other.share = theirs * whole

    def vacate(self, use: Use, needs: Vector, count: int, now: float) -> None:
        """The account holds `count` fewer."""
        if now > use.since:
            self.advance(use, now)
        use.count -= count
        held, one, share = use.held, self._part_of_one, 0.0
        for name, amount in needs.items():
            held[name] -= amount * count
        for name, amount in held.items():
            part = amount * one.get(name, 0.0)
            if part > share:
                share = part
        use.share = share

    def vacate_both(self, use: Use, other: Use, needs: Vector, count: int, now: float) -> None:
        """Two accounts at once, as every end does."""
        if now > use.since:
            self.advance(use, now)
        if now > other.since:
            self.advance(other, now)
        use.count -= count
        other.count -= count
        one, held, others = self._part_of_one, use.held, other.held
        for name, amount in needs.items():
            held[name] -= amount * count
            others[name] -= amount * count
        share = 0.0
        for name, amount in held.items():
            part = amount * one.get(name, 0.0)
            if part > share:
                share = part
        use.share, share = share, 0.0
        for name, amount in others.items():
            part = amount * one.get(name, 0.0)
            if part > share:
                share = part
        other.share = share

    def all_held(self) -> dict[Account, dict[str, int]]:
        """What every account that holds something holds now."""
        return {account: dict(use.held) for account, use in self._uses.items() if use.share > 0}

    def share(self, account: Account) -> float:
        """What the account holds now."""
        use = self._uses.get(account)
        return use.share if use is not None else 0.0

    def forget_idle(self, now: float, *, but: Set[Account], below: float = 1e-6) -> None:
        """Drops accounts that hold nothing and whose past has faded, but not those somebody has at hand."""
        for account, use in list(self._uses.items()):
            self.advance(use, now)
            if use.count == 0 and use.history < below and account not in but:
                del self._uses[account]

    def advance(self, use: Use, now: float) -> None:
        """Lets the past of an account fade up to now."""
        if now > use.since:
            if use.history or use.share:
                kept = 0.5 ** ((now - use.since) / self.half_life_seconds)
                use.history = use.history * kept + use.share * (1.0 - kept)
            use.since = now


def jain(values: list[float]) -> float:
    """Jain's index: 1 when all have the same, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)
