"""`headway show`."""

from __future__ import annotations

import click
import msgspec

from headway.cli import options, output
from headway.cli.output import Column, Item
from headway.sdk.client import Client

TAIL_LINES = 20


def _text(name: str) -> Column:
    return name.upper(), lambda item: "" if item.get(name) is None else str(item[name])


COLUMNS = [_text(name) for name in ("attempt", "outcome", "code", "message", "node", "exit_code")]


@click.command("show")
@click.argument("task_id", metavar="ID")
@options.output_option
@options.client_options
def command(client: Client, task_id: str, form: str | None) -> None:
    """Show one task with its attempts."""
    record, attempts = client.task(task_id), client.attempts(task_id)
    tried: list[Item] = [msgspec.to_builtins(attempt) for attempt in attempts]
    if form in {"json", "jsonl", "yaml", "name"}:
        output.print_item({**record.raw, "attempts": tried}, form)
        return
    output.print_item(record.raw, "table")
    if tried:
        click.echo()
        output.print_items(tried, "table", COLUMNS)
    if record.status == "failed" and attempts and attempts[-1].tail:
        click.echo(f"\nthe end of its log (all of it: headway logs {task_id})", err=True)
        for line in attempts[-1].tail.splitlines()[-TAIL_LINES:]:
            click.echo(output.clean(line))
