"""`headway events`."""

from __future__ import annotations

import click
import msgspec

from headway.cli import options, output, things
from headway.cli.output import Column, Item
from headway.sdk.client import Client

FOLLOW_SECONDS = 30
PAGE = 500


def _at(item: Item) -> str:
    return str(item["at"])[:19]


COLUMNS: tuple[Column, ...] = (
    ("AT", _at),
    things.text("task"),
    things.text("kind"),
    things.text("attempt"),
    things.text("message"),
)


@click.command("events")
@click.option("--task", metavar="ID", help="Of one task.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only such, as failed or cap_exceeded.")
@click.option("--cursor", metavar="CURSOR", help="Go on behind this one (`now`: from now on).")
@click.option("-f", "--follow", is_flag=True, help="Wait for more; without --cursor from now on.")
@options.output_option
@options.client_options
def command(
    client: Client, task: str | None, kinds: tuple[str, ...], cursor: str | None, follow: bool, form: str | None
) -> None:
    """Print what went otherwise than asked: failures, caps, retries, cancels, pauses. Oldest first."""
    cursor = cursor or ("now" if follow else None)
    seen: list[Item] = []
    while True:
        wait = FOLLOW_SECONDS if follow else 0
        found = client.events(cursor=cursor, task=task, kinds=kinds, limit=PAGE, wait=wait)
        cursor = found.next_cursor
        items: list[Item] = [msgspec.to_builtins(one) for one in found.items]
        if follow:
            _print_on(items, form)
            continue
        seen += items
        if len(items) < PAGE:
            output.print_items(seen, form or "table", COLUMNS)
            return


def _print_on(items: list[Item], form: str | None) -> None:
    """One line for each, as it comes."""
    for item in items:
        if form in (None, "table"):
            click.echo("  ".join(output.clean(cell(item)) for _, cell in COLUMNS))
        else:
            output.print_items([item], "jsonl" if form == "json" else form or "jsonl", ())
