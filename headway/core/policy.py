"""What operators decide, as the planner sees it: pool, tiers, plans, pauses. Rows of the database, read as a whole."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, frozen=True):
    """What a tenant may have."""

    urgent_share: float = 0.25
    """The part of the pool that the tenant's urgent tasks may hold ahead of everybody else's work."""
    quota: dict[str, int] = {}
    """The most in use at once: `running` tasks, and any resource."""


class Policy(msgspec.Struct, frozen=True):
    """Everything adjustable that a decision depends on."""

    weights: dict[str, float] = {}
    """Fair-share weight by tier; 1 where none is given."""
    plans: dict[int, Plan] = {}
    """By tenant; the default plan where none is given."""
    paused: bool = False
    paused_tenants: frozenset[int] = frozenset()
    paused_names: frozenset[tuple[int, str]] = frozenset()
    """By tenant and name; see core/names.py."""
    peak_line: float = 0.8
    peak_hysteresis: float = 0.1
    promotion_margin_seconds: float = 5.0
    half_life_seconds: float = 3600.0
    history_weight: float = 0.5
    """How much what was used before counts against what is in use now."""
    demand_target: float = 1.25
    """How much more than is asked for the pool should have."""
    reserve_after_seconds: float = 1.0
    """How long a task may be passed over before a node is kept for it."""

    quanta_seconds: tuple[float, ...] = (10.0, 60.0, 600.0)
    """How long a preemptible task runs on each level before it sinks to the next."""
    least_run_seconds: float = 5.0
    """How long an attempt runs before it may be paused."""
    preempt_after_seconds: float = 1.0
    """How long there has been no room before somebody is paused."""
    preempt_patience_seconds: float = 30.0
    """How long the paused may take to leave before others are paused for the same."""
    preemptions_per_task: int = 3
    preemptions_per_minute: float = 60.0

    def weight(self, tier: str) -> float:
        """A tier's weight."""
        return self.weights.get(tier, 1.0)

    def plan(self, tenant: int) -> Plan:
        """A tenant's plan."""
        return self.plans.get(tenant, _DEFAULT)


_DEFAULT = Plan()
