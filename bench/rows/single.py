"""Tasks submitted one by one, each durable before it is answered: by 64 clients at once, and by one alone."""

from __future__ import annotations

import json
import sys

from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample, percentile
from bench.peers import queues
from bench.programs import finished
from bench.stage import SUBMIT_SECONDS, Stage, flood

CLIENTS = 64
RATE = Metric("submit", "tasks/s", "more", 5_000)
CALL = Metric("call p50", "ms", "less", 2.0)
CALL_99 = Metric("call p99", "ms", "less")
ALONE = Metric("submit", "tasks/s")


def row_of_many(stage: Stage) -> Row:
    """64 kept connections of one client process, one request each at a time."""
    count = stage.counts.single
    contestants = [Contestant("headway", lambda: _many(stage))]
    if stage.peers:
        contestants += [
            Contestant(queue.who, lambda queue=queue: queues.many(stage, queue, CLIENTS), "peer")
            for queue in queues.MANY
        ]
    title = f"{count:,} tasks, {CLIENTS} clients, one task a request, durable"
    return Row("single64", title, [RATE, CALL_99], contestants)


def row_of_one(stage: Stage) -> Row:
    """One client, one call after another."""
    contestants = [
        Contestant("headway, SDK", lambda: _alone(stage, "sdk")),
        Contestant("headway, bare socket", lambda: _alone(stage, "socket"), "variant"),
    ]
    if stage.peers:
        contestants += [
            Contestant(queue.who, lambda queue=queue: queues.alone(stage, queue), "peer") for queue in queues.ALONE
        ]
    title = f"{stage.counts.alone:,} tasks, one client, one after another, durable"
    return Row("single1", title, [CALL, CALL_99, ALONE], contestants)


def of_calls(milliseconds: list[float]) -> Sample:
    """The figures of calls made one after another."""
    return Sample({
        CALL.name: percentile(milliseconds, 50),
        CALL_99.name: percentile(milliseconds, 99),
        ALONE.name: 1000 * len(milliseconds) / sum(milliseconds),
    })  # fmt: skip


def _many(stage: Stage) -> Sample:
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        done = flood(one, stage.counts.single, connections=CLIENTS)
        values = {RATE.name: done.per_second, CALL_99.name: 1000 * percentile(done.calls, 99)}
        return Sample(values, "")


def _alone(stage: Stage, by: str) -> Sample:
    words = [sys.executable, "-m", "bench.lone_client", "--by", by, "--count", str(stage.counts.alone)]
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        return of_calls(json.loads(finished(words, SUBMIT_SECONDS, one.client_env)))
