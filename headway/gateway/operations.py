"""What the API can do: the table that the routes and `/openapi.json` are made of."""

from __future__ import annotations

import msgspec

from headway.files.signing import PARAMETERS

_BODY = ("malformed_json", "invalid", "too_large", "unsupported_media_type")
LISTED = ("status", "name", "tag", "limit", "cursor")


class Operation(msgspec.Struct, frozen=True):
    """One thing the API does."""

    method: str
    path: str
    name: str
    summary: str
    status: int = 200
    answer: str | None = None
    body: str | None = None
    query: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    secured: bool = True


_ACCOUNTS = [
    Operation(
        "POST",
        "/v1/tenants",
        "createTenant",
        "Makes a tenant",
        201,
        "Tenant",
        "TenantBody",
        problems=(*_BODY, "already_exists"),
    ),
    Operation(
        "GET",
        "/v1/tenants",
        "listTenants",
        "Lists the tenants by name",
        200,
        "list:Tenant",
        query=("limit", "cursor"),
        problems=("invalid",),
    ),
    Operation("GET", "/v1/tenants/{name}", "getTenant", "Shows a tenant", 200, "Tenant", problems=("not_found",)),
    Operation(
        "PATCH",
        "/v1/tenants/{name}",
        "changeTenant",
        "Changes a tenant; what is left out stays",
        200,
        "Tenant",
        "TenantPatch",
        problems=(*_BODY, "not_found"),
    ),
    Operation(
        "POST", "/v1/plans", "createPlan", "Makes a plan", 201, "Plan", "PlanBody", problems=(*_BODY, "already_exists")
    ),
    Operation("GET", "/v1/plans", "listPlans", "Lists the plans by name", 200, "list:Plan"),
    Operation("GET", "/v1/plans/{name}", "getPlan", "Shows a plan", 200, "Plan", problems=("not_found",)),
    Operation(
        "PATCH",
        "/v1/plans/{name}",
        "changePlan",
        "Changes a plan; what is left out stays",
        200,
        "Plan",
        "PlanPatch",
        problems=(*_BODY, "not_found"),
    ),
    Operation("GET", "/v1/tiers", "listTiers", "Lists the tiers by name", 200, "list:Tier"),
    Operation("GET", "/v1/tiers/{name}", "getTier", "Shows a tier", 200, "Tier", problems=("not_found",)),
    Operation(
        "PUT",
        "/v1/tiers/{name}",
        "keepTier",
        "Changes a tier, or makes it; what is left out stays",
        200,
        "Tier",
        "TierBody",
        problems=_BODY,
    ),
    Operation("GET", "/v1/pools", "listPools", "Lists the pools by name", 200, "list:Pool"),
    Operation("GET", "/v1/pools/{name}", "getPool", "Shows a pool", 200, "Pool", problems=("not_found",)),
    Operation(
        "PATCH",
        "/v1/pools/{name}",
        "changePool",
        "Changes a pool; what is left out stays",
        200,
        "Pool",
        "PoolPatch",
        problems=(*_BODY, "not_found"),
    ),
    Operation(
        "POST",
        "/v1/pools/{name}:pause",
        "pausePool",
        "Keeps a pool from starting tasks",
        200,
        "Pool",
        problems=("not_found",),
    ),
    Operation(
        "POST",
        "/v1/pools/{name}:resume",
        "resumePool",
        "Lets a pool start tasks again",
        200,
        "Pool",
        problems=("not_found",),
    ),
    Operation("GET", "/v1/names", "listNames", "Lists the task names that are paused", 200, "list:Name"),
    Operation(
        "POST",
        "/v1/names/{name}:pause",
        "pauseName",
        "Keeps the caller's tasks of a name, or of all names beginning so, from starting",
        200,
        "Name",
        problems=("invalid",),
    ),
    Operation(
        "POST",
        "/v1/names/{name}:resume",
        "resumeName",
        "Lets tasks of a name start again",
        200,
        "Name",
        problems=("invalid",),
    ),
    Operation(
        "POST", "/v1/keys", "createKey", "Makes a key, and tells it this once", 201, "NewKey", "KeyBody", problems=_BODY
    ),
    Operation(
        "GET",
        "/v1/keys",
        "listKeys",
        "Lists the keys in force",
        200,
        "list:Key",
        query=("tenant", "limit", "cursor"),
        problems=("invalid",),
    ),
    Operation("DELETE", "/v1/keys/{id}", "revokeKey", "Ends a key", 204, None, problems=("not_found",)),
]

OPERATIONS = [
    Operation(
        "POST",
        "/v1/tasks",
        "submitTask",
        "Accepts a task; it is durable when this answers",
        201,
        "SubmittedTask",
        "Submission",
        problems=(*_BODY, "would_be_late"),
    ),
    Operation(
        "POST",
        "/v1/tasks:batch",
        "submitBatch",
        "Accepts many tasks, each answered for itself",
        200,
        "BatchAnswer",
        "batch",
        problems=(*_BODY, "too_many_items"),
    ),
    Operation(
        "POST",
        "/v1/tasks:wait",
        "waitForTasks",
        "Those of many tasks that are over, as soon as one is",
        200,
        "list:Task",
        "WaitFor",
        problems=(*_BODY, "not_found"),
    ),
    Operation(
        "GET",
        "/v1/tasks",
        "listTasks",
        "Lists tasks, newest first",
        200,
        "list:Task",
        query=LISTED,
        problems=("invalid", "too_slow"),
    ),
    Operation(
        "POST",
        "/v1/tasks/{id}:cancel",
        "cancelTask",
        "Cancels a task",
        200,
        "Task",
        problems=("not_found", "already_finished"),
    ),
    Operation(
        "POST",
        "/v1/tasks/{id}:pause",
        "pauseTask",
        "Pauses a task where it is",
        200,
        "Task",
        problems=("not_found", "already_finished"),
    ),
    Operation(
        "POST",
        "/v1/tasks/{id}:resume",
        "resumeTask",
        "Lets a paused task go on",
        200,
        "Task",
        problems=("not_found", "already_finished"),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/explain",
        "explainTask",
        "Why a task waits, why it runs where it does, or how it ended",
        200,
        "Explanation",
        problems=("not_found",),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/attempts",
        "listAttempts",
        "Lists the tries of a task",
        200,
        "list:Attempt",
        problems=("not_found",),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/logs",
        "readLog",
        "The log of an attempt",
        query=("attempt", "follow"),
        problems=("not_found", "invalid"),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/result",
        "readResult",
        "The task once it is over (200) or as it is (202)",
        200,
        "Task",
        query=("wait",),
        problems=("not_found", "invalid"),
    ),
    Operation(
        "PATCH",
        "/v1/tasks/{id}",
        "changeTask",
        "Changes the bounds of a task that is not over; what is left out stays",
        200,
        "Task",
        "Amendment",
        problems=(*_BODY, "not_found", "already_finished"),
    ),
    Operation("GET", "/v1/tasks/{id}", "getTask", "Shows a task", 200, "Task", problems=("not_found",)),
    Operation(
        "POST",
        "/v1/scripts",
        "uploadScript",
        "Keeps a script by its digest",
        201,
        "object",
        "binary",
        problems=("too_large", "invalid"),
    ),
    Operation(
        "GET",
        "/v1/events",
        "readEvents",
        "What went otherwise than asked, oldest first",
        200,
        "list:Event",
        query=("cursor", "task", "kind", "limit", "wait"),
        problems=("invalid", "not_found"),
    ),
    Operation(
        "PUT",
        "/v1/blobs/{digest}",
        "keepBlob",
        "Keeps content by its digest",
        201,
        "object",
        "binary",
        query=PARAMETERS,
        problems=("too_large", "invalid", "wrong_content", "over_quota", "no_room"),
    ),
    Operation(
        "GET",
        "/v1/blobs/{digest}",
        "readBlob",
        "Content by its digest, or the `Range` of it; HEAD asks whether it is there",
        query=PARAMETERS,
        problems=("not_found", "invalid", "bad_range"),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/artifacts",
        "listArtifacts",
        "The files an attempt left",
        200,
        "Artifacts",
        query=("attempt", "limit", "cursor"),
        problems=("not_found", "invalid"),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/artifacts/{path}",
        "readArtifact",
        "One file that an attempt left, or the `Range` of it",
        query=("attempt",),
        problems=("not_found", "invalid", "bad_range"),
    ),
    Operation(
        "GET",
        "/v1/tasks/{id}/artifacts:archive",
        "readArtifacts",
        "All that an attempt left, as a tar archive",
        query=("attempt",),
        problems=("not_found", "invalid", "bad_range"),
    ),
    Operation("GET", "/v1/nodes", "listNodes", "Lists the nodes", 200, "list:object"),
    Operation("GET", "/v1/stats", "stats", "Whether the pools have enough", 200, "Stats"),
    Operation("GET", "/v1/me", "whoAmI", "Who the key stands for, and what its plan allows", 200, "Me"),
    *_ACCOUNTS,
]

OPEN_OPERATIONS = [
    Operation("GET", "/livez", "isAlive", "Whether the process answers", secured=False),
    Operation("GET", "/readyz", "isReady", "Whether it accepts work", secured=False),
    Operation("GET", "/metrics", "metrics", "Prometheus metrics", secured=False),
    Operation("GET", "/openapi.json", "describe", "This document", secured=False),
]
