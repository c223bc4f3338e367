"""`headway explain`."""

from __future__ import annotations

from typing import cast

import click

from headway.cli import options, output
from headway.cli.output import Item
from headway.core.quantity import amount_text
from headway.sdk.client import Client


@click.command("explain")
@click.argument("task_id", metavar="ID")
@options.output_option
@options.client_options
def command(client: Client, task_id: str, form: str | None) -> None:
    """Say why a task waits, why it runs where it does, or how it ended."""
    said = client.explain(task_id)
    if form is not None and form != "table":
        output.print_item(said, form)
        return
    click.echo(output.clean(f"{said['status']}: {said['message']} ({said['code']})"))
    for line in _lines(said):
        click.echo(f"  {output.clean(line)}")


def _lines(said: Item) -> list[str]:
    lines = [_blocked(one) for one in _items(said.get("blockers"))]
    lines += [f"what would help: {one}" for one in cast("list[str]", said["helps"])]
    if isinstance(where := said.get("position"), dict):
        found = cast("Item", where)
        least = "" if found["complete"] else "at least "
        lines.append(
            f"before it: {least}{found['line']} just like it, {found['tenant']} of its tenant, {found['pool']} in all"
        )
    if isinstance(when := said.get("estimate"), dict):
        found = cast("Item", when)
        late = ", later than it tolerates" if found["late"] else ""
        lines.append(f"expected to start in {found['seconds']:g} s, at {found['starts_at']} ({found['basis']}){late}")
    if isinstance(began := said.get("started"), dict):
        found = cast("Item", began)
        lines += [_fits(str(one["resource"]), one["needed"], one["capacity"]) for one in _items(found["fit"])]
    return [*lines, f"as of {said['as_of']}"]


def _fits(name: str, needed: object, capacity: object) -> str:
    scale = 1000 if name == "cpu" else 1
    amounts = (amount_text(name, round(cast("float", one) * scale)) for one in (needed, capacity))
    return f"{name}: {' of '.join(amounts)}"


def _items(said: object) -> list[Item]:
    return cast("list[Item]", said) if isinstance(said, list) else []


def _blocked(one: Item) -> str:
    held = cast("list[str]", one.get("holders") or [])
    by = f"; held by {', '.join(held)}" if held else ""
    until = f"; until {one['until']}" if one.get("until") else ""
    return f"{one['code']}: {one['message']}{by}{until}"
