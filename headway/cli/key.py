"""`headway key`."""

from __future__ import annotations

import click

from headway.cli import options, output, things
from headway.sdk.client import Client

COLUMNS = (
    things.text("id"),
    things.text("tenant"),
    things.text("role"),
    things.text("label"),
    things.text("created_by"),
    things.AGE,
)


@click.group("key")
def command() -> None:
    """Make and revoke API keys: for other tenants and roles with an administrator's key."""


@command.command("create")
@click.option("--tenant", metavar="NAME", help="Whose tasks it submits and sees (default: yours).")
@click.option("--role", type=click.Choice(["client", "admin", "node"]), help="What it is for (default: client).")
@click.option("--label", help="What lists call it.")
@options.output_option
@options.client_options
def create(client: Client, tenant: str | None, role: str | None, label: str | None, form: str | None) -> None:
    """Make a key and print it; it is never shown again."""
    made = client.create_key(**options.mentioned(tenant=tenant, role=role, label=label))
    if form in (None, "name"):
        click.echo(made["key"])
    else:
        output.print_item(made, form)


@command.command("list")
@click.option("--tenant", metavar="NAME", help="Only those of a tenant.")
@options.output_option
@options.client_options
def list_all(client: Client, tenant: str | None, form: str | None) -> None:
    """List the keys in force."""
    output.print_items(client.keys(tenant), form or "table", COLUMNS)


@command.command("revoke")
@click.argument("key_id", metavar="ID")
@options.client_options
def revoke(client: Client, key_id: str) -> None:
    """End a key: within half a minute no gateway takes it any more."""
    client.revoke_key(key_id)
    click.echo(key_id)
