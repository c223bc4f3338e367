"""What operators changed, read from the database and told to the planner."""

from __future__ import annotations

import asyncio

from headway.core.policy import Plan, Policy
from headway.store.accounts import AccountStore, PolicyRows


class Policies:
    """The policy as last read."""

    def __init__(self, accounts: AccountStore) -> None:
        self._accounts = accounts
        self._asking = asyncio.Lock()
        self._version = 0

    def clear(self) -> None:
        """Forgets what was read."""
        self._version = 0

    async def changed(self) -> Policy | None:
        """The policy, if it was changed since this was last asked."""
        async with self._asking:  # an answer that is older than what is known would take it back
            fresh = await self._accounts.policy(self._version)
            if fresh is None:
                return None
            self._version = fresh.version
            return _policy(fresh)


def _policy(rows: PolicyRows) -> Policy:
    plans = {name: Plan(plan.urgent_share, plan.quota) for name, plan in rows.plans.items()}
    return Policy(
        weights={name: tier.weight for name, tier in rows.tiers.items()},
        plans={number: plans[tenant.plan] for number, tenant in rows.tenants.items()},
        paused=rows.pool.paused,
        paused_tenants=frozenset(number for number, tenant in rows.tenants.items() if tenant.paused),
        paused_names=rows.paused_names,
        peak_line=rows.pool.peak_line,
        peak_hysteresis=rows.pool.peak_hysteresis,
        promotion_margin_seconds=rows.pool.promotion_margin_ms / 1000,
        half_life_seconds=float(rows.pool.half_life_seconds),
        demand_target=rows.pool.demand_target,
    )
