"""`headway resume`."""

from __future__ import annotations

import click

from headway.cli import options
from headway.cli.each import each
from headway.sdk.client import Client


@click.command("resume")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@options.output_option
@options.client_options
def command(client: Client, ids: tuple[str, ...], form: str | None) -> int:
    """Let paused tasks go on: where they stand, or when it is their turn again."""
    return each(client.resume, ids, form)
