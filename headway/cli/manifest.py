"""Manifests: what a person writes about a task, read strictly.

Whatever is wrong is said with its line: an unknown key (and the one that was meant), a key said twice, a
value that cannot be. Text is never guessed at: `env: {LEVEL: 5}` is the text 5, `yes` is the text yes.
Anchors and aliases are refused, so no small file can become a large one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (PyYAML ships no types; nothing but Manifest leaves this file)
from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

import yaml

from headway.core.documents import composed, line_of, pairs, twice, value
from headway.core.task import Submission
from headway.sdk.errors import SubmissionError
from headway.sdk.submissions import KEYS, submission, wrong_key

MANIFEST_BYTES_MAX = 1024 * 1024
VERSION = 1
ONE = "one manifest per file; `submit --jsonl` takes many"
_TEXTS = frozenset({"name", "tier", "script", "function", "bundle", "workdir", "command", "env", "tags"})
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
        return _read(composed(text, one=ONE), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(f"{source}:{mark.line + 1 if mark else 1}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{source}: {error}") from None


def _read(root: yaml.Node | None, source: str) -> Manifest:
    if not isinstance(root, yaml.MappingNode):
        raise ManifestError(f"{source}: expected keys such as command: or script:, one per line")
    keys = list(pairs(root))
    wrong = [*twice(root), *_unknown(keys)]
    if wrong:
        raise ManifestError("\n".join(f"{source}:{line}: {what}" for line, what in wrong))
    texts = _TEXTS if any(name == "function" for name, _ in keys) else _TEXTS | {"args"}
    said = {name: value(node, text=name in texts) for name, node in keys}
    lines = {name: line_of(node) for name, node in keys}
    if said.pop("version", VERSION) != VERSION:
        raise ManifestError(f"{source}:{lines['version']}: version: this Headway reads version {VERSION}")
    return Manifest(said, lines, source)


def _unknown(keys: Iterable[tuple[str, yaml.Node]]) -> list[tuple[int, str]]:
    wrong: list[tuple[int, str]] = []
    for name, node in keys:
        if name not in KEYS and name != "version":
            close = get_close_matches(name, KEYS, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(('version', *KEYS))}"
            wrong.append((line_of(node), f"unknown key {name!r}; {hint}"))
    return wrong
