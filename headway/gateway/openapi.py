"""`/openapi.json`, made from the same table that serves the routes and the same types that check the bodies."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from headway import wire
from headway.core.amend import Amendment
from headway.core.task import Submission
from headway.gateway import account_bodies, account_views
from headway.gateway.api import WaitFor
from headway.gateway.artifacts import ArtifactsView
from headway.gateway.batch import ITEMS_MAX, BatchAnswer
from headway.gateway.bounds import bounded, parameter
from headway.gateway.events import EventView
from headway.gateway.explaining import ExplanationView
from headway.gateway.nodes import DrainBody, NodeEventView, NodeView
from headway.gateway.operations import Operation
from headway.gateway.problems import TITLES, ProblemDocument
from headway.gateway.stats import StatsView
from headway.gateway.views import AttemptView, SubmittedView, TaskView

_TYPES: dict[str, type] = {
    "Submission": Submission,
    "Task": TaskView,
    "SubmittedTask": SubmittedView,
    "Attempt": AttemptView,
    "Artifacts": ArtifactsView,
    "Amendment": Amendment,
    "Event": EventView,
    "Node": NodeView,
    "NodeEvent": NodeEventView,
    "DrainBody": DrainBody,
    "Explanation": ExplanationView,
    "Stats": StatsView,
    "BatchAnswer": BatchAnswer,
    "WaitFor": WaitFor,
    "Problem": ProblemDocument,
    "TenantBody": account_bodies.TenantBody,
    "TenantPatch": account_bodies.TenantPatch,
    "Tenant": account_views.TenantView,
    "PlanBody": account_bodies.PlanBody,
    "PlanPatch": account_bodies.PlanPatch,
    "Plan": account_views.PlanView,
    "TierBody": account_bodies.TierBody,
    "Tier": account_views.TierView,
    "PoolPatch": account_bodies.PoolPatch,
    "Pool": account_views.PoolView,
    "Name": account_views.NameView,
    "KeyBody": account_bodies.KeyBody,
    "Key": account_views.KeyView,
    "NewKey": account_views.NewKeyView,
    "Me": account_views.MeView,
}
_Doc = dict[str, object]


def document(operations: list[Operation], version: str) -> bytes:
    """The OpenAPI 3.1 document."""
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Headway",
                "version": version,
                "description": f"Wire protocol {wire.PROTOCOL}.",
            },
            "paths": paths,
            "components": {
                "schemas": _schemas(),
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


@cache
def _schemas() -> _Doc:
    def plain(kind: type) -> _Doc:
        if kind in (msgspec.Raw, object):
            return {"description": "any JSON"}
        raise TypeError(f"no JSON schema for {kind}")

    _, components = msgspec.json.schema_components(
        list(_TYPES.values()), schema_hook=plain, ref_template="#/components/schemas/{name}"
    )
    return {**bounded(components)}


def _operation(operation: Operation) -> _Doc:
    names: list[str] = re.findall(r"{(\w+)}", operation.path)
    parameters = [parameter(operation.name, "path", name) for name in names]
    parameters += [parameter(operation.name, "query", name) for name in operation.query]
    described: _Doc = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation),
        "security": [{"key": []}] if operation.secured else [],
    }
    if operation.body == "binary":
        content: _Doc = {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.body == "batch":
        described["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": {"type": "array", "items": _ref("Submission"), "maxItems": ITEMS_MAX}},
                "application/x-ndjson": {"schema": {"type": "string", "description": "one Submission a line"}},
            },
        }
    elif operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(operation.body)}},
        }
    return described


def _responses(operation: Operation) -> _Doc:
    good: _Doc = {"description": operation.summary}
    content: _Doc = {media: {"schema": {"type": "string"}} for media in operation.media}
    if operation.answer is not None:
        content["application/json"] = {"schema": _answer(operation.answer)}
    if content:
        good["content"] = content
    responses: _Doc = {str(status): good for status in (operation.status, *operation.also)}
    problem = {"application/problem+json": {"schema": _ref("ProblemDocument")}}
    codes = (
        (*operation.problems, "unauthorized", "forbidden", "unavailable") if operation.secured else operation.problems
    )
    for code in codes:
        status, title = TITLES[code]
        responses[str(status)] = {"description": title, "content": problem}
    return responses


def _answer(name: str) -> _Doc:
    if name.startswith("list:"):
        item = _ref(_TYPES[name[5:]].__name__) if name[5:] in _TYPES else {"type": "object"}
        items: _Doc = {"type": "array", "items": item}
        return {
            "type": "object",
            "properties": {"items": items, "next_cursor": {"type": ["string", "null"]}},
            "required": ["items"],
        }
    return _ref(_TYPES[name].__name__) if name in _TYPES else {"type": "object"}


def _ref(name: str) -> _Doc:
    return {"$ref": f"#/components/schemas/{name}"}
