"""`headway cancel`."""

from __future__ import annotations

import click

from headway.cli import options
from headway.cli.each import each
from headway.sdk.client import Client


@click.command("cancel")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@options.output_option
@options.client_options
def command(client: Client, ids: tuple[str, ...], form: str | None) -> int:
    """Cancel tasks: what runs is stopped, what waits never starts."""
    return each(client.cancel, ids, form)
