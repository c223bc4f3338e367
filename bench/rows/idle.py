"""What `headway dev` with two function workers costs while there is nothing to do."""

from __future__ import annotations

import time

from bench import proc
from bench.contest import Contestant, Row
from bench.deployment import dev
from bench.figures import Metric, Sample
from bench.stage import Stage

MEMORY = Metric("PSS, all of it", "MB", "less", 250)
PROCESSOR = Metric("cpu", "% of a core", "less", 2.0)
SETTLE_SECONDS = 5.0
PARTS = ("supervisor", "server", "agent", "workers", "PostgreSQL", "other")


def row(stage: Stage) -> Row:
    """Every process of it, PostgreSQL's too."""
    title = f"headway dev with 2 function workers, nothing to do, {stage.counts.idle_seconds:g} s"
    parts = [Metric(f"· {part}", "MB", "less") for part in PARTS]
    return Row("idle", title, [MEMORY, *parts, PROCESSOR], [Contestant("headway", lambda: _headway(stage))])


def _headway(stage: Stage) -> Sample:
    with stage.place() as (directory, tally), dev(directory, tally, functions=True) as one:
        time.sleep(SETTLE_SECONDS)
        everybody = proc.family(one.process.pid)
        used, began = proc.cpu_seconds(everybody), time.monotonic()
        time.sleep(stage.counts.idle_seconds)
        share = (proc.cpu_seconds(everybody) - used) / (time.monotonic() - began)
        everybody = proc.family(one.process.pid)
        parts = _parts(one.process.pid, everybody)
        return Sample({MEMORY.name: sum(parts.values()), **parts, PROCESSOR.name: 100 * share})


def _parts(supervisor: int, pids: list[int]) -> dict[str, float]:
    """Who has how much."""
    sizes = dict.fromkeys((f"· {part}" for part in PARTS), 0.0)
    for pid in pids:
        name = "supervisor" if pid == supervisor else _part(proc.words(pid))
        sizes[f"· {name}"] += proc.pss_mb([pid])
    return sizes


def _part(words: list[str]) -> str:
    said = " ".join(words)
    for name, mark in (("server", " server "), ("workers", "worker_process"), ("agent", " agent ")):
        if mark in said:
            return name
    return "PostgreSQL" if "postgres" in said else "other"
