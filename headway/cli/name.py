"""`headway name`."""

from __future__ import annotations

import click

from headway.cli import options, output, things
from headway.sdk.client import Client

COLUMNS = (
    things.text("name"),
    things.text("paused_by"),
    things.age("paused_at"),
    things.text("held_by"),
)


@click.group("name")
def command() -> None:
    """Pause and resume your tasks by their name; `encode-*` means all names that begin so."""


@command.command("list")
@options.output_option
@options.client_options
def list_all(client: Client, form: str | None) -> None:
    """List the names that are paused."""
    output.print_items(client.names(), form or "table", COLUMNS)


@command.command("pause")
@click.argument("name")
@options.output_option
@options.client_options
def pause(client: Client, name: str, form: str | None) -> None:
    """Keep tasks of that name from starting; what runs goes on."""
    output.print_item(client.pause_name(name), form or "name")


@command.command("resume")
@click.argument("name")
@options.output_option
@options.client_options
def resume(client: Client, name: str, form: str | None) -> None:
    """Let tasks of that name start again."""
    output.print_item(client.resume_name(name), form or "name")
