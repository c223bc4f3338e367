"""`headway tier`."""

from __future__ import annotations

import click

from headway.cli import options, output, things
from headway.cli.output import Item
from headway.sdk.client import Client
from headway.sdk.errors import NotFound

COLUMNS = (
    things.text("name"),
    things.text("resources"),
    things.seconds("default_cap"),
    things.seconds("max_cap"),
    things.text("weight"),
    things.text("price"),
    things.text("profile"),
)


@click.group("tier")
def command() -> None:
    """Make and change tiers: named sizes of tasks. Changes take an administrator's key."""


@command.command("set")
@click.argument("name")
@click.option("--cpu", metavar="N", help="Such as 2 or 0.5.")
@click.option("--memory", metavar="SIZE", help="Such as 4Gi.")
@click.option("--disk", metavar="SIZE", help="Such as 10Gi.")
@click.option("--gpu", metavar="N", help="Whole ones.")
@click.option(
    "--resources", multiple=True, metavar="K=V", callback=options.pairs, help="Any resource; `none` takes it out."
)
@click.option("--default-cap", metavar="DURATION", help="How long a task may run that does not say, such as 30m.")
@click.option("--max-cap", metavar="DURATION", help="How long any may ask to run, such as 6h.")
@click.option("--weight", type=float, help="Its share against other tiers.")
@click.option("--price", metavar="DECIMAL", help="What one such task costs an hour, such as 0.12.")
@click.option("--profile", type=click.Choice(options.PROFILES), help="How closed in its tasks run.")
@options.output_option
@options.client_options
def change(
    client: Client,
    name: str,
    cpu: str | None,
    memory: str | None,
    disk: str | None,
    gpu: str | None,
    resources: dict[str, str],
    default_cap: str | None,
    max_cap: str | None,
    weight: float | None,
    price: str | None,
    profile: str | None,
    form: str | None,
) -> None:
    """Change a tier, or make it; what is left out stays."""
    vector = {"cpu": cpu, "memory": memory, "disk": disk, "gpu": gpu, **resources}
    sizes = {resource: amount for resource, amount in vector.items() if amount is not None}
    said = options.mentioned(
        resources=options.amounts(sizes, _there(client, name).get("resources")) if sizes else None,
        default_cap=default_cap,
        max_cap=max_cap,
        weight=weight,
        price=price,
        profile=profile,
    )
    output.print_item(client.keep_tier(name, **said), form or "name")


@command.command("list")
@options.output_option
@options.client_options
def list_all(client: Client, form: str | None) -> None:
    """List the tiers by name."""
    output.print_items(client.tiers(), form or "table", COLUMNS)


@command.command("show")
@click.argument("name")
@options.output_option
@options.client_options
def show(client: Client, name: str, form: str | None) -> None:
    """Show a tier."""
    output.print_item(client.tier(name), form or "table")


def _there(client: Client, name: str) -> Item:
    try:
        return client.tier(name)
    except NotFound:
        return {}
