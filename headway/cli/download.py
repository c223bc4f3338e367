"""`headway download`."""

from __future__ import annotations

import sys

import click

from headway.cli import options
from headway.sdk.client import Client


@click.command("download")
@click.argument("task_id", metavar="ID")
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@click.option("--to", default=".", show_default=True, metavar="DIR", help="Where to write them; - is stdout.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt (default: the last one).")
@options.client_options
def command(client: Client, task_id: str, paths: tuple[str, ...], to: str, attempt: int | None) -> None:
    """Download files a task left in $HEADWAY_ARTIFACTS: those that are named, or all.

    \b
    headway download 215734180864001 --to results
    headway download 215734180864001 report.html --to -
    """
    if to == "-":
        if not paths:
            raise click.UsageError("name the files to print")
        for path in paths:
            for piece in client.artifact(task_id, path, attempt):
                sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    for path in paths or (None,):
        client.download(task_id, to, path, attempt)
