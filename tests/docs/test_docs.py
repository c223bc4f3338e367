"""What the pages say is so: their commands print what they show, their tables agree with the code, their links lead
somewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from headway.cli import trouble
from headway.cli.commands import SECTIONS, root
from headway.core.lifecycle import MOVES
from headway.core.task import RetryRule, Submission
from headway.gateway.operations import OPEN_OPERATIONS, OPERATIONS
from headway.gateway.problems import TITLES
from tests.docs import pages, rooms
from tests.end_to_end.dev import Dev, a_dev

PAGES = pages.pages()
RUN = [page for page in PAGES if pages.commands(page)]
ARCHITECTURE, OPERATIONS_PAGE, HTTP = Path("docs/ARCHITECTURE.md"), Path("docs/operations.md"), Path("docs/http-api.md")
TASKS, RETRIES, CLI = Path("docs/tasks.md"), Path("docs/retries-and-caps.md"), Path("docs/cli.md")
PAGE_SECONDS = 60
END = "\x1e"
UNITS = {
    "": 1, "KiB": 1024, "MiB": 1024**2, "s": 1, "min": 60, "days": 86400,
}  # fmt: skip
# No marketing, no path of somebody's machine.
UNWANTED = re.compile(
    r"\b(blazing|seamless(ly)?|powerful|cutting.edge|state.of.the.art|effortless(ly)?|world.class|next.gen\w*|"
    r"game.chang\w+|simply|issues?)\b|/work/|/root/|/tmp/",
    re.IGNORECASE,
)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One server for all pages. Its workers run the apps of all pages."""
    directory = tmp_path_factory.mktemp("docs")
    for page in PAGES:
        for name, body in pages.files(page).items():
            write(directory / name, body)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        with a_dev(directory, "--app", "shop:app", "--workers", "2") as dev:
            yield dev


@pytest.mark.parametrize("page", RUN, ids=str)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, dev: Dev, tmp_path: Path):
    commands = pages.commands(page)
    if any("curl" in command.text for command in commands) and shutil.which("curl") is None:
        pytest.skip("this machine has no curl")
    for name, body in pages.files(page).items():
        write(tmp_path / name, body)
    said = run_in_one_shell(commands, dev, tmp_path)
    wrong = [
        f"$ {command.text}\n--- the page shows:\n{command.output}\n--- it printed:\n{printed}"
        for command, printed in zip(commands, said, strict=True)
        if not command.printed(printed)
    ]
    assert not wrong, "\n\n".join(wrong)


def write(path: Path, body: str) -> None:
    """A file of a page, perhaps in a folder of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)


def run_in_one_shell(commands: list[pages.Command], dev: Dev, directory: Path) -> list[str]:
    """What each command printed. `$?` and variables last from one to the next, as they would for a reader."""
    script = "".join(
        f"{command.text}\ncode=$?; printf '\\036'; sh -c \"exit $code\"\n" for command in commands
    )  # one record separator behind each
    environment = {
        **dev.environment,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(pages.ROOT),
        "HOME": str(directory),
        "LC_ALL": "C.UTF-8",
    }
    (directory / ".page.sh").write_text(script)
    ran = subprocess.run(
        ["bash", ".page.sh"], env=environment, cwd=directory, text=True, timeout=PAGE_SECONDS, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return ran.stdout.split(END)[:-1]


def test_a_file_that_two_pages_show_is_the_same_on_both():
    shown: dict[str, set[str]] = {}
    for page in PAGES:
        for name, body in pages.files(page).items():
            shown.setdefault(name, set()).add(body)
    assert not [name for name, bodies in shown.items() if len(bodies) > 1]


def test_the_metrics_are_those_the_server_has(dev: Dev):
    there = set(re.findall(r"^(headway_\w+)[ {]", dev.http.get("/metrics").text, re.MULTILINE))
    assert {pages.code(row[0]) for row in pages.table(OPERATIONS_PAGE, "metric")} == there


# ── tables that repeat the code ───────────────────────────────────────────────────────────────────────────────────────


def test_the_problem_codes_are_those_of_the_gateway():
    said = {pages.code(row[0]): int(row[1]) for row in pages.table(HTTP, "code")}
    assert said == {problem: status for problem, (status, _) in TITLES.items()}


def test_the_endpoints_are_those_of_the_gateway():
    said = {(row[0], pages.code(row[1])) for row in pages.table(HTTP, "method")}
    assert said == {(operation.method, operation.path) for operation in (*OPERATIONS, *OPEN_OPERATIONS)}


def test_the_limits_are_those_of_the_code():
    wrong = [
        f"{what}: the page says {limit}, {where} is {constant(pages.code(where))}"
        for what, limit, where in pages.table(OPERATIONS_PAGE, "what | limit")
        if where and in_units_of(pages.code(where), limit) != constant(pages.code(where))
    ]
    assert not wrong


def constant(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def in_units_of(where: str, limit: str) -> float:
    """A limit as people write it, in the unit of the constant."""
    number, _, unit = limit.partition(" ")
    factor = 1000 if "_MS" in where else 1
    return float(number.replace(",", "")) * UNITS[unit] * factor


@pytest.mark.parametrize(
    ("page", "heading", "struct"), [(TASKS, "field", Submission), (RETRIES, "key of `retry`", RetryRule)]
)
def test_the_fields_and_their_defaults_are_those_of_the_code(page: Path, heading: str, struct: type[msgspec.Struct]):
    rows = pages.table(page, heading)
    fields = msgspec.structs.fields(struct)
    assert [pages.code(row[0]) for row in rows] == [field.name for field in fields]
    for row, field in zip(rows, fields, strict=True):
        if row[1].startswith("`"):
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            assert json.loads(pages.code(row[1])) == json.loads(msgspec.json.encode(default)), row[0]


def test_the_lifecycle_is_the_one_of_the_code():
    said = {(row[0], row[1]): row[2] for row in pages.table(ARCHITECTURE, "state | event")}
    assert said == {(state.name, event.name): after.name for (state, event), after in MOVES.items()}


def test_the_exit_codes_are_those_of_the_command_line():
    said = {int(row[0]) for row in pages.table(CLI, "code")}
    assert said == {value for name, value in vars(trouble).items() if name.isupper() and isinstance(value, int)}


def test_every_command_and_each_of_its_options_is_described():
    missing: list[str] = []
    for name in [name for section in SECTIONS.values() for name in section]:
        described = pages.section(CLI, f"### headway {name}") + shared_options(name)
        command = root.get_command(click.Context(root), name)
        assert command is not None
        verbs = command.commands if isinstance(command, click.Group) else {}
        missing += [f"{name} {verb}" for verb in verbs if verb not in described]
        options = [o for one in (command, *verbs.values()) for o in one.params if isinstance(o, click.Option)]
        missing += [
            f"{name} {option.opts[-1]}"
            for option in options
            if not any(o in described for o in option.opts if o[:2] == "--")
        ]
    assert not missing


def shared_options(name: str) -> str:
    """What the page says once for many commands."""
    shared = pages.section(CLI, "## Where the server is") + " --output "
    return shared + (pages.section(CLI, "### headway run") if name == "submit" else "")


# ── paths, links, words ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path):
    wrong: list[str] = []
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = (pages.ROOT / page).parent / path if path else pages.ROOT / page
        found = target.exists()
        if found and anchor:
            found = anchor in pages.anchors(target.resolve().relative_to(pages.ROOT))
        wrong += [] if found else [link]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_file_that_is_named_exists(page: Path):
    named = re.findall(r"`((?:headway|tests|docs|bench|examples)/[\w./-]*(?:\.\w+|/))`", pages.text(page))
    assert not [name for name in named if not (pages.ROOT / name).exists()]


def test_the_map_shows_every_room():
    packages = {path.parent.relative_to(pages.ROOT) for path in (pages.ROOT / "headway").rglob("*.py")}
    said = pages.text(ARCHITECTURE)
    assert not [str(package) for package in packages if f"`{package}/`" not in said and package != Path("headway")]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_boasts_or_names_somebodys_machine(page: Path):
    assert not [found.group() for found in UNWANTED.finditer(pages.text(page))]


def test_every_decision_is_listed():
    there = {path.name for path in (pages.ROOT / "docs/decisions").glob("[0-9]*.md")}
    assert there == set(pages.links(Path("docs/decisions/README.md")))


def test_the_list_of_rooms_says_what_the_files_say():
    assert pages.text(rooms.PAGE) == rooms.page(), "`make rooms` writes it anew"
