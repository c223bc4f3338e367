"""What an agent needs of memory while 200 programs run on its node."""

from __future__ import annotations

from bench import proc
from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample
from bench.programs import until
from bench.stage import Stage, flood

COUNT = 200
MEMORY = Metric("agent's RSS", "MB", "less", 80)
START_SECONDS = 60.0


def row(stage: Stage) -> Row:
    """The agent of `headway dev`; the programs ask for little, or so many would not fit."""
    title = f"{COUNT} sandboxed sleeps run at once"
    return Row("running", title, [MEMORY], [Contestant("headway", lambda: _headway(stage))])


def _headway(stage: Stage) -> Sample:
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        flood(one, COUNT, size=COUNT, job="sleep")
        until(f"{COUNT} programs run", lambda: one.count("running") >= COUNT, START_SECONDS, 0.2)
        return Sample({MEMORY.name: proc.rss_mb(one.child("agent"))})
