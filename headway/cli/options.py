"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click

from headway.cli.output import FORMATS
from headway.core.quantity import duration_ms
from headway.core.refusal import Refused
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
    names = (
        "tier", "profile", "image", "name", "delay_tolerance", "eligible_at", "execution_cap", "cap_grace", "env",
        "tags", "bundle", "workdir", "network", "tmp",
    )  # fmt: skip
    taken = {name: said.pop(name) for name in names}
    resources = cast("dict[str, str]", said.pop("resources"))
    taken["retry"] = mentioned(
        max_attempts=said.pop("max_attempts"), backoff=said.pop("backoff"), initial=said.pop("retry_initial")
    )
    taken["resources"] = {
        name: _ports(value) if name == "ports" else number(value) for name, value in resources.items()
    }
    concurrency, rates = cast("dict[str, str]", said.pop("concurrency")), cast("dict[str, str]", said.pop("rates"))
    taken["concurrency"] = [{"key": key, "limit": number(limit)} for key, limit in concurrency.items()]
    taken["rates"] = [{"key": key, "rate": number(rate)} for key, rate in rates.items()]
    taken["preemptible"], taken["fresh"] = said.pop("preemptible"), said.pop("fresh")
    return {name: value for name, value in taken.items() if value}


def sent(client: Client, wishes: dict[str, object]) -> dict[str, object]:
    """The wishes, with the folder of `bundle` uploaded and its digest instead."""
    folder = wishes.get("bundle")
    return wishes if folder is None else {**wishes, "bundle": client.bundle(str(folder))}


def _ports(text: str) -> int | float | str | list[str]:
    """A count, or names: `ports=2`, `ports=http,admin`."""
    said = number(text)
    return [name.strip() for name in text.split(",")] if isinstance(said, str) else said


def pairs(_: click.Context, option: click.Parameter, said: tuple[str, ...]) -> dict[str, str]:
    """K=V options as a dict."""
    for pair in said:
        if "=" not in pair or pair.startswith("="):
            raise click.BadParameter(f"expected NAME=VALUE, not {pair!r}", param=option)
    return dict(pair.split("=", 1) for pair in said)


def moment(_: click.Context, option: click.Parameter, said: str | None) -> str | datetime | None:
    """A time as it is said, or `+DURATION` from now."""
    if said is None or not said.startswith("+"):
        return said
    later = duration_ms(said[1:], "")
    if isinstance(later, Refused):
        raise click.BadParameter(f"{said!r}: behind the +, {later.message}", param=option)
    return datetime.now(UTC) + timedelta(milliseconds=later)


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


_SUBMISSION = [
    click.option("--tier", help="basic, regular, premium, or what the operator added."),
    click.option("--image", metavar="NAME", help="The container image it runs in, such as busybox:1.36."),
    click.option("--profile", type=click.Choice(PROFILES), help="How closed in it runs, if not as its tier says."),
    click.option("--name", help="How lists call it."),
    click.option("--delay-tolerance", metavar="DURATION", help="How late it may start, such as 15m."),
    click.option("--eligible-at", metavar="TIME", callback=moment, help="Not before: RFC 3339, or +15m from now."),
    click.option("--execution-cap", metavar="DURATION", help="How long it may run, such as 30m."),
    click.option("--cap-grace", metavar="DURATION", help="From SIGTERM to SIGKILL, such as 5s."),
    click.option("--max-attempts", type=click.IntRange(1, 100), help="How often to try in all."),
    click.option("--backoff", type=click.Choice(["exponential", "fixed"]), help="How the pauses between tries grow."),
    click.option("--retry-initial", metavar="DURATION", help="The pause before the second try, such as 1s."),
    click.option("--env", multiple=True, metavar="K=V", callback=pairs, help="An environment variable."),
    click.option("--resources", multiple=True, metavar="K=V", callback=pairs, help="Such as cpu=2, ports=http,admin."),
    click.option(
        "--bundle", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="Send a folder to work in."
    ),
    click.option("--workdir", metavar="PATH", help="Where in it to start."),
    click.option("--concurrency", multiple=True, metavar="KEY=N", callback=pairs, help="At most N of KEY at once."),
    click.option("--rate", "rates", multiple=True, metavar="KEY=RATE", callback=pairs, help="Such as api=60/m."),
    click.option("--network", is_flag=True, help="Its sandbox has the node's network, if its plan allows that."),
    click.option("--tmp", metavar="SIZE", help="How large its /tmp is, such as 512Mi; part of its memory."),
    click.option("--preemptible", is_flag=True, help="It may be paused for more pressing work."),
    click.option("--fresh", is_flag=True, help="Its sandbox is a new one, never a warm slot."),
    click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="A tag."),
]
