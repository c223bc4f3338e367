"""`make bench`: measures what Headway promises and prints it beside its targets and its peers."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from bench import table
from bench.contest import Row, hold
from bench.figures import Outcome
from bench.peers import brokers
from bench.rows import ROWS
from bench.stage import QUICK, Counts, Stage
from bench.weather import calibrate


def main() -> int:
    """Runs the rows asked for; 1 when Headway could not be measured in one of them."""
    said = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job would ignore the first
        signal.signal(number, _interrupted)
    best = max(calibrate() for _ in range(3))
    print(_machine(best))
    print(table.LEGEND)
    if not said.no_peers:
        print(brokers.which_redis())
    held: list[tuple[Row, list[Outcome]]] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="headway-bench-", ignore_cleanup_errors=True) as scratch:
        stage = Stage(Path(scratch), QUICK if said.quick else Counts(), not said.no_peers)
        try:
            for name in said.only:
                held.append(_held(ROWS[name](stage), said, best))
        except KeyboardInterrupt:
            interrupted = True
            print("\ninterrupted; everything that was started is stopped")
    _conclude(held, quick=said.quick)
    if said.json:
        said.json.write_text(json.dumps(_report(held, best, said.quick), indent=1) + "\n")
    return 130 if interrupted else int(any(o.failure for _, outcomes in held for o in outcomes if o.role != "peer"))


def _held(row: Row, said: argparse.Namespace, best: float) -> tuple[Row, list[Outcome]]:
    print(table.heading(row.name, row.title), flush=True)
    outcomes = hold(row, said.runs, _chatter, said.patience)
    _chatter("")
    print("\n".join(table.lines(row.metrics, outcomes, best)), flush=True)
    return row, outcomes


def _conclude(held: Sequence[tuple[Row, list[Outcome]]], *, quick: bool) -> None:
    missed = [line for row, outcomes in held for line in table.missed(row.name, row.metrics, outcomes)]
    print()
    if quick:
        print("--quick: small counts, so the figures are shaky and no claim")
    if missed:
        print("\n".join(["targets missed:", *(f"  {line}" for line in missed)]))
    elif held:
        print(f"every target was met in: {', '.join(row.name for row, _ in held)}")


def _report(held: Sequence[tuple[Row, list[Outcome]]], best: float, quick: bool) -> dict[str, object]:
    rows = [
        {
            "name": row.name,
            "title": row.title,
            "metrics": [metric._asdict() for metric in row.metrics],
            "outcomes": [
                {
                    **asdict(outcome),
                    "samples": [sample._asdict() for sample in outcome.samples],
                    "weathers": [weather._asdict() for weather in outcome.weathers],
                }
                for outcome in outcomes
            ],
        }
        for row, outcomes in held
    ]
    return {"machine": _machine(best), "quick": quick, "rows": rows}


def _machine(best: float) -> str:
    cores = len(os.sched_getaffinity(0))
    when = time.strftime("%Y-%m-%d %H:%M %Z")
    load = os.getloadavg()[0]
    return (
        f"headway bench, {when}: {cores} cores, {platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, calibration {best:.1f} Mturns/s, load {load:.1f}"
    )


def _chatter(text: str) -> None:
    """Progress, for people at a terminal only."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=_names, default=list(ROWS), metavar="NAME[,NAME]", help=", ".join(ROWS))
    parser.add_argument("--runs", type=int, default=3, help="of every row (default: 3)")
    parser.add_argument("--no-peers", action="store_true", help="Headway alone")
    parser.add_argument("--quick", action="store_true", help="small counts: does it work?")
    help_of_patience = "how long to wait before each measurement for a quiet machine (default: 20)"
    parser.add_argument("--patience", type=float, default=20.0, metavar="SECONDS", help=help_of_patience)
    parser.add_argument("--json", type=Path, metavar="FILE", help="every sample, for a program")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
