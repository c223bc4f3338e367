"""From just before the call that submits a function to its first line, on a system that has nothing else to do."""

from __future__ import annotations

import json
import sys

from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample, percentile
from bench.peers import queues
from bench.programs import finished
from bench.stage import SUBMIT_SECONDS, Stage

MIDDLE = Metric("start p50", "ms", "less", 3.0)
LATE = Metric("start p99", "ms", "less", 10.0)


def row(stage: Stage) -> Row:
    """Headway by its SDK and by a bare socket, then the queues."""
    contestants = [
        Contestant("headway, SDK", lambda: _headway(stage, "sdk")),
        Contestant("headway, bare socket", lambda: _headway(stage, "socket"), "variant"),
    ]
    if stage.peers:
        contestants += [
            Contestant(queue.who, lambda queue=queue: queues.latency(stage, queue), "peer") for queue in queues.LATENCY
        ]
    title = f"{stage.counts.latency} functions one at a time, from submit to start, 2 idle workers"
    return Row("latency", title, [MIDDLE, LATE], contestants)


def of_starts(milliseconds: list[float]) -> Sample:
    """The figures of many starts."""
    return Sample({MIDDLE.name: percentile(milliseconds, 50), LATE.name: percentile(milliseconds, 99)})


def _headway(stage: Stage, by: str) -> Sample:
    words = [sys.executable, "-m", "bench.lone_client", "--by", by, "--count", str(stage.counts.latency)]
    with stage.place() as (directory, tally), dev(directory, tally, functions=True) as one:
        words += ["--tally", str(tally.path)]
        return of_starts(json.loads(finished(words, SUBMIT_SECONDS, one.client_env)))
