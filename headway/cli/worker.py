"""`headway worker`: an agent that runs the functions of one app and nothing else."""

from __future__ import annotations

from typing import Any

import click

from headway.cli.agent import agent_options, start


@click.command("worker")
@agent_options
@click.argument("app", metavar="MODULE:app")
def command(app: str, **said: Any) -> int:
    """Run the functions of an app, such as shop.tasks:app."""
    return start({"function"}, app, **said)
