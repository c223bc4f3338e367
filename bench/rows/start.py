"""How long `headway dev` takes from the command to the file that says that everything accepts work."""

from __future__ import annotations

from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample
from bench.stage import Stage

COLD = Metric("cold", "s", "less", 4.0)
WARM = Metric("warm", "s", "less", 2.0)


def row(stage: Stage) -> Row:
    """Cold: a directory that is not there yet; warm: the same one again. The files are in memory both times."""
    title = "headway dev, from the command to ready: in a new data directory, and again in the same"
    return Row("start", title, [COLD, WARM], [Contestant("headway", lambda: _headway(stage))])


def _headway(stage: Stage) -> Sample:
    with stage.place() as (directory, tally):
        took: dict[str, float] = {}
        for metric in (COLD, WARM):
            with dev(directory, tally, functions=False) as one:
                took[metric.name] = one.ready_seconds
        return Sample(took)
