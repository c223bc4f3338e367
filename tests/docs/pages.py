"""The documentation as the tests read it: pages, their fenced blocks, their tables, their links.

A block marked `console` is run: each line that starts with `$ ` is a command (a line that starts with `> ` continues
it), and what follows up to the next one is what it prints, stdout and stderr as a terminal shows them; `…` stands for
anything. A block marked with `file=NAME` is a file that the commands of its page find beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


class Command(NamedTuple):
    """A command of a page and what the page says it prints."""

    text: str
    output: str

    def printed(self, said: str) -> bool:
        """Whether that is what the page says."""
        pattern = re.escape(self.output.strip("\n")).replace("…", ".*")
        return re.fullmatch(pattern, said.strip("\n"), re.DOTALL) is not None


def pages() -> list[Path]:
    """Every page, as paths below the repository."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT) for path in found]


def text(page: Path) -> str:
    """What a page says."""
    return (ROOT / page).read_text(encoding="utf-8")


def commands(page: Path) -> list[Command]:
    """The commands of a page, in order."""
    blocks = [body for marks, body in _BLOCK.findall(text(page)) if marks.split()[:1] == ["console"]]
    return [command for body in blocks for command in _commands(body)]


def files(page: Path) -> dict[str, str]:
    """The files of a page by name."""
    blocks = [(marks.partition("file=")[2].strip(), body) for marks, body in _BLOCK.findall(text(page))]
    return {name: body for name, body in blocks if name}


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table whose heading row begins with these words, without its heading."""
    lines = iter(text(page).splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            next(lines)
            return [_cells(row) for row in _while_table(lines)]
    raise AssertionError(f"{page} has no table that begins with | {heading} |")


def code(cell: str) -> str:
    """What stands between backticks."""
    return cell.strip("`")


def links(page: Path) -> list[str]:
    """Where a page points to within the repository."""
    prose = _BLOCK.sub("", text(page))
    return [link for link in _LINK.findall(prose) if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """The places of a page that can be linked to."""
    prose = _BLOCK.sub("", text(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose)}


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    _, found, rest = text(page).partition(f"\n{heading}\n")
    assert found, f"{page} has no {heading}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def _commands(body: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        first, *lines = part.splitlines()
        words = [first]
        while lines and lines[0].startswith("> "):
            words.append(lines.pop(0)[2:])
        yield Command("\n".join(words), "\n".join(lines))


def _while_table(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]
