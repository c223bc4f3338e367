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


def submission_options(command: Command) -> Command:
    """Adds what can be said of how a task wants to be run; it arrives together as `wishes`."""

    @functools.wraps(command)
    def gathered(*args: object, **said: object) -> object:
        return command(*args, wishes=wishes(said), **said)

    wrapped: Command = gathered
    for option in reversed(_SUBMISSION):
        wrapped = option(wrapped)
    return wrapped


def wishes(said: dict[str, object]) -> dict[str, object]:
    """Takes the submission options out of `said`, as the keys of a submission."""
    names = ("tier", "name", "delay_tolerance", "execution_cap", "env", "tags")
    taken = {name: said.pop(name) for name in names}
    attempts, resources = said.pop("max_attempts"), cast("dict[str, str]", said.pop("resources"))
    taken["retry"] = {"max_attempts": attempts} if attempts else None
    taken["resources"] = {name: number(value) for name, value in resources.items()}
    return {name: value for name, value in taken.items() if value}


def pairs(_: click.Context, option: click.Parameter, said: tuple[str, ...]) -> dict[str, str]:
    """K=V options as a dict."""
    for pair in said:
        if "=" not in pair or pair.startswith("="):
            raise click.BadParameter(f"expected NAME=VALUE, not {pair!r}", param=option)
    return dict(pair.split("=", 1) for pair in said)


def number(text: str) -> int | float | str:
    """A number where the text is one: `cpu=2`, but `memory=4Gi`."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_SUBMISSION = [
    click.option("--tier", help="basic, regular, premium, or what the operator added."),
    click.option("--name", help="How lists call it."),
    click.option("--delay-tolerance", metavar="DURATION", help="How late it may start, such as 15m."),
    click.option("--execution-cap", metavar="DURATION", help="How long it may run, such as 30m."),
    click.option("--max-attempts", type=click.IntRange(1, 100), help="How often to try in all."),
    click.option("--env", multiple=True, metavar="K=V", callback=pairs, help="An environment variable."),
    click.option("--resources", multiple=True, metavar="K=V", callback=pairs, help="Such as cpu=2."),
    click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="A tag."),
]
