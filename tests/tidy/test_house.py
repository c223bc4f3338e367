"""The house rules a machine can check: sizes, leftovers, no package registry, a core without a clock."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "headway"
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

# Built from pieces so that this file does not break its own rules.
LEFTOVER = re.compile("|".join((r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bX" + r"XX\b")))
POSSESSIVE = re.compile(r"\)[*+?]" + r"\+[\"')|\\]|\(\?" + ">")
REGISTRY = re.compile(
    "|".join(
        (
            "py" + r"pi\.org",
            "py" + r"pi\.python\.org",
            "python" + r"hosted\.org",
            "npm" + r"js\.(org|com)",
            "yarn" + r"pkg\.com",
            r"file:///opt/" + "py" + "pi",
            r"^\s*--(extra-)?index-" + "url",
        )
    ),
    re.MULTILINE,
)


def test_no_file_is_longer_than_a_reader_can_hold():
    long = {_name(path): n for path in _sources() if (n := len(_text(path).splitlines())) > FILE_LINES_MAX}
    assert not long


def test_no_function_is_longer_than_a_page():
    long = [
        f"{_name(path)}:{function.lineno} {function.name}"
        for path in _sources()
        for function in _functions(path)
        if (function.end_lineno or function.lineno) - function.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


def test_nothing_is_left_for_later():
    assert not _lines_that_match(LEFTOVER)


def test_no_tracked_file_names_a_package_registry():
    assert not _lines_that_match(REGISTRY)


def test_no_group_is_repeated_possessively():
    """Before CPython 3.11.5, and Debian 12 has 3.11.2, `(?:…)*+` matches wrongly."""
    assert _lines_that_match(POSSESSIVE) == []


def test_the_core_never_asks_what_time_it_is():
    asked = [
        f"{_name(path)}:{call.lineno} {ast.unparse(call)}"
        for path in (PACKAGE / "core").rglob("*.py")
        for call in ast.walk(ast.parse(_text(path)))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in {"now", "utcnow", "today"}
        and ast.unparse(call.func.value).split(".")[-1] in {"datetime", "date"}
    ]
    assert not asked


def _sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(_text(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{_name(path)}:{number} {line.strip()[:80]}"
        for path in _tracked()
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def _tracked() -> list[Path]:
    """What git knows, and what it would know after `git add`: after the commit is too late."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
