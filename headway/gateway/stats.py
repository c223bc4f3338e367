"""`GET /v1/stats`: whether a pool has enough, for alerts and autoscalers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from headway.core.demand import Ratio
from headway.gateway.insight import Known


class PoolStats(msgspec.Struct, frozen=True):
    """A pool as its leader saw it last."""

    name: str
    as_of: datetime
    paused: bool
    is_peak: bool
    utilization: float
    off_peak_deferred: int
    nodes: int
    nodes_wanted: int
    demand: Sequence[Ratio]


class StatsView(msgspec.Struct, frozen=True):
    """Every pool that has a leader."""

    pools: Sequence[PoolStats]


def stats(name: str, known: Known | None) -> StatsView:
    """What is known of a pool."""
    if known is None:
        return StatsView([])
    seen = known.outlook
    pool = PoolStats(
        name, known.as_of, seen.paused, seen.is_peak, seen.utilization, seen.deferred, seen.nodes, seen.nodes_wanted,
        seen.ratios,
    )  # fmt: skip
    return StatsView([pool])
