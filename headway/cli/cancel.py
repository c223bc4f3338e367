"""`headway cancel`."""

from __future__ import annotations

import click

from headway.cli import options, output, trouble
from headway.cli.ps import COLUMNS
from headway.sdk.client import Client
from headway.sdk.errors import Conflict, NotFound
from headway.sdk.records import TaskRecord


@click.command("cancel")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@options.output_option
@options.client_options
def command(client: Client, ids: tuple[str, ...], form: str | None) -> int:
    """Cancel tasks: what runs is stopped, what waits never starts."""
    cancelled: list[TaskRecord] = []
    worst = trouble.OK
    for task_id in ids:
        try:
            cancelled.append(client.cancel(task_id))
        except (Conflict, NotFound) as error:  # the others are cancelled all the same
            click.echo(f"headway: {task_id}: {error}", err=True)
            worst = trouble.exit_code(error)
    output.print_items([record.raw for record in cancelled], form or "name", COLUMNS)
    return worst
