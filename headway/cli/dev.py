"""`headway dev`: everything on this machine, persistent, one command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headway.cli import trouble
from headway.sdk.discovery import default_data_dir
from headway.store.data_dir import Held, HeldBy, lock_data_dir

if TYPE_CHECKING:
    from headway.dev.supervisor import Settings

DEMO_APP = "headway.dev.demo_app:app"


@click.command("dev")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Where everything is kept.")
@click.option("--app", metavar="MODULE:app", help="Also run the functions of this app.")
@click.option("--workers", type=click.IntRange(0, 1024), help="Functions at a time (default: the cpus).")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="0: a free one.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once everything accepts work.")
@click.option("--demo", is_flag=True, help="Then run a script, a function, and 1,000 tasks.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def command(
    data: Path | None,
    app: str | None,
    workers: int | None,
    port: int,
    host: str,
    ready_file: Path | None,
    demo: bool,
    log_level: str,
) -> int:
    """Run everything on this machine: database, server and agent. Ctrl-C stops it; the data stays."""
    from headway.dev import files

    if demo and app:
        raise click.UsageError("--demo brings an app of its own; leave out --app")
    if ready_file and not os.access(ready_file.absolute().parent, os.W_OK):
        raise click.BadParameter(f"cannot write into {ready_file.absolute().parent}", param_hint="--ready-file")
    os.environ["HEADWAY_LOG_LEVEL"] = log_level
    directory = (data or _default_data()).absolute()
    lock = _locked(directory)
    try:
        chosen = files.free_port(host, port)
    except OSError as error:
        free = "stop what listens there, or choose another: --port 0 takes any that is free"
        raise trouble.Stopped(f"cannot listen on {host}:{port}: {error.strerror}; {free}", 7) from None
    # structlog loads rich wherever it finds it: 5 MB and 50 ms, for the colours of tracebacks nobody sees
    # here.
    sys.modules.setdefault("rich", None)  # pyright: ignore[reportArgumentType]
    import structlog

    from headway.dev.supervisor import Settings

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is for data
    settings = Settings(
        data=directory,
        host=host,
        port=chosen,
        app=app or (DEMO_APP if demo else None),
        workers=workers,
        ready_file=ready_file.absolute() if ready_file else None,
        database_url=os.environ.get("HEADWAY_DATABASE_URL"),
        demo=demo,
    )
    return _supervise(settings, lock)


def _supervise(settings: Settings, lock: Held) -> int:
    from headway.dev.supervisor import Supervisor, Trouble

    async def supervise() -> None:
        supervisor = Supervisor(settings, lock, _say)
        await supervisor.run(lambda: _ready(supervisor.url, settings))

    try:
        asyncio.run(supervise())
    except (Trouble, ValueError) as error:
        raise trouble.Stopped(str(error), trouble.ERROR) from None
    _say(f"stopped; the data stays in {settings.data}")
    return trouble.OK


def _ready(url: str, settings: Settings) -> None:
    _say(f"ready: {url}")
    _say(f"key: in {settings.data / 'ready.json'} (logs beside it)")
    if not settings.demo:
        _say("try: headway run --follow -- echo hello")
        _say("Ctrl-C stops everything")


def _default_data() -> Path:
    directory = default_data_dir()
    if directory is None:
        raise trouble.Stopped("HOME is not set, so name a directory for the data: --data DIR", trouble.USAGE)
    return directory


def _locked(directory: Path) -> Held:
    try:
        lock = lock_data_dir(directory)
    except OSError as error:
        why = f"cannot keep data in {directory}: {error.strerror}"
        raise trouble.Stopped(f"{why}. Name another directory: --data DIR", trouble.ERROR) from None
    if isinstance(lock, HeldBy):
        who = f"process {lock.pid}" if lock.pid else "another process"
        raise trouble.Stopped(
            f"a headway dev runs in {directory} already ({who}).\n"
            "Use it as it is (`headway ps` finds it), stop it, or start another one: --data DIR --port 0",
            trouble.CONFLICT,
        )
    return lock


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a closed or full stderr is no reason not to work
        click.echo(f"headway dev: {text}", err=True)
