"""The HTTP endpoints about accounts: tenants, plans, tiers, pools, keys.

An administrator's key changes everything here; any other client's reads tiers, and sees to the keys of its own tenant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headway.core.names import PAUSED_MAX, wrong_name
from headway.core.refusal import Refused
from headway.gateway.account_bodies import (
    KeyBody,
    PlanBody,
    PlanPatch,
    PoolPatch,
    TenantBody,
    TenantPatch,
    TierBody,
    is_name,
)
from headway.gateway.account_views import (
    KeyView,
    MeView,
    NewKeyView,
    limits,
    name_view,
    plan_view,
    pool_view,
    tenant_view,
    tier_view,
)
from headway.gateway.auth import Authenticator, Caller, digest_of, new_key
from headway.gateway.decoding import (
    SINGLE_BYTES_MAX,
    decode,
    expect_media_type,
    read_body,
    whole,
)
from headway.gateway.problems import Problem, refused
from headway.store.accounts import AccountStore, Key, PoolChange, TierRow

LIST_MAX = 1000
T = TypeVar("T")
Change = TypeVar("Change", bound=msgspec.Struct)

_tenant_body = msgspec.json.Decoder(TenantBody)
_tenant_patch = msgspec.json.Decoder(TenantPatch)
_plan_body = msgspec.json.Decoder(PlanBody)
_plan_patch = msgspec.json.Decoder(PlanPatch)
_tier_body = msgspec.json.Decoder(TierBody)
_pool_patch = msgspec.json.Decoder(PoolPatch)
_key_body = msgspec.json.Decoder(KeyBody)
_encode = msgspec.json.Encoder().encode


class AccountsApi:
    """The endpoints and what they lean on; `changed` is called when something that decides about tasks was."""

    def __init__(
        self, *, accounts: AccountStore, authenticator: Authenticator, changed: Callable[[], Awaitable[None]]
    ) -> None:
        self._accounts = accounts
        self._authenticator = authenticator
        self._changed = changed

    async def _client(self, request: Request) -> Caller:
        return await self._authenticator.caller(request.headers.get("authorization"), role="client")

    async def _admin(self, request: Request) -> Caller:
        return await self._authenticator.caller(request.headers.get("authorization"), role="admin")

    async def me(self, request: Request) -> Response:
        """Who the key stands for, and what its plan allows."""
        caller = await self._client(request)
        tenant = await self._accounts.tenant_by_number(caller.tenant)
        plan = _there(await self._accounts.plan(tenant.plan), "plan", tenant.plan)
        me = MeView(tenant.name, caller.role, caller.submitted_by, tenant.paused, plan.name, limits(plan))
        return _json(me)

    async def create_tenant(self, request: Request) -> Response:
        """Makes a tenant."""
        await self._admin(request)
        said = await _body(request, _tenant_body)
        _refuse(said.wrong())
        made = _new(await self._accounts.create_tenant(said.name, said.plan), "tenant", said.name)
        await self._changed()
        return _created(f"/v1/tenants/{made.name}", tenant_view(made))

    async def tenants(self, request: Request) -> Response:
        """Lists the tenants by name."""
        await self._admin(request)
        after, limit = _page(request)
        found = await self._accounts.tenants(after, limit)
        return _list([tenant_view(tenant) for tenant in found], found[-1].name if len(found) == limit else None)

    async def tenant(self, request: Request) -> Response:
        """Shows a tenant."""
        await self._admin(request)
        name = _name(request, "tenant")
        return _json(tenant_view(_there(await self._accounts.tenant(name), "tenant", name)))

    async def change_tenant(self, request: Request) -> Response:
        """Puts a tenant on another plan, pauses or resumes it."""
        await self._admin(request)
        name = _name(request, "tenant")
        change = _in_order((await _body(request, _tenant_patch)).change())
        changed = _there(await self._accounts.change_tenant(name, change), "tenant", name)
        await self._changed()
        return _json(tenant_view(changed))

    async def create_plan(self, request: Request) -> Response:
        """Makes a plan."""
        await self._admin(request)
        said = await _body(request, _plan_body)
        plan = _in_order(said.change())
        await self._expect_tiers(plan.tiers)
        made = _new(await self._accounts.create_plan(said.name, plan), "plan", said.name)
        await self._changed()
        return _created(f"/v1/plans/{made.name}", plan_view(made))

    async def plans(self, request: Request) -> Response:
        """Lists the plans by name."""
        await self._admin(request)
        return _list([plan_view(plan) for plan in await self._accounts.plans()])

    async def plan(self, request: Request) -> Response:
        """Shows a plan."""
        await self._admin(request)
        name = _name(request, "plan")
        return _json(plan_view(_there(await self._accounts.plan(name), "plan", name)))

    async def change_plan(self, request: Request) -> Response:
        """Changes a plan for all tenants on it."""
        await self._admin(request)
        name = _name(request, "plan")
        change = _in_order((await _body(request, _plan_patch)).change())
        await self._expect_tiers(change.tiers)
        changed = _there(await self._accounts.change_plan(name, change), "plan", name)
        await self._changed()
        return _json(plan_view(changed))

    async def _expect_tiers(self, tiers: Sequence[str] | msgspec.UnsetType | None) -> None:
        """Refuses tiers that there are not; there is no way to take one away, so they stay."""
        if isinstance(tiers, msgspec.UnsetType) or tiers is None:
            return
        known = {tier.name for tier in await self._accounts.tiers()}
        there_are = ", ".join(sorted(known))
        wrong = [
            Refused(f"tiers[{number}]", f"there is no tier {tier!r}; there are: {there_are}")
            for number, tier in enumerate(tiers)
            if tier not in known
        ]
        _refuse(wrong)

    async def tiers(self, request: Request) -> Response:
        """Lists the tiers by name."""
        await self._client(request)
        return _list([tier_view(tier) for tier in await self._accounts.tiers()])

    async def tier(self, request: Request) -> Response:
        """Shows a tier."""
        await self._client(request)
        name = _name(request, "tier")
        return _json(tier_view(_there(await self._accounts.tier(name), "tier", name)))

    async def keep_tier(self, request: Request) -> Response:
        """Changes a tier, or makes it. Tasks submitted before keep what they were admitted with."""
        await self._admin(request)
        name = request.path_params["name"]
        change = _in_order((await _body(request, _tier_body)).change(name))
        kept: TierRow = _there(await self._accounts.keep_tier(name, change), "tier", name)
        await self._changed()
        return _json(tier_view(kept))

    async def pools(self, request: Request) -> Response:
        """Lists the pools by name."""
        await self._admin(request)
        return _list([pool_view(pool) for pool in await self._accounts.pools()])

    async def pool(self, request: Request) -> Response:
        """Shows a pool."""
        await self._admin(request)
        name = _name(request, "pool")
        return _json(pool_view(_there(await self._accounts.pool(name), "pool", name)))

    async def change_pool(self, request: Request) -> Response:
        """Changes how a pool is steered."""
        await self._admin(request)
        return await self._keep_pool(request, _in_order((await _body(request, _pool_patch)).change()))

    async def pause_pool(self, request: Request) -> Response:
        """Keeps a pool from starting anything; what runs goes on."""
        await self._admin(request)
        return await self._keep_pool(request, PoolChange(paused=True))

    async def resume_pool(self, request: Request) -> Response:
        """Lets a pool start tasks again."""
        await self._admin(request)
        return await self._keep_pool(request, PoolChange(paused=False))

    async def _keep_pool(self, request: Request, change: PoolChange) -> Response:
        name = _name(request, "pool")
        changed = _there(await self._accounts.change_pool(name, change), "pool", name)
        await self._changed()
        return _json(pool_view(changed))

    async def names(self, request: Request) -> Response:
        """Lists what the caller's tenant has paused by name."""
        caller = await self._client(request)
        paused = await self._accounts.paused_names(caller.tenant)
        return _list([name_view(one.name, paused) for one in paused])

    async def pause_name(self, request: Request) -> Response:
        """Keeps the tasks of a name from starting; what runs goes on."""
        caller, name = await self._client(request), _task_name(request)
        if not await self._accounts.pause_name(caller.tenant, name, caller.submitted_by, PAUSED_MAX):
            what = f"{PAUSED_MAX} names are paused already; resume some, or pause a beginning that they have in common"
            raise refused([Refused("name", what)])
        return await self._name(caller, name)

    async def resume_name(self, request: Request) -> Response:
        """Lets the tasks of a name start again."""
        caller, name = await self._client(request), _task_name(request)
        await self._accounts.resume_name(caller.tenant, name)
        return await self._name(caller, name)

    async def _name(self, caller: Caller, name: str) -> Response:
        await self._changed()
        return _json(name_view(name, await self._accounts.paused_names(caller.tenant)))

    async def create_key(self, request: Request) -> Response:
        """Makes a key, and tells it this once."""
        caller = await self._client(request)
        said = await _body(request, _key_body)
        _refuse(said.wrong())
        own = (await self._accounts.tenant_by_number(caller.tenant)).name
        tenant = said.tenant or own
        if caller.role != "admin" and (said.role != "client" or tenant != own):
            raise Problem("forbidden", "only an administrator makes keys of another role or for another tenant")
        key_id, secret = new_key()
        made = await self._accounts.create_key(
            key_id,
            tenant=tenant,
            role=said.role,
            digest=digest_of(secret),
            label=said.label,
            created_by=caller.submitted_by,
        )
        if made is None:
            raise refused([Refused("tenant", f"there is no tenant {tenant!r}; make it first: POST /v1/tenants")])
        return _created(None, NewKeyView(f"hw_{key_id}_{secret}", made.id, made.tenant, made.role, made.label))

    async def keys(self, request: Request) -> Response:
        """Lists the keys in force: all for an administrator, else the client keys of the caller's tenant."""
        caller = await self._client(request)
        after, limit = _page(request)
        tenant, role = request.query_params.get("tenant"), None
        if caller.role != "admin":
            own, role = (await self._accounts.tenant_by_number(caller.tenant)).name, "client"
            if tenant not in (None, own):
                raise Problem("forbidden", "only an administrator lists the keys of another tenant")
            tenant = own
        found = await self._accounts.keys(tenant, role, after, limit)
        return _list([_key_view(key) for key in found], found[-1].id if len(found) == limit else None)

    async def revoke_key(self, request: Request) -> Response:
        """Ends a key: here at once, on other gateways within half a minute."""
        caller = await self._client(request)
        key_id: str = request.path_params["id"]
        tenant, role = (None, None) if caller.role == "admin" else (caller.tenant, "client")
        if "\0" in key_id or not await self._accounts.revoke_key(key_id, tenant=tenant, role=role):
            raise Problem("not_found", f"there is no key {key_id[:40]!r} in force")
        self._authenticator.forget(key_id)
        return Response(status_code=204)


async def _body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    expect_media_type(request, "application/json")
    return decode(await read_body(request, SINGLE_BYTES_MAX), decoder)


def _in_order(change: Change | list[Refused]) -> Change:
    """What is no list of refusals; raises the Problem for one."""
    if isinstance(change, list):
        raise refused(change)
    return change


def _refuse(wrong: list[Refused]) -> None:
    if wrong:
        raise refused(wrong)


def _new(made: T | Refused | None, what: str, name: str) -> T:
    if made is None:
        raise Problem("already_exists", f"there is a {what} {name!r} already; PATCH changes it")
    return _there(made, what, name)


def _there(found: T | Refused | None, what: str, name: str) -> T:
    if found is None:
        raise Problem("not_found", f"there is no {what} {name[:80]!r}")
    if isinstance(found, Refused):
        raise refused([found])
    return found


def _name(request: Request, what: str) -> str:
    name: str = request.path_params["name"]
    if not is_name(name):
        raise Problem("not_found", f"there is no {what} {name[:80]!r}")
    return name


def _task_name(request: Request) -> str:
    name: str = request.path_params["name"]
    _refuse(wrong_name(name))
    return name


def _page(request: Request) -> tuple[str, int]:
    """Behind which one a list goes on, and how many it shows."""
    return request.query_params.get("cursor", ""), whole(request, "limit", LIST_MAX, least=1, most=LIST_MAX)


def _key_view(key: Key) -> KeyView:
    return KeyView(key.id, key.tenant, key.role, key.label, key.created_by, key.created_at)


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers, media_type="application/json")


def _created(location: str | None, value: object) -> Response:
    return _json(value, 201, {"Location": location} if location else None)


def _list(items: Sequence[object], next_cursor: str | None = None) -> Response:
    return _json({"items": items, "next_cursor": next_cursor})
