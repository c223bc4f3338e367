"""Who holds what in a pool, as the planner's orders and quotas ask it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headway.core.fairness import Shares, Use
from headway.core.order import Score
from headway.core.placement import Shape
from headway.core.policy import Policy
from headway.core.queue import Line

EVERYBODY = -1
"""In place of a tenant: all of a tier."""


class Usage:
    """The shares of tenants within tiers, of tiers, of each tenant's urgent tasks; and what a tenant holds in all."""

    def __init__(self, policy: Policy) -> None:
        half_life = policy.half_life_seconds
        self._shares: Shares[tuple[str, int]] = Shares(half_life_seconds=half_life)
        self._urgent: Shares[int] = Shares(half_life_seconds=half_life)
        self._tiers_of: dict[int, set[str]] = {}
        self._resizes = 0
        self.score = Score(self._shares)

    def heed(self, policy: Policy) -> None:
        """The policy changed."""
        for shares in (self._shares, self._urgent):
            shares.half_life_seconds = policy.half_life_seconds

    def resize(self, capacity: Mapping[str, int], now: float) -> None:
        """The pool grew or shrank."""
        self._resizes += 1
        for shares in (self._shares, self._urgent):
            shares.resize(capacity, now)

    def of(self, tier: str, tenant: int, now: float) -> Use:
        """What a tenant uses in a tier."""
        self._tiers_of.setdefault(tenant, set()).add(tier)
        return self._shares.use((tier, tenant), now)

    def of_tier(self, tier: str, now: float) -> Use:
        """What a tier uses."""
        return self._shares.use((tier, EVERYBODY), now)

    def occupy(self, tenant: int, shape: Shape, count: int, now: float, *, express: bool) -> None:
        """The tenant holds `count` more."""
        self.charge(self.of(shape.tier, tenant, now), self.of_tier(shape.tier, now), shape, count, now)
        if express:
            self.charge_urgent(tenant, shape, count, now)

    def charge(self, use: Use, tier_use: Use, shape: Shape, count: int, now: float) -> None:
        """The same, by accounts at hand."""
        self._shares.occupy_both(use, tier_use, shape.needs, count, now)

    def charge_urgent(self, tenant: int, shape: Shape, count: int, now: float) -> None:
        """Of what the tenant holds, `count` more started ahead of others."""
        self._urgent.occupy(self._urgent.use(tenant, now), shape.needs, count, now)

    def vacate(self, tenant: int, shape: Shape, count: int, now: float, *, express: bool) -> None:
        """The tenant holds `count` fewer."""
        shares, tier = self._shares, shape.tier
        shares.vacate_both(shares.use((tier, tenant), now), shares.use((tier, EVERYBODY), now), shape.needs, count, now)
        if express:
            self._urgent.vacate(self._urgent.use(tenant, now), shape.needs, count, now)

    def held(self, tenant: int, now: float) -> dict[str, int]:
        """What a tenant holds in all: `running`, and each resource."""
        held: Counter[str] = Counter()
        for tier in self._tiers_of.get(tenant, ()):
            use = self._shares.use((tier, tenant), now)
            held["running"] += use.count
            held.update(use.held)
        return held

    def in_all(self, tenant: int) -> list[Use]:
        """What a tenant uses in each of its tiers; asked for every start that a quota bounds."""
        find = self._shares.find
        return [use for tier in self._tiers_of.get(tenant, ()) if (use := find((tier, tenant))) is not None]

    def held_by_tiers(self) -> dict[str, dict[str, int]]:
        """What each tier holds of every resource."""
        return {tier: held for (tier, tenant), held in self._shares.all_held().items() if tenant == EVERYBODY}

    def part(self, line: Line) -> float:
        """Which part of the pool one task of a line is."""
        if line.part_of != self._resizes:
            line.part, line.part_of = self._shares.part(line.shape.needs), self._resizes
        return line.part

    def urgent_share(self, tenant: int) -> float:
        """Which part of the pool the tenant's urgent tasks hold."""
        return self._urgent.share(tenant)

    def forget_idle(self, now: float, *, but: set[tuple[str, int]]) -> None:
        """Drops whoever holds nothing and whose past has faded, but not those who wait."""
        self._shares.forget_idle(now, but=but | {(tier, EVERYBODY) for tier, _ in but})
        self._urgent.forget_idle(now, but=set())
