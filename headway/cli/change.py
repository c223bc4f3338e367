"""`headway change`."""

from __future__ import annotations

import click

from headway.cli import options, output
from headway.cli.ps import COLUMNS
from headway.sdk.client import Client


@click.command("change")
@click.argument("task_id", metavar="ID")
@click.option("--execution-cap", metavar="DURATION", help="How long it may run in all, such as 2h.")
@click.option("--delay-tolerance", metavar="DURATION", help="How late it may start, such as 15m.")
@click.option("--cap-grace", metavar="DURATION", help="From SIGTERM to SIGKILL, such as 5s.")
@click.option("--off-peak", type=click.Choice(["allow", "require", "never"]), help="Whether it waits for quiet hours.")
@options.output_option
@options.client_options
def command(client: Client, task_id: str, form: str | None, **said: object) -> None:
    """Change a task that waits or runs; what is left out stays."""
    record = client.change(task_id, **options.mentioned(**said))
    output.print_items([record.raw], form or "name", COLUMNS)
