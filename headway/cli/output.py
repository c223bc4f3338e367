"""How data is printed: for people as a table, for programs as JSON, JSON lines, YAML or bare names.

rich is loaded only to draw a table on a terminal. What a task said of itself never reaches a terminal raw.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import cast

import click

FORMATS = ("table", "json", "jsonl", "yaml", "name")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

Item = dict[str, object]
Column = tuple[str, Callable[[Item], str]]
"""A heading and what stands below it."""


def print_items(items: Sequence[Item], form: str, columns: Sequence[Column]) -> None:
    """Prints a list of things."""
    match form:
        case "json":
            click.echo(json.dumps(items, indent=2, ensure_ascii=False))
        case "jsonl":
            for item in items:
                click.echo(json.dumps(item, ensure_ascii=False))
        case "yaml":
            click.echo(_yaml(items), nl=False)
        case "name":
            for item in items:
                click.echo(clean(item.get("id", item.get("name", item.get("path", "")))))
        case _:
            headings = [heading for heading, _ in columns]
            _print_table([[clean(cell(item)) for _, cell in columns] for item in items], headings)


def print_item(item: Item, form: str) -> None:
    """Prints one thing; as a table it is a list of its fields."""
    match form:
        case "table":
            said = {name: clean(_plain(value)) for name, value in item.items()}
            width = max(map(len, said), default=0)
            for name, value in said.items():
                if value:
                    click.echo(f"{name:<{width}}  {value}")
        case "json":
            click.echo(json.dumps(item, indent=2, ensure_ascii=False))
        case "yaml":
            click.echo(_yaml(item), nl=False)
        case _:
            print_items([item], form, ())


def clean(said: object) -> str:
    """Text with nothing in it that could steer a terminal."""
    return _CONTROL.sub(" ", str(said))


def ago(said: object, now: datetime) -> str:
    """How long ago a time of the API was: 5s, 12m, 3h, 9d."""
    if not isinstance(said, str):
        return ""
    seconds = max(int((now - datetime.fromisoformat(said)).total_seconds()), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _print_table(rows: list[list[str]], headings: list[str]) -> None:
    if sys.stdout.isatty():
        _draw(rows, headings)
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(rows: list[list[str]], headings: list[str]) -> None:
    from rich.console import Console  # 60 ms, so not for pipes; honours NO_COLOR by itself
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading == "ID", overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console().print(table)


_STYLES = {"done": "green", "failed": "red", "running": "cyan", "cancelled": "dim"}


def _plain(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict):
        return _reason(cast("Item", value)) if value else ""
    return json.dumps(value, ensure_ascii=False)


def _reason(value: Item) -> str:
    if value.keys() == {"code", "message"}:
        return f"{value['message']} ({value['code']})"
    return json.dumps(value, ensure_ascii=False)


def _yaml(value: object) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
