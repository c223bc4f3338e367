"""`headway doctor --sandbox`: tries every attack of the catalogue on this machine, and says which walls held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import click
import msgspec

from headway.agent.sandbox.escapes.catalogue import Attack, try_all
from headway.agent.sandbox.escapes.ground import NoGround, a_ground
from headway.cli import trouble


class Verdict(msgspec.Struct, frozen=True):
    """What came of one attack."""

    attack: str
    verdict: str
    why: str = ""
    """What gave way."""


def attack_sandbox(form: str, profile: str) -> int:
    """Prints each attack with its verdict; 1 when one was not withstood, or could not be tried."""
    said = _say if form == "table" else _say_nothing
    try:
        verdicts = asyncio.run(_verdicts(said, profile))
    except NoGround as none:
        raise trouble.Stopped(f"nothing can be tried: {none}", trouble.ERROR) from None
    broken = [verdict for verdict in verdicts if verdict.verdict == "broken"]
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(verdicts)).decode())
    held = sum(verdict.verdict == "held" for verdict in verdicts)
    beyond = len(verdicts) - held - len(broken)
    rest = f", {beyond} cannot be withstood on this machine" if beyond else ""
    click.echo(f"{held} of {len(verdicts)} attacks failed{rest}.", err=True)
    return 1 if held < len(verdicts) else 0


async def _verdicts(said: Callable[[Verdict], None], profile: str) -> list[Verdict]:
    found: list[Verdict] = []
    async with a_ground(profile) as ground:
        without = ground.groups.degraded.keys() & {"memory", "pids", "cpu"}

        def judged(attack: Attack, why: str) -> None:
            verdict = "held" if not why else "no limits" if attack.needs_groups and without else "broken"
            found.append(Verdict(attack.name, verdict, why))
            said(found[-1])

        await try_all(ground, judged)
    return found


def _say_nothing(_: Verdict) -> None:
    """JSON comes as a whole."""


def _say(verdict: Verdict) -> None:
    colour = {"held": "green", "no limits": "yellow", "broken": "red"}[verdict.verdict]
    line = f"{click.style(verdict.verdict, fg=colour)}  {verdict.attack}"
    click.echo(f"{line}: {verdict.why}" if verdict.why else line)
