"""Who has had how much: dominant-resource shares in use, and what they were before, fading.

A share is the largest part of the pool that an account holds of any one resource. History is the average share over
time, with the half-life that the policy says; idle time forgives. Accounts are looked at lazily: an account that nobody
asks about costs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from headway.core.resources import Vector, give, take

Account = TypeVar("Account", bound=Hashable)


class _Use:
    __slots__ = ("held", "history", "share", "since")

    def __init__(self, now: float) -> None:
        self.held: dict[str, int] = {}
        self.share = 0.0
        self.history = 0.0
        self.since = now


class Shares(Generic[Account]):
    """The shares of accounts in a pool of some capacity."""

    def __init__(self, *, half_life_seconds: float) -> None:
        self.half_life_seconds = half_life_seconds
        self._capacity: dict[str, int] = {}
        self._uses: dict[Account, _Use] = {}

    def resize(self, capacity: Mapping[str, int], now: float) -> None:
        """The pool grew or shrank: shares mean something else from now on."""
        for use in self._uses.values():
            self._advance(use, now)
        self._capacity = dict(capacity)
        for use in self._uses.values():
            use.share = self.part(use.held)

    def part(self, needs: Vector) -> float:
        """The dominant share that a vector would be."""
        parts = [amount / self._capacity[name] for name, amount in needs.items() if self._capacity.get(name, 0) > 0]
        return max(parts, default=0.0)

    def occupy(self, account: Account, needs: Vector, count: int, now: float) -> None:
        """The account holds `count` more."""
        use = self._uses.get(account)
        if use is None:
            use = self._uses[account] = _Use(now)
        self._advance(use, now)
        give(use.held, needs, count)
        use.share = self.part(use.held)

    def vacate(self, account: Account, needs: Vector, count: int, now: float) -> None:
        """The account holds `count` fewer."""
        use = self._uses.get(account)
        if use is None:
            return
        self._advance(use, now)
        take(use.held, needs, count)
        use.share = max(self.part(use.held), 0.0)

    def share(self, account: Account) -> float:
        """What the account holds now."""
        use = self._uses.get(account)
        return use.share if use is not None else 0.0

    def held(self, account: Account, resource: str) -> int:
        """How much of one resource the account holds now."""
        use = self._uses.get(account)
        return use.held.get(resource, 0) if use is not None else 0

    def score(self, account: Account, now: float, *, history_weight: float) -> float:
        """What stands against the account: its share now, and its fading past."""
        use = self._uses.get(account)
        if use is None:
            return 0.0
        self._advance(use, now)
        return use.share + history_weight * use.history

    def forget_idle(self, now: float, *, below: float = 1e-6) -> None:
        """Drops accounts that hold nothing and whose past has faded."""
        for account, use in list(self._uses.items()):
            self._advance(use, now)
            if use.share == 0.0 and use.history < below:
                del self._uses[account]

    def _advance(self, use: _Use, now: float) -> None:
        if now > use.since:
            kept = 0.5 ** ((now - use.since) / self.half_life_seconds)
            use.history = use.history * kept + use.share * (1.0 - kept)
            use.since = now


def jain(values: list[float]) -> float:
    """Jain's index: 1 when all have the same, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)
