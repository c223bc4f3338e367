"""How fast /bin/true is run as a real process, with its log kept and its exit code recorded durably."""

from __future__ import annotations

import json
import sys
import time

from bench import bodies
from bench.contest import Contestant, Row, Unmeasurable
from bench.deployment import Dev, dev
from bench.figures import Metric, Sample, percentile
from bench.peers import commands
from bench.programs import finished
from bench.stage import DRAIN_SECONDS, FIRST_SHARE, Stage, flood

RATE = Metric("processes", "tasks/s", "more", 1_200)
WARM = Metric("sandboxed", "tasks/s", "more", 700)
FRESH = Metric("fresh sandboxes", "tasks/s", "more", 200)
WARM_ALONE = Metric("one at a time p50", "ms", "less", 3.0)
FRESH_ALONE = Metric("one at a time p50", "ms", "less", 9.0)
LOOK_SECONDS = 0.05


def row(stage: Stage) -> Row:
    """Headway, then who else runs programs, and how fast the machine spawns them at all."""
    count = stage.counts.processes
    contestants = [Contestant("headway", lambda: _headway(stage, "true", RATE))]
    if stage.peers:
        contestants += [
            Contestant(peer.who, lambda peer=peer: peer.measure(stage, RATE.name), "peer") for peer in commands.PEERS
        ]
    return Row("processes", f"{count:,} waiting /bin/true, log and exit code kept", [RATE], contestants)


def row_of_slots(stage: Stage) -> Row:
    """The same in sandboxes, one after the other in warm slots."""
    contestants = [Contestant("headway", lambda: _sandboxed(stage, "sandboxed", WARM, WARM_ALONE))]
    title = f"{stage.counts.processes:,} waiting /bin/true, sandboxed, in warm slots; then one at a time, on the node"
    return Row("slots", title, [WARM, WARM_ALONE], contestants)


def row_of_sandboxes(stage: Stage) -> Row:
    """The same in a new sandbox each, and how fast bare bubblewrap makes them."""
    contestants = [Contestant("headway", lambda: _sandboxed(stage, "fresh", FRESH, FRESH_ALONE))]
    if stage.peers:
        contestants.append(Contestant("bare bwrap, 2 at once", lambda: commands.sandboxes(stage, FRESH.name), "peer"))
    title = f"{stage.counts.processes:,} waiting /bin/true, a new sandbox each; then one at a time, on the node"
    return Row("sandboxes", title, [FRESH, FRESH_ALONE], contestants)


def _sandboxed(stage: Stage, job: bodies.Job, rate: Metric, alone: Metric) -> Sample:
    words = [sys.executable, "-m", "bench.one_sandbox", "--count", str(stage.counts.sandboxes)]
    words += ["--fresh"] if job == "fresh" else []
    many = _headway(stage, job, rate)
    took: list[float] = json.loads(finished(words, DRAIN_SECONDS))
    return Sample({**many.values, alone.name: percentile(took, 50)}, many.note)


def _headway(stage: Stage, job: bodies.Job, metric: Metric) -> Sample:
    count = stage.counts.processes
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        with one.frozen():
            flood(one, count, size=1_000, job=job)
        rate = _ended_a_second(one, count)
        if one.some("failed") or any(task["exit_code"] != 0 for task in one.some("done")):
            raise Unmeasurable("a /bin/true did not end with 0")
        return Sample({metric.name: rate}, "")


def _ended_a_second(one: Dev, count: int) -> float:
    """From the first 2 % recorded to the last one, by the server's own count."""
    give_up_at = time.monotonic() + DRAIN_SECONDS
    first: tuple[int, float] | None = None
    while time.monotonic() < give_up_at:
        ended, now = one.ended(), time.monotonic()
        if first is None and ended >= FIRST_SHARE * count:
            first = (ended, now)
        if ended >= count:
            assert first is not None
            return (count - first[0]) / (now - first[1])
        time.sleep(LOOK_SECONDS)
    raise Unmeasurable(f"{one.ended()} of {count} processes ended within {DRAIN_SECONDS:g} s")
