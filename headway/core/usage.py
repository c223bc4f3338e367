"""Who holds what in a pool, as the planner's orders and quotas ask it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headway.core.fairness import Shares
from headway.core.placement import Shape
from headway.core.policy import Policy


class Usage:
    """The shares of tenants within tiers, of tiers, of each tenant's urgent tasks; and what a tenant holds in all."""

    def __init__(self, policy: Policy) -> None:
        half_life = policy.half_life_seconds
        self._by_account: Shares[tuple[str, int]] = Shares(half_life_seconds=half_life)
        self._by_tier: Shares[str] = Shares(half_life_seconds=half_life)
        self._urgent: Shares[int] = Shares(half_life_seconds=half_life)
        self._held: dict[int, Counter[str]] = {}

    def heed(self, policy: Policy) -> None:
        """The policy changed."""
        for shares in (self._by_account, self._by_tier, self._urgent):
            shares.half_life_seconds = policy.half_life_seconds

    def resize(self, capacity: Mapping[str, int], now: float) -> None:
        """The pool grew or shrank."""
        for shares in (self._by_account, self._by_tier, self._urgent):
            shares.resize(capacity, now)

    def occupy(self, tenant: int, shape: Shape, count: int, now: float, *, express: bool) -> None:
        """The tenant holds `count` more."""
        self._by_account.occupy((shape.tier, tenant), shape.needs, count, now)
        self._by_tier.occupy(shape.tier, shape.needs, count, now)
        if express:
            self._urgent.occupy(tenant, shape.needs, count, now)
        held = self._held.setdefault(tenant, Counter())
        held["running"] += count
        for name, amount in shape.needs.items():
            held[name] += amount * count

    def vacate(self, tenant: int, shape: Shape, count: int, now: float, *, express: bool) -> None:
        """The tenant holds `count` fewer."""
        self._by_account.vacate((shape.tier, tenant), shape.needs, count, now)
        self._by_tier.vacate(shape.tier, shape.needs, count, now)
        if express:
            self._urgent.vacate(tenant, shape.needs, count, now)
        held = self._held.get(tenant)
        if held is None:
            return
        held["running"] -= count
        for name, amount in shape.needs.items():
            held[name] -= amount * count
        if held["running"] <= 0:
            del self._held[tenant]

    def held(self, tenant: int) -> dict[str, int]:
        """What a tenant holds: `running`, and each resource."""
        return self._held.get(tenant, _NOTHING)

    def part(self, shape: Shape) -> float:
        """Which part of the pool one task of a shape is."""
        return self._by_tier.part(shape.needs)

    def urgent_share(self, tenant: int) -> float:
        """Which part of the pool the tenant's urgent tasks hold."""
        return self._urgent.share(tenant)

    def tier_score(self, tier: str, now: float, *, history_weight: float) -> float:
        """What stands against a tier."""
        return self._by_tier.score(tier, now, history_weight=history_weight)

    def tenant_score(self, tier: str, tenant: int, now: float, *, history_weight: float) -> float:
        """What stands against a tenant in a tier."""
        return self._by_account.score((tier, tenant), now, history_weight=history_weight)

    def forget_idle(self, now: float) -> None:
        """Drops whoever holds nothing and whose past has faded."""
        for shares in (self._by_account, self._by_tier, self._urgent):
            shares.forget_idle(now)


_NOTHING: Counter[str] = Counter()
