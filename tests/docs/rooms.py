"""The list of all files, `docs/rooms.md`, made of their own first sentences: `python -m tests.docs.rooms` writes it.

So it cannot say anything else than the files do, and nobody keeps it by hand; a test compares.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

PAGE = Path("docs/rooms.md")
_OPENING = """# Rooms

Every file, by its own first sentence. [Architecture](ARCHITECTURE.md) says how they hang together. `make rooms` writes
this page anew.
"""
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PACKAGES = ("headway", "bench")


def page() -> str:
    """What the page must say today."""
    return "\n".join([_OPENING, *(line for package in _PACKAGES for line in _rooms(ROOT / package))]).rstrip() + "\n"


def _rooms(top: Path) -> Iterator[str]:
    for room in (top, *sorted(path for path in top.rglob("*") if path.is_dir())):
        files = sorted(room.glob("*.py"))
        if not files:
            continue
        yield f"## `{room.relative_to(ROOT)}/`\n"
        if opening := "\n".join(_first_sentence(path) for path in files if path.name == "__init__.py"):
            yield f"{opening}\n"
        others = [path for path in files if path.name != "__init__.py"]
        if others:
            yield "| file | |\n|---|---|"
            yield from (f"| [{path.name}](../{path.relative_to(ROOT)}) | {_first_sentence(path)} |" for path in others)
            yield ""


def _first_sentence(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(said.partition("\n\n")[0].split())
    return _END_OF_SENTENCE.split(paragraph)[0].replace("|", "\\|")


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
