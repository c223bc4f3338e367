"""`/openapi.json` tells the truth: what it allows is taken, what it forbids is refused, on both sides of each bound."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from tests.services.serving import TRUE, Serving

FUNCTION = {"function": "a:b"}
DAYS = 86_400
GOOD: list[dict[str, Any]] = [
    {"command": ["x"] * 4096},
    {"command": ["x"], "script": None, "function": None},
    {**TRUE, "name": "x" * 200},
    {**TRUE, "name": "a b/c:d@e+f-g"},
    {**TRUE, "delay_tolerance": 366 * DAYS},
    {**TRUE, "delay_tolerance": "0"},
    {**TRUE, "delay_tolerance": "1d2h3m4s5ms"},
    {**TRUE, "execution_cap": 0.001},
    {**TRUE, "execution_cap": "1m"},
    {**TRUE, "cap_grace": 600},
    {**TRUE, "tags": {str(n): "" for n in range(32)}},
    {**TRUE, "tags": {"x" * 200: "y"}},
    {**TRUE, "env": {"_A1": "x"}},
    {**TRUE, "retry": {"max_attempts": 100, "factor": 100, "never_on_exit": [0, 255]}},
    {**TRUE, "retry": {"max_attempts": 1, "factor": 1, "initial": 0, "max": "0"}},
    {**TRUE, "concurrency": [{"key": "x" * 200, "limit": 1_000_000}]},
    {**TRUE, "rates": [{"key": "x", "rate": 1, "per": DAYS}]},
    {**TRUE, "rates": [{"key": "x", "rate": "60 per minute"}, {"key": "y", "rate": "1/s"}]},
    {**TRUE, "preferred": [{"label": "x" * 200, "op": "in", "values": ["y"] * 16}]},
    {**TRUE, "spread": "x"},
    {**FUNCTION, "kwargs": {"n": 1}},
    {"function": "a.b:<lambda>"},
]
BAD: list[dict[str, Any]] = [
    {},
    {"command": []},
    {"command": ["x"] * 4097},
    {**TRUE, **FUNCTION},
    {"script": "sha256:x"},
    {**TRUE, "name": ""},
    {**TRUE, "name": "x" * 201},
    {**TRUE, "name": "-x"},
    {**TRUE, "delay_tolerance": -1},
    {**TRUE, "delay_tolerance": 366 * DAYS + 1},
    {**TRUE, "delay_tolerance": ""},
    {**TRUE, "delay_tolerance": "1 h"},
    {**TRUE, "execution_cap": 0},
    {**TRUE, "execution_cap": "0s"},
    {**TRUE, "cap_grace": 601},
    {**TRUE, "tags": {str(n): "" for n in range(33)}},
    {**TRUE, "tags": {"": "y"}},
    {**TRUE, "env": {"1A": "x"}},
    {**TRUE, "env": {"HEADWAY_URL": "x"}},
    {**TRUE, "resources": {"Cpu": 1}},
    {**TRUE, "retry": {"max_attempts": 0}},
    {**TRUE, "retry": {"max_attempts": 101}},
    {**TRUE, "retry": {"factor": 0.5}},
    {**TRUE, "retry": {"never_on_exit": [256]}},
    {**TRUE, "concurrency": [{"key": "", "limit": 1}]},
    {**TRUE, "concurrency": [{"key": "x", "limit": 0}]},
    {**TRUE, "concurrency": [{"key": str(n), "limit": 1} for n in range(17)]},
    {**TRUE, "rates": [{"key": "x", "rate": 0}]},
    {**TRUE, "rates": [{"key": "x", "rate": "0 per minute"}]},
    {**TRUE, "rates": [{"key": "x", "rate": 1, "per": DAYS + 1}]},
    {**TRUE, "preferred": [{"label": "x", "op": "in", "values": ["y"] * 17}]},
    {**TRUE, "spread": ""},
    {**TRUE, "off_peak": "perhaps"},
    {**TRUE, "exclusive": 1},
    {"function": "a.b"},
]
QUERIES = [
    ("/v1/tasks", "limit", ["1", "1000"], ["0", "1001", "", "1.5"]),
    ("/v1/tasks", "status", ["done"], ["", "over"]),
    ("/v1/tasks", "tag", ["a:b", ":"], ["a"]),
    ("/v1/tasks", "cursor", ["0"], ["-1", "x"]),
    ("/v1/keys", "limit", ["1000"], ["1001"]),
]

SERVED = {
    "/v1/tasks": "GET, HEAD, POST",
    "/v1/tasks:batch": "POST",
    "/v1/tenants/x": "GET, HEAD, PATCH",
    "/livez": "GET, HEAD",
}


class Document:
    """An OpenAPI document, and the part of JSON Schema that ours is written in."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said
        self._schemas = said["components"]["schemas"]

    def allows(self, schema: dict[str, Any], value: Any) -> bool:
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rsplit("/", 1)[1]]
        return (
            _is_of_type(schema.get("type"), value)
            and ("enum" not in schema or value in schema["enum"])
            and ("anyOf" not in schema or any(self.allows(kind, value) for kind in schema["anyOf"]))
            and ("oneOf" not in schema or sum(self.allows(kind, value) for kind in schema["oneOf"]) == 1)
            and ("not" not in schema or not self.allows(schema["not"], value))
            and self._allows_inside(schema, value)
        )

    def _allows_inside(self, schema: dict[str, Any], value: Any) -> bool:
        match value:
            case bool() | None:
                return True
            case int() | float():
                return schema.get("minimum", value) <= value <= schema.get("maximum", value)
            case str():
                fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
                return fits and re.search(schema.get("pattern", ""), value) is not None
            case list():
                fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
                return fits and all(self.allows(schema.get("items", {}), item) for item in value)
            case _:
                return self._allows_object(schema, value)

    def _allows_object(self, schema: dict[str, Any], value: dict[str, Any]) -> bool:
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        return (
            len(value) <= schema.get("maxProperties", len(value))
            and set(schema.get("required", ())) <= set(value)
            and (others is not False or set(value) <= set(fields))
            and all(self.allows(schema.get("propertyNames", {}), name) for name in value)
            and all(self.allows(fields.get(name, others or {}), inner) for name, inner in value.items())
        )


def _is_of_type(said: str | None, value: Any) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,), "array": (list,),
        "object": (dict,), "null": (type(None),),
    }  # fmt: skip
    return said is None or (isinstance(value, kinds[said]) and (said == "boolean" or not isinstance(value, bool)))


async def test_what_the_document_allows_is_taken_and_what_it_forbids_is_refused(serving: Serving):
    document = Document((await serving.http.get("/openapi.json")).json())
    submission = {"$ref": "#/components/schemas/Submission"}
    assert [said for said in GOOD if not document.allows(submission, said)] == []
    assert [said for said in BAD if document.allows(submission, said)] == []
    answer = (await serving.http.post("/v1/tasks:batch", json=[*GOOD, *BAD])).json()
    assert [item["index"] for item in answer["items"] if "error" in item] == list(range(len(GOOD), len(GOOD + BAD)))


async def test_parameters_are_what_the_document_says(serving: Serving):
    document = Document((await serving.http.get("/openapi.json")).json())
    for path, name, good, bad in QUERIES:
        (said,) = (one["schema"] for one in document.said["paths"][path]["get"]["parameters"] if one["name"] == name)
        for text in [*good, *bad]:
            allowed = document.allows(said, _read(said["type"], text))
            status = (await serving.http.get(path, params={name: text})).status_code
            assert (allowed, status) == ((True, 200) if text in good else (False, 422)), (name, text)


def _read(kind: str, text: str) -> object:
    """A text of a query as what it stands for."""
    if kind == "integer" and re.fullmatch(r"-?\d+", text):
        return int(text)
    return [text] if kind == "array" else text


async def test_a_method_that_is_not_served_is_told_which_are(serving: Serving):
    for path, methods in SERVED.items():
        for method in ("DELETE", "OPTIONS", "TRACE"):
            answer = await serving.http.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)
            assert answer.json()["code"] == "method_not_allowed"


async def test_no_endpoint_overlooks_a_parameter_it_does_not_know(serving: Serving):
    task = (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]
    asked = [f"/v1/tasks/{task}", f"/v1/tasks/{task}/attempts", f"/v1/tasks/{task}/explain", "/v1/nodes", "/v1/me"]
    for path in asked:
        answer = await serving.http.get(path, params={"wait": "5"})
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "wait"), path
    answer = await serving.http.post(f"/v1/tasks/{task}:cancel", params={"force": "1"})
    assert answer.status_code == 422
    assert (await serving.http.get(f"/v1/tasks/{task}")).json()["status"] != "cancelled"


async def test_every_good_answer_is_one_that_the_document_knows(serving: Serving):
    """Also where it is none of a single kind: on its way, a part, bytes, events, text."""
    document = (await serving.http.get("/openapi.json")).json()
    task = await serving.submitted()
    content = b"some content"
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    blob = f"/v1/blobs/{digest}"
    assert (await serving.http.put(blob, content=content)).status_code == 201
    calls: list[tuple[str, str, dict[str, str], int]] = [
        ("/v1/tasks/{id}/result", f"/v1/tasks/{task}/result", {}, 202),
        ("/v1/tasks/{id}/logs", f"/v1/tasks/{task}/logs", {}, 200),
        ("/v1/tasks/{id}/logs", f"/v1/tasks/{task}/logs", {"Accept": "text/event-stream"}, 200),
        ("/v1/blobs/{digest}", blob, {}, 200),
        ("/v1/blobs/{digest}", blob, {"Range": "bytes=1-3"}, 206),
        ("/livez", "/livez", {}, 200),
        ("/readyz", "/readyz", {}, 200),
        ("/metrics", "/metrics", {}, 200),
        ("/openapi.json", "/openapi.json", {}, 200),
    ]
    for path, url, headers, status in calls:
        answer = await serving.http.get(url, headers=headers)
        assert answer.status_code == status, (url, answer.text)
        media = answer.headers["content-type"].partition(";")[0]
        assert media in document["paths"][path]["get"]["responses"][str(status)]["content"], (path, status, media)
