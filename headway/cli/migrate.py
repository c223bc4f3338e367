"""`headway migrate`."""

from __future__ import annotations

import click


@click.command("migrate")
@click.option("--database-url", envvar="HEADWAY_DATABASE_URL", required=True, metavar="URL", show_envvar=True)
def command(database_url: str) -> int:
    """Bring a database up to this version's schema. Safe to repeat, and while servers run."""
    from headway.app import run_migrate

    return run_migrate(database_url)
