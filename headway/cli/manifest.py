"""Manifests: what a person writes about a task, read strictly.

Whatever is wrong is said with its line: an unknown key (and the one that was meant), a key said twice, a
value that cannot be. Text is never guessed at: `env: {LEVEL: 5}` is the text 5, `yes` is the text yes.
Anchors and aliases are refused, so no small file can become a large one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (PyYAML ships no types; nothing but Manifest leaves this file)
from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple, cast

import yaml

from headway.core.task import Submission
from headway.sdk.errors import SubmissionError
from headway.sdk.submissions import KEYS, submission, wrong_key

MANIFEST_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 32
VERSION = 1
_TEXTS = frozenset({"name", "tier", "script", "function", "command", "env", "tags"})
"""Keys whose scalars are texts, however they look."""


class ManifestError(SubmissionError):
    """A manifest that is not in order; every line of the message names its place."""


class Manifest(NamedTuple):
    """What a manifest says by key, and on which line."""

    said: dict[str, object]
    lines: dict[str, int]
    source: str

    def submission(self, **instead: object) -> Submission:
        """The submission it describes, with some keys replaced."""
        said = {**self.said, **instead}
        try:
            return submission(said)
        except SubmissionError as error:
            line = self.lines.get(wrong_key(said) or "", 1)
            raise ManifestError(f"{self.source}:{line}: {error}") from None


def parse(text: bytes, source: str) -> Manifest:
    """Reads a manifest, YAML or JSON; raises ManifestError."""
    if len(text) > MANIFEST_BYTES_MAX:
        raise ManifestError(f"{source}: a manifest must not exceed 1 MiB")
    try:
        return _read(_composed(text), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(f"{source}:{mark.line + 1 if mark else 1}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{source}: {error}") from None


def _read(root: yaml.Node | None, source: str) -> Manifest:
    if not isinstance(root, yaml.MappingNode):
        raise ManifestError(f"{source}: expected keys such as command: or script:, one per line")
    pairs = list(_pairs(root))
    wrong = [*_twice(root), *_unknown(pairs)]
    if wrong:
        raise ManifestError("\n".join(f"{source}:{line}: {what}" for line, what in wrong))
    texts = _TEXTS if any(name == "function" for name, _ in pairs) else _TEXTS | {"args"}
    said = {name: _value(node, text=name in texts) for name, node in pairs}
    lines = {name: node.start_mark.line + 1 for name, node in pairs}
    if said.pop("version", VERSION) != VERSION:
        raise ManifestError(f"{source}:{lines['version']}: version: this Headway reads version {VERSION}")
    return Manifest(said, lines, source)


def _unknown(pairs: Iterable[tuple[str, yaml.Node]]) -> list[tuple[int, str]]:
    wrong: list[tuple[int, str]] = []
    for name, node in pairs:
        if name not in KEYS and name != "version":
            close = get_close_matches(name, KEYS, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(('version', *KEYS))}"
            wrong.append((node.start_mark.line + 1, f"unknown key {name!r}; {hint}"))
    return wrong


def _twice(node: yaml.Node) -> list[tuple[int, str]]:
    """Keys that are said twice, at any depth."""
    wrong: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for name, value in _pairs(node):
            line = value.start_mark.line + 1
            if name in first:
                wrong.append((line, f"{name!r} is said twice, first on line {first[name]}"))
            first.setdefault(name, line)
            wrong += _twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            wrong += _twice(item)
    return wrong


def _value(node: yaml.Node, *, text: bool) -> object:
    if isinstance(node, yaml.MappingNode):
        return {name: _value(value, text=text) for name, value in _pairs(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, text=text) for item in node.value]
    value = cast("str", node.value)
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case _ if text:
            return value
        case "bool":
            return value.lower() == "true"
        case "int":
            return int(value)
        case "float":
            return float(value)
        case _:
            return value


def _pairs(node: yaml.MappingNode) -> Iterable[tuple[str, yaml.Node]]:
    for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key.start_mark)
        yield cast("str", key.value), value


def _composed(text: bytes) -> yaml.Node | None:
    """The document as nodes with their lines, once nothing in it can grow or nest without bound."""
    depth = documents = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        problem = _unbounded(event, depth, documents)
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
    return cast("yaml.Node | None", yaml.compose(text, _Loader))


def _unbounded(event: yaml.Event, depth: int, documents: int) -> str | None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        return "anchors and aliases are not read"
    if depth > DEPTH_MAX:
        return f"nested more than {DEPTH_MAX} deep"
    return "one manifest per file; `submit --jsonl` takes many" if documents > 1 else None


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
