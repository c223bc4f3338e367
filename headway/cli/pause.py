"""`headway pause`."""

from __future__ import annotations

import click

from headway.cli import options
from headway.cli.each import each
from headway.sdk.client import Client


@click.command("pause")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--release", is_flag=True, help="Have it write a checkpoint and leave its node.")
@options.output_option
@options.client_options
def command(client: Client, ids: tuple[str, ...], release: bool, form: str | None) -> int:
    """Pause tasks: what waits does not start, what runs stands still where it is."""
    return each(lambda task_id: client.pause(task_id, release), ids, form)
