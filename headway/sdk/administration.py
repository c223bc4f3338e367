"""What an administrator can ask, as conversations (see conversations.py): tenants, plans, tiers, pools, keys.

Things come as the server tells them, so a client of today shows what a server of tomorrow says. What is said of a thing
goes the same way: names and values are those of the HTTP API.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

import msgspec

from headway.sdk import records
from headway.sdk.conversations import ANSWER_SECONDS, Conversation, Request, ask

Thing = dict[str, object]
_encode = msgspec.json.Encoder().encode


def create_tenant(name: str, **said: object) -> Conversation[Thing]:
    """Makes a tenant; `plan` puts it on one."""
    return (yield from _tell("POST", "/v1/tenants", {"name": name, **said}))


def tenants() -> Conversation[list[Thing]]:
    """All tenants by name."""
    return (yield from _all("/v1/tenants"))


def tenant(name: str) -> Conversation[Thing]:
    """One tenant."""
    return (yield from _one(_path("tenants", name)))


def change_tenant(name: str, **said: object) -> Conversation[Thing]:
    """Puts a tenant on another plan, pauses or resumes it."""
    return (yield from _tell("PATCH", _path("tenants", name), said))


def create_plan(name: str, **said: object) -> Conversation[Thing]:
    """Makes a plan."""
    return (yield from _tell("POST", "/v1/plans", {"name": name, **said}))


def plans() -> Conversation[list[Thing]]:
    """All plans by name."""
    return (yield from _all("/v1/plans"))


def plan(name: str) -> Conversation[Thing]:
    """One plan."""
    return (yield from _one(_path("plans", name)))


def change_plan(name: str, **said: object) -> Conversation[Thing]:
    """Changes a plan for all tenants on it."""
    return (yield from _tell("PATCH", _path("plans", name), said))


def tiers() -> Conversation[list[Thing]]:
    """All tiers by name."""
    return (yield from _all("/v1/tiers"))


def tier(name: str) -> Conversation[Thing]:
    """One tier."""
    return (yield from _one(_path("tiers", name)))


def keep_tier(name: str, **said: object) -> Conversation[Thing]:
    """Changes a tier, or makes it."""
    return (yield from _tell("PUT", _path("tiers", name), said))


def pools() -> Conversation[list[Thing]]:
    """All pools by name."""
    return (yield from _all("/v1/pools"))


def pool(name: str) -> Conversation[Thing]:
    """One pool."""
    return (yield from _one(_path("pools", name)))


def change_pool(name: str, **said: object) -> Conversation[Thing]:
    """Changes how a pool is steered."""
    return (yield from _tell("PATCH", _path("pools", name), said))


def pause_pool(name: str) -> Conversation[Thing]:
    """Keeps a pool from starting tasks; what runs goes on."""
    return (yield from _tell("POST", _path("pools", name) + ":pause"))


def resume_pool(name: str) -> Conversation[Thing]:
    """Lets a pool start tasks again."""
    return (yield from _tell("POST", _path("pools", name) + ":resume"))


def names() -> Conversation[list[Thing]]:
    """The task names that the caller's tenant has paused."""
    return (yield from _all("/v1/names"))


def pause_name(name: str) -> Conversation[Thing]:
    """Keeps the tasks of a name from starting, or of all names that begin so (`encode-*`); what runs goes on."""
    return (yield from _tell("POST", _path("names", name) + ":pause"))


def resume_name(name: str) -> Conversation[Thing]:
    """Lets the tasks of a name start again."""
    return (yield from _tell("POST", _path("names", name) + ":resume"))


def node(name: str) -> Conversation[Thing]:
    """One node."""
    return (yield from _one(_path("nodes", name)))


def cordon_node(name: str) -> Conversation[Thing]:
    """Keeps tasks from a node; what runs there goes on."""
    return (yield from _tell("POST", _path("nodes", name) + ":cordon"))


def uncordon_node(name: str) -> Conversation[Thing]:
    """Lets a node take tasks again, also one in quarantine."""
    return (yield from _tell("POST", _path("nodes", name) + ":uncordon"))


def drain_node(name: str, deadline: str | float | None = None) -> Conversation[Thing]:
    """Keeps tasks from a node; what runs there has until the deadline to end, then it is made to leave."""
    said: Thing = {} if deadline is None else {"deadline": deadline}
    return (yield from _tell("POST", _path("nodes", name) + ":drain", said))


def node_events(
    *, cursor: str | None = None, node: str | None = None, limit: int = 100, wait: int = 0
) -> Conversation[records.Part]:
    """What happened to nodes, oldest first, behind a cursor (`now`: from now on)."""
    asked = {"cursor": cursor, "node": node, "limit": str(limit), "wait": str(wait)}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    request = Request("GET", f"/v1/node-events?{query}", repeatable=True, timeout=wait + ANSWER_SECONDS)
    return records.part((yield from ask(request)))


def stats() -> Conversation[Thing]:
    """Whether the pools have enough."""
    return (yield from _one("/v1/stats"))


def create_key(**said: object) -> Conversation[Thing]:
    """Makes a key (`tenant`, `role`, `label`); its secret is told this once."""
    return (yield from _tell("POST", "/v1/keys", said))


def keys(tenant: str | None = None) -> Conversation[list[Thing]]:
    """The keys in force that the caller may see."""
    return (yield from _all("/v1/keys", tenant=tenant))


def revoke_key(key_id: str) -> Conversation[None]:
    """Ends a key."""
    yield from ask(Request("DELETE", _path("keys", key_id)))


def _tell(method: str, path: str, said: Thing | None = None) -> Conversation[Thing]:
    """Says what is to be, and answers the thing as it then is. Only what makes something new is not repeatable."""
    body = b"" if said is None else _encode(said)
    repeatable = method != "POST" or said is None
    return records.anything((yield from ask(Request(method, path, body, repeatable=repeatable))))


def _one(path: str) -> Conversation[Thing]:
    return records.anything((yield from ask(Request("GET", path, repeatable=True))))


def _all(path: str, **asked: str | None) -> Conversation[list[Thing]]:
    """A whole list, however many answers it takes."""
    found: list[Thing] = []
    cursor: str | None = None
    while True:
        query = {name: value for name, value in {**asked, "cursor": cursor}.items() if value is not None}
        request = Request("GET", path + (f"?{urlencode(query)}" if query else ""), repeatable=True)
        part = records.part((yield from ask(request)))
        found += part.items
        cursor = part.next_cursor
        if cursor is None:
            return found


def _path(kind: str, name: str) -> str:
    return f"/v1/{kind}/{quote(name, safe='')}"
