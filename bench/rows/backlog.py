"""Whether depth matters: the first tasks of a backlog of millions, drained as fast as if they were all there is.

Both sides are counted by starts, from 2 % to the last of the tasks drained; the backlog is filled once, and each run
drains a part of it with new workers.
"""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from pathlib import Path

from bench import proc
from bench.contest import Contestant, Row
from bench.deployment import Dev, dev, worker
from bench.figures import Metric, Sample
from bench.rows.drain import SUBMIT_SIZE
from bench.stage import Stage, flood, watch
from bench.tally import Tally

RATE = Metric("drain", "tasks/s")
SHARE = Metric("of shallow", "", "more", 0.85)
RSS = Metric("server RSS", "MB", "less", 200)
PEAK = Metric("server peak", "MB", "less")
FILL = Metric("fill", "tasks/s")
PART = 200_000
"""Tasks of one client process: their bodies are all in its memory."""


def row(stage: Stage) -> Row:
    """A shallow queue, then a deep one."""
    sides = _Sides(stage)
    contestants = [Contestant("headway, shallow", sides.shallow, "variant"), Contestant("headway, deep", sides.deep)]
    title = f"{stage.counts.drain:,} of {stage.counts.backlog:,} waiting no-op functions"
    return Row("backlog", title, [RATE, SHARE, RSS, PEAK, FILL], contestants, sides.open)


class _Sides:
    def __init__(self, stage: Stage) -> None:
        self.open = ExitStack()
        self._stage = stage
        self._count = stage.counts.drain
        self._shallow: list[float] = []
        self._runs = 0
        self._filled: tuple[Dev, Path, Tally, float] | None = None

    def shallow(self) -> Sample:
        """All there is."""
        with self._stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
            flood(one, self._count, size=SUBMIT_SIZE)
            rate = self._drain(one, directory, tally)
            self._shallow.append(rate)
            return Sample({RATE.name: rate, RSS.name: proc.rss_mb(one.child("server"))})

    def deep(self) -> Sample:
        """A part of what is there."""
        if self._filled is None:
            self._filled = self._fill()
        one, directory, tally, filled = self._filled
        rate = self._drain(one, directory, tally)
        server = one.child("server")
        return Sample({
            RATE.name: rate,
            SHARE.name: rate / self._shallow[-1],
            RSS.name: proc.rss_mb(server),
            PEAK.name: proc.peak_rss_mb(server),
            FILL.name: filled,
        })  # fmt: skip

    def _fill(self) -> tuple[Dev, Path, Tally, float]:
        directory, tally = self.open.enter_context(self._stage.place())
        one = self.open.enter_context(dev(directory, tally, functions=False))
        count, seconds = self._stage.counts.backlog, 0.0
        for low in range(0, count, PART):
            part = min(PART, count - low)
            seconds += part / flood(one, part, size=SUBMIT_SIZE).per_second
        gc.collect()
        return one, directory, tally, count / seconds

    def _drain(self, one: Dev, directory: Path, tally: Tally) -> float:
        already, self._runs = tally.started, self._runs + 1
        with worker(one, directory, tally, f"bench-{self._runs}"):
            rate = watch(tally, self._count, already).per_second(self._count)
        time.sleep(1)  # what the worker handed back is waiting again
        return rate
