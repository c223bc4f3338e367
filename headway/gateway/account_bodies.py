"""What clients say about tenants, plans, tiers, pools and keys, checked: each body becomes a change for the store, or
the list of everything that is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from headway.core.profiles import Profile
from headway.core.quantity import duration_ms
from headway.core.refusal import Refused
from headway.core.task import NAME_CHARS_MAX, Duration
from headway.gateway.amounts import Said, integers
from headway.store.accounts import Admission, PlanChange, PoolChange, TenantChange, TierChange

Role = Literal["client", "admin", "node"]
Resources = dict[str, Said]

TIERS_MAX = 1000
WEIGHT_MAX = 1_000_000.0
PRICE_MAX = Decimal(1_000_000_000)
PRICE_PLACES = 6
MARGIN_MS_MAX = 24 * 3_600_000
HALF_LIFE_MS_MAX = 90 * 24 * 3_600_000
NAME_RULE = "expected 1 to 63 letters, digits or any of ._- and a letter or digit first"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class TenantBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/tenants`."""

    name: str
    plan: str = "default"

    def wrong(self) -> list[Refused]:
        """Everything that is wrong with it."""
        return [*_wrong_name(self.name), *_wrong_reference("plan", self.plan)]


class TenantPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `PATCH /v1/tenants/{name}`: what is left out stays."""

    plan: str | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    fresh: bool | UnsetType = UNSET

    def change(self) -> TenantChange | list[Refused]:
        """What it changes, or everything that is wrong with it."""
        wrong = [] if self.plan is UNSET else _wrong_reference("plan", self.plan)
        return wrong or TenantChange(plan=self.plan, paused=self.paused, fresh=self.fresh)


class PlanPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `PATCH /v1/plans/{name}`: what is left out stays, a null takes the bound away."""

    tiers: list[str] | UnsetType | None = UNSET
    urgent_share: float | UnsetType = UNSET
    quota: Resources | UnsetType = UNSET
    resource_max: Resources | UnsetType | None = UNSET
    admission: Admission | UnsetType = UNSET
    profiles: list[Profile] | UnsetType = UNSET
    network: bool | UnsetType = UNSET
    fresh: bool | UnsetType = UNSET

    def change(self) -> PlanChange | list[Refused]:
        """What it changes, or everything that is wrong with it."""
        wrong: list[Refused] = []
        quota = _vector("quota", self.quota, wrong)
        resource_max = _vector("resource_max", self.resource_max, wrong)
        if isinstance(quota, dict) and quota.get("running", 1) < 1:
            wrong.append(Refused("quota.running", "must be at least 1; to keep a tenant from running, pause it"))
        if isinstance(self.tiers, list):
            wrong += _wrong_tiers(self.tiers)
        wrong += _wrong_number("urgent_share", self.urgent_share, 0.0, 1.0)
        return wrong or PlanChange(
            tiers=self.tiers,
            urgent_share=self.urgent_share,
            quota={} if quota is None else quota,
            resource_max=resource_max,
            admission=self.admission,
            profiles=self.profiles if self.profiles is UNSET else sorted(set(self.profiles)),
            network=self.network,
            fresh=self.fresh,
        )


class PlanBody(PlanPatch, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/plans`."""

    name: str

    def change(self) -> PlanChange | list[Refused]:
        """What it is to be, or everything that is wrong with it."""
        change = PlanPatch.change(self)
        if is_name(self.name):
            return change
        return [*_wrong_name(self.name), *(change if isinstance(change, list) else ())]


class TierBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `PUT /v1/tiers/{name}`: what is left out stays, or gets a value that goes with the rest."""

    resources: Resources | UnsetType = UNSET
    default_cap: Duration | UnsetType = UNSET
    max_cap: Duration | UnsetType = UNSET
    weight: float | UnsetType = UNSET
    price: Decimal | UnsetType = UNSET
    profile: Profile | UnsetType = UNSET

    def change(self, name: str) -> TierChange | list[Refused]:
        """What it changes or makes, or everything that is wrong with it."""
        wrong = _wrong_name(name)
        needs = _vector("resources", self.resources, wrong)
        default_cap = _milliseconds("default_cap", self.default_cap, wrong, least_ms=1)
        max_cap = _milliseconds("max_cap", self.max_cap, wrong, least_ms=1)
        wrong += _wrong_number("weight", self.weight, 0.001, WEIGHT_MAX)
        wrong += _wrong_price(self.price)
        if isinstance(needs, dict) and "workers" in needs:
            wrong.append(Refused("resources.workers", "there is no such resource"))
        return wrong or TierChange(
            needs={} if needs is None else needs,
            default_cap_ms=default_cap,
            max_cap_ms=max_cap,
            weight=self.weight,
            price=self.price,
            profile=self.profile,
        )


class PoolPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `PATCH /v1/pools/{name}`: what is left out stays."""

    paused: bool | UnsetType = UNSET
    peak_line: float | UnsetType = UNSET
    peak_hysteresis: float | UnsetType = UNSET
    promotion_margin: Duration | UnsetType = UNSET
    half_life: Duration | UnsetType = UNSET
    demand_target: float | UnsetType = UNSET

    def change(self) -> PoolChange | list[Refused]:
        """What it changes, or everything that is wrong with it."""
        wrong = _wrong_number("peak_line", self.peak_line, 0.01, 1.0)
        wrong += _wrong_number("peak_hysteresis", self.peak_hysteresis, 0.0, 1.0)
        wrong += _wrong_number("demand_target", self.demand_target, 0.1, 100.0)
        margin = _milliseconds("promotion_margin", self.promotion_margin, wrong, most_ms=MARGIN_MS_MAX)
        half_life = _milliseconds("half_life", self.half_life, wrong, least_ms=1000, most_ms=HALF_LIFE_MS_MAX)
        return wrong or PoolChange(
            paused=self.paused,
            peak_line=self.peak_line,
            peak_hysteresis=self.peak_hysteresis,
            promotion_margin_ms=margin,
            half_life_seconds=half_life if half_life is UNSET else half_life // 1000,
            demand_target=self.demand_target,
        )


class KeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/keys`; the tenant is that of the caller when none is named."""

    tenant: str | None = None
    role: Role = "client"
    label: str = ""

    def wrong(self) -> list[Refused]:
        """Everything that is wrong with it."""
        wrong = [] if self.tenant is None else _wrong_reference("tenant", self.tenant)
        if len(self.label) > NAME_CHARS_MAX:
            wrong.append(Refused("label", f"must not exceed {NAME_CHARS_MAX} characters"))
        return wrong


def is_name(text: str) -> bool:
    """Whether a tenant, plan, tier or pool can be called so."""
    return _NAME.fullmatch(text) is not None


def _wrong_name(name: str) -> list[Refused]:
    return [] if is_name(name) else [Refused("name", NAME_RULE)]


def _wrong_reference(path: str, name: str) -> list[Refused]:
    return [] if is_name(name) else [Refused(path, f"there is no {path} {name[:80]!r}")]


def _wrong_tiers(tiers: list[str]) -> list[Refused]:
    if not tiers:
        return [Refused("tiers", "name at least one; null allows all")]
    if len(tiers) > TIERS_MAX:
        return [Refused("tiers", f"must not exceed {TIERS_MAX} names")]
    return [Refused(f"tiers[{n}]", f"there is no tier {t[:80]!r}") for n, t in enumerate(tiers) if not is_name(t)]


def _wrong_number(path: str, value: float | UnsetType, least: float, most: float) -> list[Refused]:
    if value is UNSET or least <= value <= most:
        return []
    return [Refused(path, f"must be from {least:g} to {most:.12g}")]


def _wrong_price(price: Decimal | UnsetType) -> list[Refused]:
    if price is UNSET:
        return []
    if not price.is_finite() or not 0 <= price <= PRICE_MAX:
        return [
            Refused("price", f"expected a decimal from 0 to {PRICE_MAX}, such as 0.12: what one task costs an hour")
        ]
    if round(price, PRICE_PLACES) != price:
        return [Refused("price", f"must not have more than {PRICE_PLACES} decimals")]
    return []


def _vector(
    path: str, said: Mapping[str, Said] | UnsetType | None, wrong: list[Refused]
) -> dict[str, int] | UnsetType | None:
    if said is None or said is UNSET:
        return said
    vector = integers(said, path)
    if isinstance(vector, list):
        wrong += vector
        return UNSET
    return vector


def _milliseconds(
    path: str, said: Duration | UnsetType, wrong: list[Refused], *, least_ms: int = 0, most_ms: int | None = None
) -> int | UnsetType:
    if said is UNSET:
        return UNSET
    found = duration_ms(said, path, least_ms=least_ms)
    if isinstance(found, int) and most_ms is not None and found > most_ms:
        found = Refused(path, f"must not exceed {most_ms / 3_600_000:g}h")
    if isinstance(found, Refused):
        wrong.append(found)
        return UNSET
    return found
