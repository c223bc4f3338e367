"""One module for each thing that is measured; `ROWS` has them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.contest import Row
from bench.rows import backlog, brain, bulk, drain, follow, idle, latency, policy, processes, running, single, start
from bench.stage import Stage

ROWS: Mapping[str, Callable[[Stage], Row]] = {
    "drain": drain.row,
    "bulk": bulk.row,
    "single64": single.row_of_many,
    "single1": single.row_of_one,
    "latency": latency.row,
    "brain": brain.row,
    "policy": policy.row,
    "processes": processes.row,
    "slots": processes.row_of_slots,
    "sandboxes": processes.row_of_sandboxes,
    "running": running.row,
    "follow": follow.row,
    "backlog": backlog.row,
    "idle": idle.row,
    "start": start.row,
}
