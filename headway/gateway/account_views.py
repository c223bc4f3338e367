"""Tenants, plans, tiers, pools and keys as clients read them. What is read can be said again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

import msgspec

from headway.core.names import covers
from headway.gateway.amounts import written
from headway.store.accounts import PausedName, Plan, PoolRow, Tenant, TierRow


class TenantView(msgspec.Struct, frozen=True):
    """A tenant."""

    name: str
    plan: str
    paused: bool
    fresh: bool
    created_at: datetime
    changed_at: datetime


class Limits(msgspec.Struct, frozen=True):
    """What a plan allows."""

    tiers: list[str] | None
    urgent_share: float
    quota: dict[str, int | float]
    resource_max: dict[str, int | float] | None
    admission: str
    profiles: list[str]
    network: bool
    fresh: bool


class PlanView(Limits, frozen=True, kw_only=True):
    """A plan."""

    name: str
    created_at: datetime
    changed_at: datetime


class TierView(msgspec.Struct, frozen=True):
    """A tier."""

    name: str
    resources: dict[str, int | float]
    default_cap: float
    max_cap: float
    weight: float
    price: Decimal
    """Of one task for an hour, in no currency; a text, so that no reader rounds it."""
    profile: str
    changed_at: datetime


class PoolView(msgspec.Struct, frozen=True):
    """A pool."""

    name: str
    paused: bool
    peak_line: float
    peak_hysteresis: float
    promotion_margin: float
    half_life: float
    demand_target: float
    changed_at: datetime


class NameView(msgspec.Struct, frozen=True):
    """A task name that is, or was, paused."""

    name: str
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    held_by: list[str]
    """What else is paused that holds it: beginnings of it."""


class KeyView(msgspec.Struct, frozen=True):
    """A key in force, without its secret."""

    id: str
    tenant: str
    role: str
    label: str
    created_by: str | None
    created_at: datetime


class NewKeyView(msgspec.Struct, frozen=True):
    """A key just made; the only time that the whole of it is told."""

    key: str
    id: str
    tenant: str
    role: str
    label: str


class MeView(msgspec.Struct, frozen=True):
    """Who a key stands for, and what it may do."""

    tenant: str
    role: str
    submitted_by: str
    paused: bool
    plan: str
    limits: Limits


def tenant_view(tenant: Tenant) -> TenantView:
    """A tenant as the database has it."""
    return TenantView(tenant.name, tenant.plan, tenant.paused, tenant.fresh, tenant.created_at, tenant.changed_at)


def limits(plan: Plan) -> Limits:
    """What a plan allows, without what only its administrators need."""
    most = None if plan.resource_max is None else written(plan.resource_max)
    tiers = None if plan.tiers is None else list(plan.tiers)
    return Limits(
        tiers,
        plan.urgent_share,
        written(plan.quota),
        most,
        plan.admission,
        list(plan.profiles),
        plan.network,
        plan.fresh,
    )


def plan_view(plan: Plan) -> PlanView:
    """A plan as the database has it."""
    allowed = msgspec.structs.asdict(limits(plan))
    return PlanView(**allowed, name=plan.name, created_at=plan.created_at, changed_at=plan.changed_at)


def tier_view(tier: TierRow) -> TierView:
    """A tier as the database has it."""
    return TierView(
        name=tier.name,
        resources=written(tier.needs),
        default_cap=tier.default_cap_ms / 1000,
        max_cap=tier.max_cap_ms / 1000,
        weight=tier.weight,
        price=tier.price,
        profile=tier.profile,
        changed_at=tier.changed_at,
    )


def pool_view(pool: PoolRow) -> PoolView:
    """A pool as the database has it."""
    return PoolView(
        name=pool.name,
        paused=pool.paused,
        peak_line=pool.peak_line,
        peak_hysteresis=pool.peak_hysteresis,
        promotion_margin=pool.promotion_margin_ms / 1000,
        half_life=float(pool.half_life_seconds),
        demand_target=pool.demand_target,
        changed_at=pool.changed_at,
    )


def name_view(name: str, paused: Sequence[PausedName]) -> NameView:
    """A task name, by all that its tenant has paused."""
    own = next((one for one in paused if one.name == name), None)
    held_by = [one.name for one in paused if one is not own and covers(one.name, name)]
    by, at = (None, None) if own is None else (own.paused_by, own.paused_at)
    return NameView(name, own is not None, by, at, held_by)
