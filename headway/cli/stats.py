"""`headway stats`."""

from __future__ import annotations

from typing import cast

import click

from headway.cli import options, output, things
from headway.cli.output import Item
from headway.sdk.client import Client

POOLS = tuple(
    things.text(name)
    for name in ("name", "paused", "is_peak", "utilization", "off_peak_deferred", "nodes", "nodes_wanted")
)
DEMAND = tuple(things.text(name) for name in ("pool", "tier", "window", "ratio", "resource"))


@click.command("stats")
@options.output_option
@options.client_options
def command(client: Client, form: str | None) -> None:
    """Show whether pools have enough. Takes an administrator's key."""
    said = client.stats()
    pools = cast("list[Item]", said["pools"])
    if form is not None and form != "table":
        output.print_items(pools, form, POOLS)
        return
    output.print_items(pools, "table", POOLS)
    click.echo()
    rows = [{"pool": pool["name"], **one} for pool in pools for one in cast("list[Item]", pool["demand"])]
    output.print_items(rows, "table", DEMAND)
