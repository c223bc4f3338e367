"""`headway tenant`."""

from __future__ import annotations

import click

from headway.cli import options, output, things
from headway.sdk.client import Client

COLUMNS = (things.text("name"), things.text("plan"), things.text("paused"), things.AGE)


@click.group("tenant")
def command() -> None:
    """Make and change tenants: accounts that own tasks. Takes an administrator's key."""


@command.command("create")
@click.argument("name")
@click.option("--plan", help="What it may do (default: the plan named default).")
@options.output_option
@options.client_options
def create(client: Client, name: str, plan: str | None, form: str | None) -> None:
    """Make a tenant; its keys come from `headway key create --tenant NAME`."""
    output.print_item(client.create_tenant(name, **options.mentioned(plan=plan)), form or "name")


@command.command("list")
@options.output_option
@options.client_options
def list_all(client: Client, form: str | None) -> None:
    """List the tenants by name."""
    output.print_items(client.tenants(), form or "table", COLUMNS)


@command.command("show")
@click.argument("name")
@options.output_option
@options.client_options
def show(client: Client, name: str, form: str | None) -> None:
    """Show a tenant."""
    output.print_item(client.tenant(name), form or "table")


@command.command("set")
@click.argument("name")
@click.option("--plan", help="What it may do from now on.")
@click.option("--pause/--resume", "paused", default=None, help="Whether its tasks wait, or may start.")
@click.option("--fresh/--no-fresh", default=None, help="Whether each task has a sandbox in which nothing ever ran.")
@options.output_option
@options.client_options
def change(
    client: Client, name: str, plan: str | None, paused: bool | None, fresh: bool | None, form: str | None
) -> None:
    """Change a tenant; what is left out stays."""
    output.print_item(
        client.change_tenant(name, **options.mentioned(plan=plan, paused=paused, fresh=fresh)), form or "name"
    )
