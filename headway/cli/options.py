"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import click

from headway.cli.output import FORMATS
from headway.sdk.client import Client
from headway.sdk.discovery import discover

Command = Callable[..., Any]
"""What click calls: it passes everything by name, so no signature survives a decorator."""

PROFILES = ("trusted", "sandboxed", "container", "hostile")

output_option = click.option(
    "-o", "--output", "form", type=click.Choice(FORMATS), help="How to print data (default: for people)."
)
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer (exit code 124)."
)


def client_options(command: Command) -> Command:
    """Adds --url and --key, and hands the command a client."""

    @click.option("--url", metavar="URL", help="The server (default: HEADWAY_URL, profile, headway dev).")
    @click.option("--key", metavar="KEY", help="The API key (better: HEADWAY_KEY, which no `ps` shows).")
    @functools.wraps(command)
    def with_client(url: str | None, key: str | None, **said: object) -> object:
        server = discover(url, key)
        with Client(server.url, server.key) as client:
            return command(client, **said)

    return with_client


def pairs(_: click.Context, option: click.Parameter, said: tuple[str, ...]) -> dict[str, str]:
    """K=V options as a dict."""
    for pair in said:
        if "=" not in pair or pair.startswith("="):
            raise click.BadParameter(f"expected NAME=VALUE, not {pair!r}", param=option)
    return dict(pair.split("=", 1) for pair in said)


def mentioned(**said: object) -> dict[str, object]:
    """What was said at all: an option left out changes nothing."""
    return {name: value for name, value in said.items() if value is not None and value != {}}


def amounts(said: dict[str, str], there: object = None) -> dict[str, object] | None:
    """Amounts by name, laid over those there are; `none` takes one away. None when nothing was said."""
    if not said:
        return None
    before = cast("dict[str, object]", there) if isinstance(there, dict) else {}
    found = {**before, **{name: number(value) for name, value in said.items()}}
    return {name: value for name, value in found.items() if value != "none"}


def number(text: str) -> int | float | str:
    """A number where the text is one: `cpu=2`, but `memory=4Gi`."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
