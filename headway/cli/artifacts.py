"""`headway artifacts`."""

from __future__ import annotations

from typing import cast

import click
import msgspec

from headway.cli import options, output
from headway.cli.output import Column, Item
from headway.sdk.client import Client

COLUMNS: list[Column] = [
    ("SIZE", lambda item: str(item["size"])),
    ("PATH", lambda item: str(item["path"])),
]


@click.command("artifacts")
@click.argument("task_id", metavar="ID")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt (default: the last one).")
@options.output_option
@options.client_options
def command(client: Client, task_id: str, attempt: int | None, form: str | None) -> None:
    """List the files a task left in $HEADWAY_ARTIFACTS."""
    left = client.artifact_list(task_id, attempt)
    items: list[Item] = [msgspec.to_builtins(one) for one in client.artifacts(task_id, attempt)]
    output.print_items(items, form or "table", COLUMNS)
    for one in cast("list[dict[str, str]]", left["left_out"]):
        click.echo(f"headway: left out: {output.clean(one['path'])}: {output.clean(one['why'])}", err=True)
