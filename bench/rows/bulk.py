"""How fast tasks are taken in by the thousand, over HTTP, each durable before it is answered.

Four connections of one client process; bodies are encoded beforehand. Every size of batch is shown, not only the best.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.bodies import Form
from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample
from bench.peers import queues
from bench.stage import Stage, flood

RATE = Metric("submit", "tasks/s", "more", 50_000)
BATCHES: Sequence[tuple[str, Form, int]] = (
    ("arrays", "array", 1_000),
    ("arrays", "array", 2_000),
    ("arrays", "array", 5_000),
    ("arrays", "array", 10_000),
    ("NDJSON", "lines", 2_000),
)


def row(stage: Stage) -> Row:
    """Headway with batches of several sizes, then the queues that can submit in bulk."""
    contestants = [
        Contestant(f"headway, {kind} of {size:,}", lambda size=size, form=form: headway(stage, size, form))
        for kind, form, size in BATCHES
    ]
    if stage.peers:
        contestants += [
            Contestant(queue.who, lambda queue=queue: queues.bulk(stage, queue), "peer") for queue in queues.BULK
        ]
    return Row("bulk", f"{stage.counts.bulk:,} tasks in batches, 4 connections, durable", [RATE], contestants)


def headway(stage: Stage, size: int, form: Form) -> Sample:
    """All batches answered; the workers are away."""
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        done = flood(one, stage.counts.bulk, size=size, form=form)
        return Sample({RATE.name: done.per_second}, "")
