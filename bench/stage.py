"""What every row stands on: how much to do, where to put it, and the ways to submit."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import bodies, programs
from bench.contest import Unmeasurable
from bench.deployment import Dev
from bench.tally import Tally

SUBMIT_SECONDS = 300.0
DRAIN_SECONDS = 300.0
FIRST_SECONDS = 60.0
FIRST_SHARE = 0.02
"""What is not timed: while the first tasks start, workers still boot."""


class Counts(NamedTuple):
    """How many of everything; what a row measures is the same at any size, only shakier when small."""

    drain: int = 100_000
    bulk: int = 100_000
    single: int = 20_000
    alone: int = 500
    latency: int = 300
    processes: int = 5_000
    sandboxes: int = 200
    lines: int = 200
    backlog: int = 2_000_000
    idle_seconds: float = 20.0
    decided: int = 100_000
    share: float = 1.0
    """Of what peers do at full size."""


QUICK = Counts(20_000, 20_000, 5_000, 100, 60, 1_000, 50, 40, 100_000, 4.0, 20_000, 0.2)


class Stage(NamedTuple):
    """One run of the bench."""

    scratch: Path
    counts: Counts
    peers: bool

    @contextmanager
    def place(self) -> Generator[tuple[Path, Tally]]:
        """An empty directory and an empty tally; gone with the block."""
        with tempfile.TemporaryDirectory(dir=self.scratch, ignore_cleanup_errors=True) as name:
            yield Path(name), Tally.fresh(Path(name) / "tally")


class Flooded(NamedTuple):
    """What a flood of submissions came to."""

    per_second: float
    calls: list[float]
    client_share: float
    """How much of one core the client took."""


def flood(
    one: Dev, count: int, *, size: int = 1, connections: int = 4, job: bodies.Job = "noop", form: bodies.Form = "array",
    limited: bool = False,
) -> Flooded:  # fmt: skip
    """Submits from a client process of its own; returns when all is durable."""
    words = [sys.executable, "-m", "bench.flood", "--job", job, "--count", str(count), "--size", str(size)]
    words += ["--form", form, "--connections", str(connections)]
    words += ["--limited"] if limited else []
    said = json.loads(programs.finished(words, SUBMIT_SECONDS, one.client_env))
    return Flooded(count / said["seconds"], said["calls"], said["client_cpu"] / said["seconds"])


class Drained(NamedTuple):
    """When a share of the tasks had begun, and when the last one had."""

    begun: int
    since: float
    until: float

    def per_second(self, count: int, until: float | None = None) -> float:
        """Tasks a second from the first share to the last task, or to a later moment."""
        return (count - self.begun) / ((until or self.until) - self.since)


def watch(tally: Tally, count: int, already: int = 0) -> Drained:
    """Watches `count` more tasks begin than had `already`."""
    since = programs.until(
        "the first tasks began", lambda: tally.started - already >= FIRST_SHARE * count, FIRST_SECONDS, 0.001
    )
    begun = tally.started - already
    until = programs.until(f"{count} tasks began", lambda: tally.started - already >= count, DRAIN_SECONDS)
    return Drained(begun, since, until)


def insist_on_once(tally: Tally, count: int) -> str:
    """A note when tasks ran more often than they were submitted; fewer is an error."""
    if tally.started < count:
        raise Unmeasurable(f"only {tally.started} of {count} tasks ran")
    return f"{tally.started - count} of {count} tasks ran twice" if tally.started > count else ""
