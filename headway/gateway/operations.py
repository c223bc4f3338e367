"""What the API can do: the table that the routes and `/openapi.json` are made of."""

from __future__ import annotations

import msgspec

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


OPERATIONS = [
    Operation(
        "POST",
        "/v1/tasks",
        "submitTask",
        "Accepts a task; it is durable when this answers",
        201,
        "Task",
        "Submission",
        problems=_BODY,
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
        problems=_BODY,
    ),
    Operation(
        "GET",
        "/v1/tasks",
        "listTasks",
        "Lists tasks, newest first",
        200,
        "list:Task",
        query=LISTED,
        problems=("invalid",),
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
    Operation("GET", "/v1/nodes", "listNodes", "Lists the nodes", 200, "list:object"),
    Operation("GET", "/v1/me", "whoAmI", "Who the key stands for", 200, "object"),
]

OPEN_OPERATIONS = [
    Operation("GET", "/livez", "isAlive", "Whether the process answers", secured=False),
    Operation("GET", "/readyz", "isReady", "Whether it accepts work", secured=False),
    Operation("GET", "/metrics", "metrics", "Prometheus metrics", secured=False),
    Operation("GET", "/openapi.json", "describe", "This document", secured=False),
]
