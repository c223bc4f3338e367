"""Which files of a folder do not travel with it: what a .headwayignore says, in the language of .gitignore.

The last pattern that fits decides; `!` takes back. What is in a directory that is passed over cannot be taken back, as
in git. Without a file, and before it, a few are passed over that nobody wants to send.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

IGNORE_FILE = ".headwayignore"
BY_DEFAULT = (".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", ".DS_Store", IGNORE_FILE)


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    directories_only: bool
    takes_back: bool


def ignoring(root: Path) -> Callable[[str, bool], bool]:
    """Whether a path of the folder, which is a directory or not, is passed over. Raises OSError, UnicodeError."""
    file = root / IGNORE_FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rules = [rule for line in (*BY_DEFAULT, *lines) if (rule := _rule(line)) is not None]

    def is_ignored(path: str, is_directory: bool) -> bool:
        verdict = False
        for rule in rules:
            if (is_directory or not rule.directories_only) and rule.pattern.fullmatch(path):
                verdict = not rule.takes_back
        return verdict

    return is_ignored


def _rule(line: str) -> _Rule | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text[1:] if takes_back else text.removeprefix("\\")
    directories_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    return _Rule(
        re.compile(("" if anchored else "(?:.*/)?") + _expression(text), re.DOTALL), directories_only, takes_back
    )


def _expression(text: str) -> str:
    """A glob as a regular expression: `*` and `?` stay within a name, `**` goes through directories."""
    out, at = "", 0
    while at < len(text):
        if text.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif text.startswith("**", at):
            out, at = out + ".*", at + 2
        elif text[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif text[at] == "?":
            out, at = out + "[^/]", at + 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside = text[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, at = out + "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]", end + 1
        elif text[at] == "\\" and at + 1 < len(text):
            out, at = out + re.escape(text[at + 1]), at + 2
        else:
            out, at = out + re.escape(text[at]), at + 1
    return out
