"""How fast waiting no-op functions are run, each durably ended.

They are submitted while nobody can run them; then two worker processes come. For Headway the clock stops when the last
end is recorded in the database, for peers when the last task begins, which is earlier.
"""

from __future__ import annotations

from bench.contest import Contestant, Row
from bench.deployment import dev, worker
from bench.figures import Metric, Sample
from bench.peers import queues
from bench.programs import until
from bench.stage import DRAIN_SECONDS, Stage, flood, insist_on_once, watch

RATE = Metric("drain", "tasks/s", "more", 25_000)
SUBMIT_SIZE = 2_000


def row(stage: Stage) -> Row:
    """Headway, then every queue of functions."""
    count = stage.counts.drain
    contestants = [Contestant("headway", lambda: headway(stage))]
    if stage.peers:
        contestants += [
            Contestant(queue.who, lambda queue=queue: queues.drain(stage, queue), "peer") for queue in queues.DRAINED
        ]
    return Row("drain", f"{count:,} waiting no-op functions, 2 worker processes", [RATE], contestants)


def headway(stage: Stage) -> Sample:
    """From the first 2 % begun to the last one durably ended."""
    count = stage.counts.drain
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        flood(one, count, size=SUBMIT_SIZE)
        with worker(one, directory, tally):
            drained = watch(tally, count)
            ended = until("every end is durable", lambda: one.ended() >= count, DRAIN_SECONDS, 0.01)
        return Sample({RATE.name: drained.per_second(count, ended)}, insist_on_once(tally, count))
