"""`headway simulate`: what would happen, before it happens."""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from headway.cli import output, trouble
from headway.sim.outcome import Outcome, outcome
from headway.sim.reading import ScenarioError, read
from headway.sim.report import report as page
from headway.sim.running import POLICIES, simulation
from headway.sim.said import Table, by_tenant, comparison, lasting, summary
from headway.sim.world import World, world

FORMATS = ("table", "json", "yaml")
PROGRESS_SECONDS = 0.5
GARBAGE_AFTER = 200_000
"""Tasks come and go by the million and hardly ever in circles."""


@click.command("simulate")
@click.argument(
    "scenarios", metavar="SCENARIO...", nargs=-1, required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(1, 100_000), help="So many nodes in place of the scenario's, in proportion."
)
@click.option(
    "--load", type=click.FloatRange(0, 1000, min_open=True), default=1.0, help="So many times the work (2, 0.05)."
)
@click.option("--seed", type=int, help="Another seed than the scenario's: the same kind of week, but not the same one.")
@click.option("--policy", type=click.Choice(list(POLICIES)), default="headway", help="What decides.")
@click.option("--compare", is_flag=True, help="Let each policy decide in turn, and print them side by side.")
@click.option("--checks", is_flag=True, help="Verify at every moment that no node holds more than it has (slow).")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the report is written. Default: SCENARIO.html here.",
)
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option("-o", "--output", "form", type=click.Choice(FORMATS), default="table", help="How to print data.")
def command(
    scenarios: tuple[Path, ...],
    nodes: int | None,
    load: float,
    seed: int | None,
    policy: str,
    compare: bool,
    checks: bool,
    report: Path | None,
    no_report: bool,
    form: str,
) -> int:
    """Run a pool under a virtual clock: the scheduler itself, with made-up work on made-up nodes.

    Prints a table and writes a report, one HTML file with plots. Ctrl-C prints what was reached.
    """
    if report is not None and len(scenarios) > 1:
        raise trouble.Stopped("--report names one file; several scenarios write SCENARIO.html each", trouble.USAGE)
    found: list[Outcome] = []
    for scenario in scenarios:
        of_it: list[Outcome] = []
        try:
            said, source = read(scenario.read_bytes(), str(scenario))
            for one in POLICIES if compare else [policy]:
                of_it.append(_run(world(said, source, nodes=nodes, seed=seed, load=load), one, checks))
                if not of_it[-1].is_whole:
                    break
        except ScenarioError as error:
            raise trouble.Stopped(str(error), trouble.USAGE) from None
        if not no_report:
            _write(of_it, report or Path(f"{scenario.stem}.html"))
        found += of_it
        if not of_it[-1].is_whole:
            break
    _print(found, form, compare=compare)
    return trouble.OK if all(one.is_whole for one in found) else trouble.INTERRUPTED


def _run(made: World, policy: str, checks: bool) -> Outcome:
    """Simulates; interrupted, what was reached is told all the same."""
    thresholds, begun, cpu = gc.get_threshold(), time.monotonic(), time.process_time()
    gc.set_threshold(GARBAGE_AFTER, 50, 100)
    one = simulation(made, policy, checks=checks)
    is_whole = True
    try:
        click.echo(f"simulating {lasting(made.horizon)} of {made.scenario.name} with {policy} ...", err=True)
        one.run(_progress(made, policy))
    except KeyboardInterrupt:
        is_whole = False
    finally:
        gc.set_threshold(*thresholds)
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)
    found = outcome(one, policy, is_whole=is_whole)
    took, cpu, most = time.monotonic() - begun, time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF)
    state = "simulated" if is_whole else "interrupted: only"
    click.echo(
        f"{policy}: {state} {lasting(one.now)} and {found.arrived:,} tasks on {found.nodes:,} nodes in {took:.1f} s "
        f"({cpu:.1f} s of cpu, {most.ru_maxrss / 1024:.0f} MB at most; seed {found.seed})",
        err=True,
    )
    return found


def _write(found: list[Outcome], path: Path) -> None:
    """Writes the report, all of it or none."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(page(found), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise trouble.Stopped(f"the report cannot be written: {error}", trouble.ERROR) from None
    click.echo(f"report: {path}", err=True)


def _progress(made: World, policy: str) -> Callable[[float], None]:
    """A line on a terminal that says how far it is."""
    if not sys.stderr.isatty():
        return lambda now: None
    told = begun = time.monotonic()

    def tell(now: float) -> None:
        nonlocal told
        at = time.monotonic()
        if at - told >= PROGRESS_SECONDS:
            told = at
            part = min(now / made.horizon, 1.0)
            left = f", {lasting((at - begun) * (1 - part) / part)} to go" if 0.01 < part < 1 else ""
            click.echo(
                f"\r\x1b[K{policy}: {lasting(now)} of {lasting(made.horizon)} ({part:.0%}{left})", err=True, nl=False
            )

    return tell


def _print(found: list[Outcome], form: str, *, compare: bool) -> None:
    if form != "table":
        said = [msgspec.to_builtins(one) for one in found]
        whole = said if len(said) > 1 else said[0]
        click.echo(json.dumps(whole, indent=2) if form == "json" else _yaml(whole), nl=form == "json")
        return
    if compare or len(found) > 1:
        _table(comparison(found))
        return
    for name, value in summary(found[0]):
        click.echo(f"{name:<16} {value}")
    click.echo()
    _table(by_tenant(found[0]))


def _yaml(value: object) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def _table(table: Table) -> None:
    headings, rows = table
    columns = [_column(name) for name in headings]
    output.print_items([dict(zip(headings, row, strict=True)) for row in rows], "table", columns)


def _column(name: str) -> output.Column:
    return name, lambda item: str(item[name])
