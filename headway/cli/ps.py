"""`headway ps`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import click

from headway.cli import options, output
from headway.cli.output import Column, Item
from headway.sdk.client import Client
from headway.sdk.records import TaskRecord

PAGE_ITEMS = 200


def _reason(item: Item) -> str:
    reason = item.get("reason")
    return str(cast("Item", reason).get("message") or "") if isinstance(reason, dict) else ""


def _text(name: str) -> Column:
    return name.upper(), lambda item: str(item.get(name) or "")


COLUMNS: tuple[Column, ...] = (
    _text("id"),
    _text("name"),
    _text("status"),
    ("REASON", _reason),
    _text("tier"),
    ("AGE", lambda item: output.ago(item.get("submitted_at"), datetime.now(UTC))),
    _text("node"),
)


@click.command("ps")
@click.option("--status", type=click.Choice(["waiting", "running", "done", "failed", "cancelled"]))
@click.option("--name", help="Only tasks of this name.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=options.pairs, help="Only with it.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All there are, however many.")
@options.output_option
@options.client_options
def command(
    client: Client,
    status: str | None,
    name: str | None,
    tags: dict[str, str],
    limit: int,
    everything: bool,
    form: str | None,
) -> None:
    """List tasks, newest first."""
    found: list[TaskRecord] = []
    cursor: str | None = None
    while True:
        wanted = PAGE_ITEMS if everything else min(limit - len(found), PAGE_ITEMS)
        page = client.tasks(status=status, name=name, tags=tags, limit=wanted, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None or not (everything or len(found) < limit):
            break
    output.print_items([record.raw for record in found], form or "table", COLUMNS)
    if form is None and cursor is not None:
        click.echo(f"the newest {len(found)}; --all shows all, --limit more", err=True)
