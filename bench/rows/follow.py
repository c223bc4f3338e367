"""From the write of a line in a running task to its arrival at clients that follow the log."""

from __future__ import annotations

import json
import sys

from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample, percentile
from bench.programs import finished
from bench.stage import SUBMIT_SECONDS, Stage

MIDDLE = Metric("line p50", "ms", "less", 50.0)
LATE = Metric("line p99", "ms", "less")
MANY = 20


def row(stage: Stage) -> Row:
    """One follower, and several of the same log."""
    contestants = [
        Contestant("headway, one follower", lambda: _headway(stage, 1)),
        Contestant(f"headway, {MANY} followers", lambda: _headway(stage, MANY)),
    ]
    title = f"{stage.counts.lines} lines of one task, ten a second, from print to the following client"
    return Row("follow", title, [MIDDLE, LATE], contestants)


def _headway(stage: Stage, followers: int) -> Sample:
    words = [sys.executable, "-m", "bench.followers", "--lines", str(stage.counts.lines), "--count", str(followers)]
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        late: list[float] = json.loads(finished(words, SUBMIT_SECONDS, one.client_env))
    return Sample({MIDDLE.name: percentile(late, 50), LATE.name: percentile(late, 99)})
