"""`headway plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headway.cli import options, output, things
from headway.cli.output import Item
from headway.sdk.client import Client

COLUMNS = tuple(things.text(name) for name in ("name", "tiers", "urgent_share", "quota", "resource_max", "admission"))
_ALL = "all"


def _wishes(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--tiers", metavar="A,B", help="The tiers its tenants may use; `all` for all there are."),
            click.option("--urgent-share", type=float, metavar="0..1", help="How much of its work may be urgent."),
            click.option(
                "--quota", multiple=True, metavar="K=V", callback=options.pairs,
                help="Most in use at once, such as running=100 or cpu=8; `none` for no bound.",
            ),
            click.option(
                "--resource-max", multiple=True, metavar="K=V", callback=options.pairs,
                help="Most that a task may ask for, such as memory=4Gi; `none` for no bound.",
            ),
            click.option(
                "--profiles", metavar="A,B",
                help="Which profiles its tasks may ask for though their tier's is stricter; `none` for none.",
            ),
            click.option(
                "--network/--no-network", default=None, help="Whether its tasks may have the node's network.",
            ),
            click.option(
                "--fresh/--no-fresh", default=None, help="Whether each task has a sandbox in which nothing ever ran.",
            ),
            click.option(
                "--admission", type=click.Choice(["warn", "refuse"]),
                help="What becomes of a task that cannot start within its tolerance.",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.group("plan")
def command() -> None:
    """Make and change plans: what the tenants on them may do. Takes an administrator's key."""


@command.command("create")
@click.argument("name")
@_wishes
@options.output_option
@options.client_options
def create(client: Client, name: str, form: str | None, **wishes: Any) -> None:
    """Make a plan; what is left out bounds nothing."""
    output.print_item(client.create_plan(name, **_said({}, **wishes)), form or "name")


@command.command("list")
@options.output_option
@options.client_options
def list_all(client: Client, form: str | None) -> None:
    """List the plans by name."""
    output.print_items(client.plans(), form or "table", COLUMNS)


@command.command("show")
@click.argument("name")
@options.output_option
@options.client_options
def show(client: Client, name: str, form: str | None) -> None:
    """Show a plan."""
    output.print_item(client.plan(name), form or "table")


@command.command("set")
@click.argument("name")
@_wishes
@options.output_option
@options.client_options
def change(client: Client, name: str, form: str | None, **wishes: Any) -> None:
    """Change a plan for all tenants on it; what is left out stays."""
    output.print_item(client.change_plan(name, **_said(client.plan(name), **wishes)), form or "name")


def _said(
    there: Item,
    tiers: str | None,
    urgent_share: float | None,
    quota: dict[str, str],
    resource_max: dict[str, str],
    profiles: str | None,
    network: bool | None,
    fresh: bool | None,
    admission: str | None,
) -> Item:
    """What was said of a plan, laid over what there is."""
    said = options.mentioned(
        urgent_share=urgent_share,
        admission=admission,
        network=network,
        fresh=fresh,
        profiles=[one.strip() for one in profiles.split(",") if one.strip() != "none"] if profiles else None,
        tiers=[one.strip() for one in tiers.split(",")] if tiers else None,
    )
    if tiers == _ALL:
        said["tiers"] = None
    if quota:
        said["quota"] = options.amounts(quota, there.get("quota"))
    if resource_max:
        said["resource_max"] = options.amounts(resource_max, there.get("resource_max")) or None
    return said
