"""`headway wait`."""

from __future__ import annotations

import click

from headway.cli import options, output, waiting
from headway.cli.ps import COLUMNS
from headway.sdk.client import Client


@click.command("wait")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@options.timeout_option
@options.output_option
@options.client_options
def command(client: Client, ids: tuple[str, ...], timeout: float | None, form: str | None) -> int:
    """Wait for tasks to finish. Exit code: 0 all done, 10 one failed, 11 one cancelled, 124 timeout."""
    for task_id in ids:
        client.task(task_id)  # an id that does not exist would be waited for, for ever
    records = waiting.wait(client, ids, timeout)
    if form is not None:
        output.print_items([record.raw for record in records], form, COLUMNS)
    return waiting.exit_code(records)
