"""`headway pause`."""

from __future__ import annotations

import click

from headway.cli import options
from headway.cli.each import each
from headway.sdk.client import Client


@click.command("pause")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@options.output_option
@options.client_options
def command(client: Client, ids: tuple[str, ...], form: str | None) -> int:
    """Pause tasks: what waits does not start, what runs stands still where it is."""
    return each(client.pause, ids, form)
