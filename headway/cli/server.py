"""`headway server`."""

from __future__ import annotations

from pathlib import Path

import click

from headway.sdk.discovery import default_data_dir


@click.command("server")
@click.option("--database-url", envvar="HEADWAY_DATABASE_URL", required=True, metavar="URL", show_envvar=True)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True)
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once requests are served.")
@click.option("--bootstrap-keys", type=click.Path(path_type=Path), help="A JSON file with the first keys.")
@click.option(
    "--blobs",
    envvar="HEADWAY_BLOBS",
    metavar="WHERE",
    show_envvar=True,
    help="Where files are kept: a directory, or s3://bucket/prefix. All servers of a database share it.",
)
@click.option("--name", help="Who it is among the servers of its database; by default made of host and port.")
def command(
    database_url: str,
    host: str,
    port: int,
    ready_file: Path | None,
    bootstrap_keys: Path | None,
    blobs: str | None,
    name: str | None,
) -> int:
    """Run a server: the HTTP API, the scheduler, and what a database needs done."""
    from headway.app import ServerSettings, run_server

    settings = ServerSettings(
        database_url=database_url,
        host=host,
        port=port,
        ready_file=ready_file,
        bootstrap_keys=bootstrap_keys,
        blobs=blobs or _default_blobs(),
        name=name,
    )
    return run_server(settings)


def _default_blobs() -> str:
    """Beside what `headway dev` keeps, unless told."""
    beside = default_data_dir()
    if beside is None:
        raise click.UsageError("there is no home directory to keep files in: say --blobs DIRECTORY, or HEADWAY_BLOBS")
    return str(beside.with_name("blobs"))
