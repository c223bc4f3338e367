"""`headway pool`."""

from __future__ import annotations

import click

from headway.cli import options, output, things
from headway.sdk.client import Client

COLUMNS = (
    things.text("name"),
    things.text("paused"),
    things.text("peak_line"),
    things.text("peak_hysteresis"),
    things.seconds("promotion_margin"),
    things.seconds("half_life"),
    things.text("demand_target"),
)


@click.group("pool")
def command() -> None:
    """Steer, pause and resume pools. Takes an administrator's key."""


@command.command("list")
@options.output_option
@options.client_options
def list_all(client: Client, form: str | None) -> None:
    """List the pools by name."""
    output.print_items(client.pools(), form or "table", COLUMNS)


@command.command("show")
@click.argument("name")
@options.output_option
@options.client_options
def show(client: Client, name: str, form: str | None) -> None:
    """Show a pool."""
    output.print_item(client.pool(name), form or "table")


@command.command("set")
@click.argument("name")
@click.option("--peak-line", type=float, metavar="0..1", help="From which utilization off-peak work waits.")
@click.option("--peak-hysteresis", type=float, metavar="0..1", help="How far below it the peak ends.")
@click.option("--promotion-margin", metavar="DURATION", help="How long before its latest start a task is urgent.")
@click.option("--half-life", metavar="DURATION", help="How fast past use is forgotten.")
@click.option("--demand-target", type=float, metavar="RATIO", help="How much more than is asked for it should have.")
@options.output_option
@options.client_options
def change(client: Client, name: str, form: str | None, **said: object) -> None:
    """Change how a pool is steered; what is left out stays."""
    output.print_item(client.change_pool(name, **options.mentioned(**said)), form or "name")


@command.command("pause")
@click.argument("name")
@options.output_option
@options.client_options
def pause(client: Client, name: str, form: str | None) -> None:
    """Keep a pool from starting tasks; what runs goes on."""
    output.print_item(client.pause_pool(name), form or "name")


@command.command("resume")
@click.argument("name")
@options.output_option
@options.client_options
def resume(client: Client, name: str, form: str | None) -> None:
    """Let a pool start tasks again."""
    output.print_item(client.resume_pool(name), form or "name")
