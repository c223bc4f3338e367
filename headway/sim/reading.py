"""Reads a scenario file, strictly: whatever is wrong is said with its line, and an unknown key with the one meant."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
import yaml

from headway.core import documents
from headway.core.refusal import Refused
from headway.sim.scenario import Scenario

BYTES_MAX = 4 * 1024 * 1024
_AT = re.compile(r"(?P<what>.*?)(?: - at `(?P<at>[^`]*)`)?")
_Struct = type[msgspec.Struct]
_Said = TypeVar("_Said")


class ScenarioError(ValueError):
    """A scenario that is not in order; every line of the message names its place."""


class Source:
    """A scenario file: its name, and on which line each thing is said."""

    def __init__(self, name: str, lines: dict[str, int]) -> None:
        self.name = name
        self._lines = lines

    def error(self, wrong: list[Refused]) -> ScenarioError:
        """All that is wrong, line by line."""
        placed = sorted(
            (self._line(one.path), f"{one.path}: {one.message}" if one.path else one.message) for one in wrong
        )
        return ScenarioError("\n".join(f"{self.name}:{line}: {what}" for line, what in placed))

    def _line(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it that is said at all."""
        while path and path not in self._lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path, 1)


def read(text: bytes, name: str) -> tuple[Scenario, Source]:
    """A scenario from the text of a file; raises ScenarioError."""
    if len(text) > BYTES_MAX:
        raise ScenarioError(f"{name}: a scenario must not exceed 4 MiB")
    try:
        root = documents.composed(text, one="one scenario per file")
        if not isinstance(root, yaml.MappingNode):
            raise ScenarioError(f"{name}: expected keys such as name:, horizon:, nodes:, tenants:")
        source = Source(name, dict(_lines(root, "")))
        if wrong := documents.twice(root):
            raise ScenarioError("\n".join(f"{name}:{line}: {what}" for line, what in wrong))
        said = documents.value(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ScenarioError(f"{name}:{mark.line + 1 if mark else 1}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{name}: {error}") from None
    if unknown := list(_unknown(said, Scenario, "")):
        raise source.error(unknown)
    return _converted(said, Scenario, source), source


def _converted(said: object, kind: type[_Said], source: Source) -> _Said:
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        found = _AT.fullmatch(str(error))
        assert found is not None
        path = (found["at"] or "$").removeprefix("$").removeprefix(".")
        raise source.error([Refused(path, found["what"])]) from None


def _lines(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    yield path, documents.line_of(node)
    if isinstance(node, yaml.MappingNode):
        for name, inner in documents.pairs(node):
            yield from _lines(inner, f"{path}.{name}" if path else name)
    elif isinstance(node, yaml.SequenceNode):
        for number, inner in enumerate(cast("list[yaml.Node]", node.value)):
            yield from _lines(inner, f"{path}[{number}]")


def _unknown(said: object, kind: object, path: str) -> Iterator[Refused]:
    """Keys that no struct of the format has, at any depth."""
    if isinstance(said, list):
        inner = next((one for one in _alternatives(kind) if get_origin(one) in (list, tuple)), None)
        for number, item in enumerate(cast("list[object]", said)):
            yield from _unknown(item, get_args(inner)[0] if inner else None, f"{path}[{number}]")
    elif isinstance(said, dict):
        yield from _unknown_in(cast("dict[str, object]", said), kind, path)


def _unknown_in(said: dict[str, object], kind: object, path: str) -> Iterator[Refused]:
    known = _struct_of(said, kind)
    if known is None:  # names of one's own, such as tiers
        inner = next((get_args(one)[1] for one in _alternatives(kind) if get_origin(one) is dict), None)
        for name, item in said.items():
            yield from _unknown(item, inner, f"{path}.{name}" if path else name)
        return
    fields = {field.name: field.type for field in msgspec.structs.fields(known)}
    keys = [*fields, *([known.__struct_config__.tag_field] if known.__struct_config__.tag_field else [])]
    for name, item in said.items():
        where = f"{path}.{name}" if path else name
        if name in keys:
            yield from _unknown(item, fields.get(name), where)
        else:
            close = get_close_matches(name, keys, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(keys)}"
            yield Refused(where, f"unknown key; {hint}")


def _struct_of(said: dict[str, object], kind: object) -> _Struct | None:
    """The struct that a mapping is, by its tag where there are several."""
    structs = [
        cast("Any", one) for one in _alternatives(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)
    ]
    tagged = [one for one in structs if one.__struct_config__.tag == said.get("kind", one)]
    return tagged[0] if tagged else structs[0] if len(structs) == 1 else None


def _alternatives(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
