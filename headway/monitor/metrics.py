"""What Headway tells Prometheus. Counters are kept where things happen and read here, at scrape time only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

Labelled = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""


class Reading(NamedTuple):
    """Something that is told."""

    kind: str
    """counter or gauge."""
    name: str
    text: str
    read: Callable[[], float | Sequence[Labelled]]
    """Where the number is read, or with labels all the numbers there are."""
    labels: tuple[str, ...] = ()


class _Readings(Collector):
    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        for kind, name, text, read, labels in self._readings:
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(name, text, labels=labels)
            found = read()
            for values, number in [((), found)] if isinstance(found, int | float) else found:
                family.add_metric(values, number)
            yield family


def exposition(readings: list[Reading]) -> Callable[[], bytes]:
    """A function that renders all readings, and those of the process itself, as Prometheus text."""
    registry = CollectorRegistry()
    registry.register(_Readings(readings))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)
