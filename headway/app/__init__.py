"""The composition root: the only place that builds clocks, pools of connections and services, and ties them together.

What a process does not run it does not import: an agent never loads the database driver or the web framework.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
import uvloop

if TYPE_CHECKING:
    from headway.agent.agent import AgentSettings


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a server."""

    database_url: str
    host: str = "127.0.0.1"
    port: int = 8642
    ready_file: Path | None = None
    bootstrap_keys: Path | None = None
    blobs: str
    """Where what tasks need and leave is kept: a directory, or an address such as s3://bucket/prefix."""
    name: str | None = None
    """Who it is among the servers of its database. One that comes back by the same name need not wait for the lease it
    held before; so no two at a time may have the same."""


class CannotStart(Exception):
    """The process cannot begin its work; the message says why and what to do."""


def run_migrate(database_url: str) -> int:
    """Brings a database to this program's schema."""
    from headway.app.migration import bring_up_to_date

    return bring_up_to_date(database_url)


def run_server(settings: ServerSettings) -> int:
    """Runs a server until it is told to stop."""
    from headway.app.server import serve

    _log_plainly()
    return _run_until_signal(lambda: serve(settings))


def run_agent(settings: AgentSettings) -> int:
    """Runs an agent until it is told to stop."""
    from headway.agent.agent import Agent, CannotRun

    async def run() -> None:
        try:
            await Agent(settings).run()
        except CannotRun as fault:
            raise CannotStart(str(fault)) from None

    _log_plainly()
    return _run_until_signal(run)


def _run_until_signal(work: Callable[[], Awaitable[None]]) -> int:
    """Cancels the work at SIGTERM or SIGINT, and waits until it has put everything in order."""

    async def main() -> int:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return 0
        except CannotStart as fault:
            sys.stderr.write(f"headway: {fault}\n")
            return 1
        return 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _log_plainly() -> None:
    level = os.environ.get("HEADWAY_LOG_LEVEL", "info").upper()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level, logging.INFO)),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=lambda *_: _UnfailingLogger(sys.stderr),
    )


class _UnfailingLogger(structlog.PrintLogger):
    """Loses a line rather than the work: a full disk or a closed pipe behind stderr is not the task's fault."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().msg(message)

    debug = info = warning = error = critical = log = failure = fatal = err = warn = exception = msg
