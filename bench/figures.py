"""Samples into figures: medians with their whole range, percentiles, targets. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from bench.weather import Weather


class Spread(NamedTuple):
    """The whole sample in three numbers: with three runs no other interval would be honest."""

    median: float
    least: float
    most: float


class Metric(NamedTuple):
    """Something measured: its unit, whether more of it is better, and what Headway promises."""

    name: str
    unit: str
    better: Literal["more", "less"] = "more"
    target: float | None = None

    def meets(self, value: float) -> bool:
        """Whether a value keeps the promise; without a promise every value does."""
        if self.target is None:
            return True
        return value >= self.target if self.better == "more" else value <= self.target


class Sample(NamedTuple):
    """One run: values by metric, and what a reader should know about it."""

    values: Mapping[str, float]
    note: str = ""


@dataclass(slots=True)
class Outcome:
    """All runs of one contestant in a row."""

    who: str
    role: Literal["headway", "variant", "peer"]
    samples: list[Sample] = field(default_factory=list)
    weathers: list[Weather] = field(default_factory=list)
    failure: str = ""

    def spread(self, metric: str) -> Spread | None:
        """The figure of a metric; None when it was not measured."""
        values = [sample.values[metric] for sample in self.samples if metric in sample.values]
        return spread(values) if values else None

    @property
    def notes(self) -> list[str]:
        """Every note once."""
        return list(dict.fromkeys(sample.note for sample in self.samples if sample.note))


def spread(values: Sequence[float]) -> Spread:
    """Median, least and most."""
    return Spread(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was really measured."""
    ordered = sorted(values)
    return ordered[max(math.ceil(percent / 100 * len(ordered)), 1) - 1]


def lead(metric: Metric, headway: float, peer: float) -> float:
    """How many times better Headway is than a peer; below 1 it is behind."""
    if metric.better == "more":
        return headway / peer if peer else math.inf
    return peer / headway if headway else math.inf


def champion(metric: Metric, outcomes: Sequence[Outcome]) -> float | None:
    """Headway's best median, which peers are compared with; its variants do not count."""
    medians = [s.median for o in outcomes if o.role == "headway" and (s := o.spread(metric.name))]
    if not medians:
        return None
    return max(medians) if metric.better == "more" else min(medians)
