"""What can be said of how a task wants to be run, as options of `headway run` and `headway submit`."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta
from typing import cast

import click

from headway.cli.options import PROFILES, Command, mentioned, number, pairs
from headway.core.quantity import duration_ms
from headway.core.refusal import Refused
from headway.sdk.client import Client

_PLAIN = (
    "tier", "profile", "image", "name", "delay_tolerance", "eligible_at", "execution_cap", "cap_grace", "env", "tags",
    "bundle", "workdir", "network", "tmp", "off_peak", "constraints", "preferred", "spread", "exclusive",
    "preemptible", "fresh",
)  # fmt: skip
"""Options that a submission has under the same name."""
_SHORTHANDS = ("cpu", "memory", "disk", "gpu")
_COMPARED = re.compile(r"(?P<label>[^=!\s]+)\s*(?P<op>!?=)\s*(?P<values>.+)")
_WORDED = re.compile(r"(?P<label>\S+)\s+(?:(?P<op>in)\s+(?P<values>.+)|exists)")


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
    taken = {name: said.pop(name) for name in _PLAIN}
    taken["retry"] = mentioned(
        max_attempts=said.pop("max_attempts"), backoff=said.pop("backoff"), initial=said.pop("retry_initial")
    )
    taken["resources"] = _resources(said)
    concurrency, rates = cast("dict[str, str]", said.pop("concurrency")), cast("dict[str, str]", said.pop("rates"))
    taken["concurrency"] = [{"key": key, "limit": number(limit)} for key, limit in concurrency.items()]
    taken["rates"] = [{"key": key, "rate": number(rate)} for key, rate in rates.items()]
    warning, grace = said.pop("cap_warning"), said.pop("checkpoint_grace")
    taken["cap_warning"] = {"before": warning} if warning else None
    told = {name: value for name, value in taken.items() if value}
    if said.pop("checkpoint") or grace:
        told["checkpoint"] = mentioned(grace=grace)
    return told


def _resources(said: dict[str, object]) -> dict[str, object]:
    amounts = cast("dict[str, str]", said.pop("resources"))
    for name in _SHORTHANDS:
        short = cast("str | None", said.pop(name))
        if short is not None and amounts.setdefault(name, short) != short:
            raise click.UsageError(f"--{name} {short} and --resources {name}={amounts[name]} contradict each other")
    return {name: _ports(value) if name == "ports" else number(value) for name, value in amounts.items()}


def sent(client: Client, wishes: dict[str, object]) -> dict[str, object]:
    """The wishes, with the folder of `bundle` uploaded and its digest instead."""
    folder = wishes.get("bundle")
    return wishes if folder is None else {**wishes, "bundle": client.bundle(str(folder))}


def _ports(text: str) -> int | float | str | list[str]:
    """A count, or names: `ports=2`, `ports=http,admin`."""
    said = number(text)
    return [name.strip() for name in text.split(",")] if isinstance(said, str) else said


def moment(_: click.Context, option: click.Parameter, said: str | None) -> str | datetime | None:
    """A time as it is said, or `+DURATION` from now."""
    if said is None or not said.startswith("+"):
        return said
    later = duration_ms(said[1:], "")
    if isinstance(later, Refused):
        raise click.BadParameter(f"{said!r}: behind the +, {later.message}", param=option)
    return datetime.now(UTC) + timedelta(milliseconds=later)


def constraints(_: click.Context, option: click.Parameter, said: tuple[str, ...]) -> list[dict[str, object]]:
    """Demands on labels as people write them."""
    return [_constraint(text.strip(), option) for text in said]


def _constraint(text: str, option: click.Parameter) -> dict[str, object]:
    found = _WORDED.fullmatch(text) or _COMPARED.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"expected 'LABEL=VALUE', 'LABEL!=VALUE', 'LABEL in A,B' or 'LABEL exists', not {text!r}", param=option
        )
    values = [value.strip() for value in (found["values"] or "").split(",") if value.strip()]
    return {"label": found["label"], "op": found["op"] or "exists", "values": values}


_SUBMISSION = [
    click.option("--tier", help="basic, regular, premium, or what the operator added."),
    click.option("--image", metavar="NAME", help="The container image it runs in, such as busybox:1.36."),
    click.option("--profile", type=click.Choice(PROFILES), help="How closed in it runs, if not as its tier says."),
    click.option("--name", help="How lists call it."),
    click.option("--delay-tolerance", metavar="DURATION", help="How late it may start, such as 15m."),
    click.option("--eligible-at", metavar="TIME", callback=moment, help="Not before: RFC 3339, or +15m from now."),
    click.option("--execution-cap", "--cap", metavar="DURATION", help="How long it may run, such as 30m."),
    click.option("--cap-grace", metavar="DURATION", help="From SIGTERM to SIGKILL, such as 5s."),
    click.option("--cap-warning", metavar="DURATION", help="Warn it (SIGUSR1) so long before its cap, such as 30s."),
    click.option("--max-attempts", type=click.IntRange(1, 100), help="How often to try in all."),
    click.option("--backoff", type=click.Choice(["exponential", "fixed"]), help="How the pauses between tries grow."),
    click.option("--retry-initial", metavar="DURATION", help="The pause before the second try, such as 1s."),
    click.option("--env", multiple=True, metavar="K=V", callback=pairs, help="An environment variable."),
    click.option("--cpu", metavar="CORES", help="Such as 2 or 0.5."),
    click.option("--memory", metavar="SIZE", help="Such as 512Mi or 4Gi."),
    click.option("--disk", metavar="SIZE", help="Such as 10Gi: what it may write."),
    click.option("--gpu", metavar="COUNT", help="How many GPUs."),
    click.option("--resources", multiple=True, metavar="K=V", callback=pairs, help="Any, such as ports=http,admin."),
    click.option(
        "--bundle", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="Send a folder to work in."
    ),
    click.option("--workdir", metavar="PATH", help="Where in it to start."),
    click.option(
        "--constraint",
        "constraints",
        multiple=True,
        metavar="TEXT",
        callback=constraints,
        help="Only where a node's labels are so: zone=eu, zone!=us, 'zone in eu,us', 'ssd exists'.",
    ),
    click.option(
        "--prefer",
        "preferred",
        multiple=True,
        metavar="TEXT",
        callback=constraints,
        help="The same, if there is such a node with room.",
    ),
    click.option("--spread", metavar="NAME", help="Tasks of one NAME keep away from each other's nodes."),
    click.option("--exclusive", is_flag=True, help="A node to itself."),
    click.option(
        "--off-peak",
        type=click.Choice(["allow", "require", "never"]),
        help="Whether it waits for off-peak hours: may (the default), must, or never.",
    ),
    click.option("--concurrency", multiple=True, metavar="KEY=N", callback=pairs, help="At most N of KEY at once."),
    click.option("--rate", "rates", multiple=True, metavar="KEY=RATE", callback=pairs, help="Such as api=60/m."),
    click.option("--network", is_flag=True, help="Its sandbox has the node's network, if its plan allows that."),
    click.option("--tmp", metavar="SIZE", help="How large its /tmp is, such as 512Mi; part of its memory."),
    click.option("--preemptible", is_flag=True, help="It may be paused for more pressing work."),
    click.option(
        "--checkpoint", is_flag=True, help="It writes checkpoints when told (SIGUSR2), and can leave its node."
    ),
    click.option("--checkpoint-grace", metavar="DURATION", help="How long it has for that, such as 30s."),
    click.option("--fresh", is_flag=True, help="Its sandbox is a new one, never a warm slot."),
    click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="A tag."),
]
