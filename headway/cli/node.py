"""`headway node`."""

from __future__ import annotations

import time

import click

from headway.cli import options, output, things
from headway.sdk.client import Client

LOOK_SECONDS = 0.5
COLUMNS = (
    things.text("name"),
    things.text("status"),
    things.text("owned"),
    things.text("capacity"),
    things.text("profiles"),
    things.text("why"),
    things.age("seen_at"),
)
EVENTS = (things.text("at"), things.text("node"), things.text("kind"), things.text("message"))


@click.group("node")
def command() -> None:
    """List nodes, and keep tasks from them: the latter with an administrator's key."""


@command.command("list")
@options.output_option
@options.client_options
def list_all(client: Client, form: str | None) -> None:
    """List the nodes by name."""
    output.print_items(client.nodes(), form or "table", COLUMNS)


@command.command("show")
@click.argument("name")
@options.output_option
@options.client_options
def show(client: Client, name: str, form: str | None) -> None:
    """Show a node."""
    output.print_item(client.node(name), form or "table")


@command.command("cordon")
@click.argument("name")
@options.output_option
@options.client_options
def cordon(client: Client, name: str, form: str | None) -> None:
    """Keep tasks from a node; what runs there goes on."""
    output.print_item(client.cordon_node(name), form or "name")


@command.command("uncordon")
@click.argument("name")
@options.output_option
@options.client_options
def uncordon(client: Client, name: str, form: str | None) -> None:
    """Let a node take tasks again, also one in quarantine."""
    output.print_item(client.uncordon_node(name), form or "name")


@command.command("drain")
@click.argument("name")
@click.option("--deadline", metavar="DURATION", help="How long what runs there may take to end, such as 10m.")
@click.option("--wait", is_flag=True, help="Wait until nothing runs there any more.")
@options.output_option
@options.client_options
def drain(client: Client, name: str, deadline: str | None, wait: bool, form: str | None) -> None:
    """Keep tasks from a node, and have what runs there end, or leave by the deadline."""
    node = client.drain_node(name, deadline)
    while wait and node["status"] == "draining":
        time.sleep(LOOK_SECONDS)
        node = client.node(name)
    output.print_item(node, form or "name")


@command.command("events")
@click.option("--node", metavar="NAME", help="Of one node.")
@options.output_option
@options.client_options
def events(client: Client, node: str | None, form: str | None) -> None:
    """Print what happened to nodes, oldest first."""
    cursor: str | None = None
    seen: list[output.Item] = []
    while (found := client.node_events(cursor=cursor, node=node, limit=1000)).items:
        seen += found.items
        cursor = found.next_cursor
    output.print_items(seen, form or "table", EVENTS)
