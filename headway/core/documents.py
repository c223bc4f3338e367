"""YAML and JSON that people write, read strictly, with the line of everything that is said.

Anchors and aliases are refused, nesting and number of documents are bounded, so no small file can become a large one.
Text is never guessed at: `yes` is a text, and so is `1:30`. Whatever is wrong is a `yaml.MarkedYAMLError`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (PyYAML ships no types)
from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import yaml

DEPTH_MAX = 32


def composed(text: bytes, *, one: str) -> yaml.Node | None:
    """The document as nodes with their lines, once nothing in it can grow or nest without bound. `one` says what to do
    instead of writing several into a file."""
    depth = documents = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        problem = one if documents > 1 else _unbounded(event, depth)
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
    return cast("yaml.Node | None", yaml.compose(text, _Loader))


def pairs(node: yaml.MappingNode) -> Iterable[tuple[str, yaml.Node]]:
    """Keys and what stands behind them."""
    for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key.start_mark)
        yield cast("str", key.value), value


def twice(node: yaml.Node) -> list[tuple[int, str]]:
    """Keys that are said twice, at any depth, with their lines."""
    wrong: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for name, value in pairs(node):
            line = line_of(value)
            if name in first:
                wrong.append((line, f"{name!r} is said twice, first on line {first[name]}"))
            first.setdefault(name, line)
            wrong += twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            wrong += twice(item)
    return wrong


def line_of(node: yaml.Node) -> int:
    """Where a node begins."""
    return node.start_mark.line + 1


def value(node: yaml.Node, *, text: bool = False) -> object:
    """What a node says; with `text`, its scalars are texts however they look."""
    if isinstance(node, yaml.MappingNode):
        return {name: value(inner, text=text) for name, inner in pairs(node)}
    if isinstance(node, yaml.SequenceNode):
        return [value(item, text=text) for item in node.value]
    said = cast("str", node.value)
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case _ if text:
            return said
        case "bool":
            return said.lower() == "true"
        case "int":
            return int(said)
        case "float":
            return float(said)
        case _:
            return said


def _unbounded(event: yaml.Event, depth: int) -> str | None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        return "anchors and aliases are not read"
    return f"nested more than {DEPTH_MAX} deep" if depth > DEPTH_MAX else None


class _Loader(yaml.CSafeLoader):
    """YAML 1.2's idea of what is no text. Version 1.1 makes a bool of `no` and the number 90 of `1:30`."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)
