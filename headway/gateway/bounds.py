"""What `/openapi.json` says beyond the types: how long, how many, how much, and the parameters.

The checks are in the core and beside the bodies; this only tells of them. `tests/services/test_openapi.py` sends what
lies on either side of the bounds said here.
"""

from __future__ import annotations

from typing import cast

from headway.core.ids import ID_MAX
from headway.core.images import IMAGE_CHARS_MAX, PATTERN
from headway.core.quantity import DURATION_SECONDS_MAX, TEXT_CHARS_MAX
from headway.core.task import ATTEMPTS_MAX, FUNCTION_CHARS_MAX, ITEMS_MAX, NAME_CHARS_MAX, RESOURCES_MAX, TAGS_MAX
from headway.core.terms import KEY_CHARS_MAX
from headway.core.terms import LIST_MAX as TERMS_MAX
from headway.core.workdir import WORKDIR_CHARS_MAX
from headway.gateway.account_bodies import PRICE_MAX, TIERS_MAX, WEIGHT_MAX
from headway.gateway.api import LIST_MAX, STATUSES, WAIT_IDS_MAX, WAIT_SECONDS_MAX
from headway.gateway.events import KINDS
from headway.gateway.following import PLACE_MAX

Schema = dict[str, object]

_TEXT: Schema = {"type": "string", "pattern": r"^[^\x00]*$"}
_NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._\-]{0,62}$"}
_TASK_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/@ +\-]*"
_PAUSED = rf"{_TASK_NAME}\*?$|^\*$"
_ID: Schema = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_NUMBER = r"[0-9]{1,7}(\.[0-9]{1,3})?"
_PARTS = "".join(f"({_NUMBER}{unit})?" for unit in ("d", "h", "m", "s", "ms"))
_SOMETHING = "(?=.*[1-9])"


def _duration(description: str, least: float = 0.0, most: float = DURATION_SECONDS_MAX) -> Schema:
    """A text may say more than `most`, which no pattern can tell."""
    pattern = rf"^(?=[0-9])({_NUMBER}|{_PARTS})$"
    number: Schema = {"type": "number", "minimum": least, "maximum": most}
    text: Schema = {"type": "string", "maxLength": TEXT_CHARS_MAX}
    text["pattern"] = pattern.replace("^", "^" + _SOMETHING) if least else pattern
    return {"description": f"seconds, or a text such as 90s, 15m, 1h30m; {description}", "anyOf": [number, text]}


_DAY = 86_400.0
_RATE = r"^[1-9][0-9]{0,5}( *per +| */ *)(s|sec|second|m|min|minute|h|hour|d|day|[1-9][0-9]{0,3}(ms|s|m))$"
_KEY: Schema = {"minLength": 1, "maxLength": KEY_CHARS_MAX}
_AMOUNTS: Schema = {
    "description": "by resource: cpu in cores; memory and disk in bytes or as 512Mi; others in whole numbers",
    "maxProperties": RESOURCES_MAX,
    "propertyNames": {"pattern": r"^[a-z][a-z0-9_.\-]{0,62}$"},
}


def _number(least: float, most: float) -> Schema:
    return {"minimum": least, "maximum": most}


BODIES: dict[str, dict[str, Schema]] = {
    "Submission": {
        "name": {"minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": _TASK_NAME + "$"},
        "command": {"minItems": 1, "maxItems": ITEMS_MAX},
        "script": {"pattern": "^sha256:[0-9a-f]{64}$", "description": "what POST /v1/scripts answered"},
        "image": {"maxLength": IMAGE_CHARS_MAX, "pattern": PATTERN, "description": "a container image: busybox:1.36"},
        "bundle": {"pattern": "^sha256:[0-9a-f]{64}$", "description": "a blob: a tar archive, plain or gzip"},
        "workdir": {"minLength": 1, "maxLength": WORKDIR_CHARS_MAX, "description": "a path within the workspace"},
        "function": {"maxLength": FUNCTION_CHARS_MAX, "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*$"},
        "env": {"maxProperties": ITEMS_MAX, "propertyNames": {"pattern": "^(?!HEADWAY_)[A-Za-z_][A-Za-z0-9_]*$"}},
        "resources": _AMOUNTS,
        "delay_tolerance": _duration("at most 366 days"),
        "execution_cap": _duration("at most what the tier allows", 0.001),
        "cap_grace": _duration("at most 10 minutes", 0, 600),
        "eligible_at": {"format": "date-time"},
        "tags": {"maxProperties": TAGS_MAX, "propertyNames": _KEY},
        "constraints": {"maxItems": TERMS_MAX},
        "preferred": {"maxItems": TERMS_MAX},
        "spread": _KEY,
        "concurrency": {"maxItems": TERMS_MAX},
        "rates": {"maxItems": TERMS_MAX},
    },
    "Amendment": {
        "execution_cap": _duration("at most what the tier allows", 0.001),
        "delay_tolerance": _duration("at most 366 days"),
        "cap_grace": _duration("at most 10 minutes", 0, 600),
    },
    "RetryRule": {
        "max_attempts": _number(1, ATTEMPTS_MAX),
        "initial": _duration("at most 366 days"),
        "factor": _number(1, 100),
        "max": _duration("at most 366 days"),
        "never_on_exit": {"maxItems": 256, "items": {"type": "integer", **_number(0, 255)}},
    },
    "Constraint": {"label": _KEY, "values": {"maxItems": TERMS_MAX}},
    "Concurrency": {"key": _KEY, "limit": _number(1, 1_000_000)},
    "SaidRate": {
        "key": _KEY,
        "rate": {
            "description": "how many, or a text such as 60/m, 10 per 90s",
            "anyOf": [{"type": "integer", **_number(1, 1_000_000)}, {"type": "string", "pattern": _RATE}],
        },
        "per": _duration("at most a day; said only with a rate that is a number", 0.001, _DAY),
    },
    "WaitFor": {"ids": {"maxItems": WAIT_IDS_MAX, "items": _ID}, "wait": _number(0, WAIT_SECONDS_MAX)},
    "TenantBody": {"name": _NAME, "plan": _NAME},
    "TenantPatch": {"plan": _NAME},
    "PlanBody": {"name": _NAME},
    "TierBody": {
        "resources": _AMOUNTS,
        "default_cap": _duration("at most max_cap", 0.001),
        "max_cap": _duration("at most 366 days", 0.001),
        "weight": _number(0.001, WEIGHT_MAX),
        "price": {"anyOf": [{"type": "string", "format": "decimal"}, {"type": "number", **_number(0, int(PRICE_MAX))}]},
    },
    "PoolPatch": {
        "peak_line": _number(0.01, 1),
        "peak_hysteresis": _number(0, 1),
        "promotion_margin": _duration("at most a day", 0, _DAY),
        "half_life": _duration("from a second to 90 days", 1, 90 * _DAY),
        "demand_target": _number(0.1, 100),
    },
    "KeyBody": {"tenant": _NAME, "label": {"maxLength": NAME_CHARS_MAX}},
}
BODIES["PlanPatch"] = {
    "tiers": {"minItems": 1, "maxItems": TIERS_MAX, "items": _NAME},
    "urgent_share": _number(0, 1),
    "quota": _AMOUNTS,
    "resource_max": _AMOUNTS,
}
BODIES["PlanBody"] |= BODIES["PlanPatch"]
"""By the name of a struct and of its field."""

ONE_OF: dict[str, list[str]] = {"Submission": ["command", "script", "function"]}
"""Of these fields a body has exactly one."""
OR_ELSE: dict[str, str] = {"Submission": "image"}
"""But with this field it may have none of them: an image may say itself what is run."""

_QUERY: dict[str, Schema] = {
    "status": {"type": "string", "enum": list(STATUSES)},
    "name": _TEXT,
    "tag": {"type": "array", "items": {"type": "string", "pattern": r"^[^\x00:]*:[^\x00]*$"}},
    "limit": {"type": "integer", "minimum": 1, "maximum": LIST_MAX},
    "cursor": _TEXT,
    "attempt": {"type": "integer", "minimum": 0, "maximum": 32767},
    "offset": {"type": "integer", "minimum": 0, "maximum": PLACE_MAX},
    "follow": {"type": "string", "enum": ["0", "1", "true", "false"]},
    "wait": {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
    "task": _ID,
    "kind": {"type": "array", "items": {"type": "string", "enum": list(KINDS)}},
}
_PATH: dict[str, Schema] = {"id": _ID, "name": _NAME}
_PARTICULAR: dict[tuple[str, str], Schema] = {
    ("readEvents", "cursor"): {"type": "string", "pattern": "^(now|[0-9]{1,18}-[0-9]{1,18})?$"},
    ("readEvents", "wait"): {"type": "integer", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
    ("listTasks", "cursor"): {"type": "integer", "minimum": 0, "maximum": ID_MAX},
    ("pauseName", "name"): {"type": "string", "maxLength": NAME_CHARS_MAX, "pattern": _PAUSED},
    ("resumeName", "name"): {"type": "string", "maxLength": NAME_CHARS_MAX, "pattern": _PAUSED},
    ("revokeKey", "id"): {"type": "string"},
}


def parameter(operation: str, place: str, name: str) -> Schema:
    """A parameter of a path or a query."""
    return {"name": name, "in": place, "required": place == "path", "schema": _schema(operation, place, name)}


def can_be_said_twice(operation: str, name: str) -> bool:
    """Whether a parameter of a query is a list."""
    return _schema(operation, "query", name).get("type") == "array"


def _schema(operation: str, place: str, name: str) -> Schema:
    known = _PATH if place == "path" else _QUERY
    return _PARTICULAR.get((operation, name)) or known.get(name, _TEXT)


def bounded(components: dict[str, Schema]) -> dict[str, Schema]:
    """The schemas of structs, with their bounds."""
    for name, fields in BODIES.items():
        said = cast("dict[str, Schema]", components[name]["properties"])
        said.update({field: _within(said[field], bounds) for field, bounds in fields.items()})
    for name, fields in ONE_OF.items():
        components[name]["oneOf"] = [
            {"required": [field], "properties": {field: {"not": {"type": "null"}}}} for field in fields
        ]
        none: Schema = {field: {"type": "null"} for field in fields}
        alone = OR_ELSE[name]
        said_alone: Schema = {"required": [alone], "properties": {alone: {"not": {"type": "null"}}, **none}}
        components[name]["oneOf"] = [*cast("list[Schema]", components[name]["oneOf"]), said_alone]
    return components


def _within(said: Schema, bounds: Schema) -> Schema:
    """A field with its bounds; those of one that may be null as well are bounds of the rest."""
    kinds = cast("list[Schema] | None", said.get("anyOf"))
    if kinds is None:
        return {**said, **bounds}
    null: Schema = {"type": "null"}
    if "anyOf" not in bounds:
        return {**said, "anyOf": [kind if kind == null else {**kind, **bounds} for kind in kinds]}
    narrower = cast("list[Schema]", bounds["anyOf"])  # instead of what the type says
    return {**said, **bounds, "anyOf": [*narrower, null] if null in kinds else narrower}
