"""`headway logs`."""

from __future__ import annotations

import click

from headway.cli import options, trouble, waiting
from headway.sdk.client import Client


@click.command("logs")
@click.argument("task_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt (default: the last one).")
@options.client_options
def command(client: Client, task_id: str, follow: bool, attempt: int | None) -> None:
    """Print the log of a task: stdout and stderr, as a terminal would show them."""
    try:
        waiting.follow_log(client, task_id, attempt, follow)
    except KeyboardInterrupt:
        again = f"`headway logs -f {task_id}` shows it again."
        raise trouble.Stopped(f"detached; the task goes on. {again}", trouble.INTERRUPTED) from None
