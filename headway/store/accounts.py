"""Who may use how much: tenants, plans, tiers, keys and pools.

Every change to what `policy` reads is counted in its own transaction, so a reader that knows the count asks one cheap
statement whether there is anything new. Rows come out of PostgreSQL as JSON, which is what the structs decode from.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeVar

import asyncpg
import msgspec
from msgspec import UNSET, UnsetType

from headway.core.profiles import Profile
from headway.core.refusal import Refused
from headway.store.database import Database, Row
from headway.store.statements import statements

_SQL = statements("accounts")
T = TypeVar("T")
Admission = Literal["warn", "refuse"]


class Plan(msgspec.Struct, frozen=True):
    """What the tenants on it may do."""

    name: str
    tiers: tuple[str, ...] | None
    """None: all."""
    urgent_share: float
    quota: dict[str, int]
    """Most in use at once: `running` attempts, and resources by name."""
    resource_max: dict[str, int] | None
    """Most that one task may ask for; None: no bound."""
    admission: Admission
    """What becomes of a task that cannot start within its tolerance."""
    profiles: tuple[Profile, ...]
    """Which its tasks may ask for though their tier's is stricter."""
    network: bool
    """Whether its tasks may have the node's network in their sandboxes."""
    fresh: bool
    """Whether each of their tasks has a sandbox in which nothing ever ran."""
    created_at: datetime
    changed_at: datetime


class Tenant(msgspec.Struct, frozen=True):
    """An account that owns tasks."""

    tenant: int
    name: str
    plan: str
    paused: bool
    fresh: bool
    """As of a plan; one of the two is enough."""
    created_at: datetime
    changed_at: datetime


class TierRow(msgspec.Struct, frozen=True):
    """A named size of task, with what it weighs."""

    name: str
    needs: dict[str, int]
    default_cap_ms: int
    max_cap_ms: int
    weight: float
    price: Decimal
    """Of one task for an hour, in no currency."""
    profile: Profile
    """How closed in its tasks run."""
    changed_at: datetime


class PausedName(msgspec.Struct, frozen=True):
    """A task name of a tenant that is paused, or the beginning of some."""

    tenant: int
    name: str
    paused_by: str
    paused_at: datetime


class PoolRow(msgspec.Struct, frozen=True):
    """A scheduling domain and how it is steered."""

    pool: int
    name: str
    paused: bool
    peak_line: float
    peak_hysteresis: float
    promotion_margin_ms: int
    half_life_seconds: int
    demand_target: float
    changed_at: datetime


class Key(msgspec.Struct, frozen=True):
    """A key in force, without its secret."""

    id: str
    tenant: str
    role: str
    label: str
    created_by: str | None
    created_at: datetime


class TenantChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a tenant; what is unset stays."""

    plan: str | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    fresh: bool | UnsetType = UNSET


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a plan, or to make it with; what is unset stays."""

    tiers: list[str] | UnsetType | None = UNSET
    urgent_share: float | UnsetType = UNSET
    quota: dict[str, int] | UnsetType = UNSET
    resource_max: dict[str, int] | UnsetType | None = UNSET
    admission: Admission | UnsetType = UNSET
    profiles: list[Profile] | UnsetType = UNSET
    network: bool | UnsetType = UNSET
    fresh: bool | UnsetType = UNSET


class TierChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a tier, or to make it with; what is unset stays."""

    needs: dict[str, int] | UnsetType = UNSET
    default_cap_ms: int | UnsetType = UNSET
    max_cap_ms: int | UnsetType = UNSET
    weight: float | UnsetType = UNSET
    price: Decimal | UnsetType = UNSET
    profile: str | UnsetType = UNSET


class PoolChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a pool; what is unset stays."""

    paused: bool | UnsetType = UNSET
    peak_line: float | UnsetType = UNSET
    peak_hysteresis: float | UnsetType = UNSET
    promotion_margin_ms: int | UnsetType = UNSET
    half_life_seconds: int | UnsetType = UNSET
    demand_target: float | UnsetType = UNSET


class PolicyRows(msgspec.Struct, frozen=True):
    """All that decides who may use how much, as of one moment."""

    version: int
    pool: PoolRow
    plans: dict[str, Plan]
    tenants: dict[int, Tenant]
    tiers: dict[str, TierRow]
    paused_names: frozenset[tuple[int, str]]
    """By tenant and name."""

    def plan_of(self, tenant: int) -> Plan:
        """The plan a tenant is on."""
        return self.plans[self.tenants[tenant].plan]

    def wants_fresh(self, tenant: int) -> bool:
        """Whether a tenant's tasks all have sandboxes in which nothing ever ran."""
        return self.tenants[tenant].fresh or self.plan_of(tenant).fresh


class AccountStore:
    """The accounts, and the one pool whose policy is read here."""

    def __init__(self, database: Database, pool: int) -> None:
        self._database = database
        self._pool = pool

    async def policy(self, known: int = 0) -> PolicyRows | None:
        """Everything at once; None when it is still version `known`."""
        row = await self._database.fetchrow(_SQL["policy"], self._pool, known)
        return None if row is None else _policy(row)

    async def create_tenant(self, name: str, plan: str) -> Tenant | Refused | None:
        """A new tenant; None when the name is taken."""
        try:
            return _one(await self._change("create_tenant", name, plan), Tenant)
        except asyncpg.ForeignKeyViolationError:
            return _no_plan(plan)

    async def tenants(self, after: str = "", limit: int = 1000) -> list[Tenant]:
        """Tenants by name, behind a name."""
        return _all(await self._database.fetch(_SQL["tenants"], after, limit), Tenant)

    async def tenant(self, name: str) -> Tenant | None:
        """A tenant by name."""
        return _one(await self._database.fetch(_SQL["tenant"], name), Tenant)

    async def tenant_by_number(self, tenant: int) -> Tenant:
        """A tenant that there is: they are never deleted."""
        found = _one(await self._database.fetch(_SQL["tenant_by_number"], tenant), Tenant)
        assert found is not None
        return found

    async def change_tenant(self, name: str, change: TenantChange) -> Tenant | Refused | None:
        """A tenant as changed; None when there is none."""
        try:
            return _one(await self._change("change_tenant", name, _encoded(change)), Tenant)
        except asyncpg.ForeignKeyViolationError:
            return _no_plan(str(change.plan))

    async def create_plan(self, name: str, change: PlanChange) -> Plan | None:
        """A new plan; None when the name is taken."""
        return _one(await self._change("create_plan", name, _encoded(change)), Plan)

    async def plans(self) -> list[Plan]:
        """All plans by name."""
        return _all(await self._database.fetch(_SQL["plans"]), Plan)

    async def plan(self, name: str) -> Plan | None:
        """A plan by name."""
        return _one(await self._database.fetch(_SQL["plan"], name), Plan)

    async def change_plan(self, name: str, change: PlanChange) -> Plan | None:
        """A plan as changed; None when there is none."""
        return _one(await self._change("change_plan", name, _encoded(change)), Plan)

    async def tiers(self) -> list[TierRow]:
        """All tiers by name."""
        return _all(await self._database.fetch(_SQL["tiers"]), TierRow)

    async def tier(self, name: str) -> TierRow | None:
        """A tier by name."""
        return _one(await self._database.fetch(_SQL["tier"], name), TierRow)

    async def keep_tier(self, name: str, change: TierChange) -> TierRow | Refused:
        """A tier as changed, or made when there was none."""
        said = name, _encoded(change)
        steps = (_SQL["count_change"], ()), (_SQL["change_tier"], said), (_SQL["create_tier"], said)
        try:
            _, changed, created = await self._database.together(*steps)
        except asyncpg.CheckViolationError:
            return Refused("max_cap", "must not be shorter than default_cap")
        kept = _one(changed or created, TierRow)
        return kept or Refused("resources", f"tier {name!r} is new, so say what it stands for, such as cpu and memory")

    async def pause_name(self, tenant: int, name: str, paused_by: str, most: int) -> PausedName | None:
        """Pauses a name of a tenant; None when it has `most` paused already."""
        return _one(await self._change("pause_name", tenant, name, paused_by, most), PausedName)

    async def resume_name(self, tenant: int, name: str) -> bool:
        """Ends a pause; False when there was none."""
        return bool(await self._change("resume_name", tenant, name))

    async def paused_names(self, tenant: int) -> list[PausedName]:
        """What a tenant has paused, by name."""
        return _all(await self._database.fetch(_SQL["paused_names"], tenant), PausedName)

    async def pools(self) -> list[PoolRow]:
        """All pools by name."""
        return _all(await self._database.fetch(_SQL["pools"]), PoolRow)

    async def pool(self, name: str) -> PoolRow | None:
        """A pool by name."""
        return _one(await self._database.fetch(_SQL["pool"], name), PoolRow)

    async def change_pool(self, name: str, change: PoolChange) -> PoolRow | Refused | None:
        """A pool as changed; None when there is none."""
        try:
            return _one(await self._change("change_pool", name, _encoded(change)), PoolRow)
        except asyncpg.CheckViolationError:
            return Refused("peak_hysteresis", "must be less than peak_line")

    async def create_key(
        self, key_id: str, *, tenant: str, role: str, digest: bytes, label: str, created_by: str
    ) -> Key | None:
        """A new key; None when there is no such tenant."""
        rows = await self._database.fetch(_SQL["create_key"], key_id, tenant, role, digest, label, created_by)
        return _one(rows, Key)

    async def keys(self, tenant: str | None, role: str | None, after: str = "", limit: int = 1000) -> list[Key]:
        """Keys in force by id, behind an id; of one tenant and role, or of all."""
        return _all(await self._database.fetch(_SQL["keys"], tenant, role, after, limit), Key)

    async def revoke_key(self, key_id: str, *, tenant: int | None = None, role: str | None = None) -> bool:
        """Ends a key (if it is of that tenant and role); False when no such key is in force."""
        return await self._database.fetchrow(_SQL["revoke_key"], key_id, tenant, role) is not None

    async def _change(self, statement: str, *args: object) -> list[Row]:
        _, rows = await self._database.together((_SQL["count_change"], ()), (_SQL[statement], args))
        return rows


def _policy(row: Row) -> PolicyRows:
    return PolicyRows(
        version=row["version"],
        pool=msgspec.json.decode(row["pool"], type=PoolRow),
        plans={plan.name: plan for plan in msgspec.json.decode(row["plans"], type=list[Plan])},
        tenants={tenant.tenant: tenant for tenant in msgspec.json.decode(row["tenants"], type=list[Tenant])},
        tiers={tier.name: tier for tier in msgspec.json.decode(row["tiers"], type=list[TierRow])},
        paused_names=frozenset(
            (one.tenant, one.name) for one in msgspec.json.decode(row["paused_names"], type=list[PausedName])
        ),
    )


def _encoded(change: msgspec.Struct) -> str:
    return msgspec.json.encode(change).decode()


def _all(rows: list[Row], kind: type[T]) -> list[T]:
    return [msgspec.json.decode(row[0], type=kind) for row in rows]


def _one(rows: list[Row], kind: type[T]) -> T | None:
    return _all(rows, kind)[0] if rows else None


def _no_plan(plan: str) -> Refused:
    return Refused("plan", f"there is no plan {plan!r}")
