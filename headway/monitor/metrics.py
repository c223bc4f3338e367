"""What Headway tells Prometheus. Counters are kept where things happen and read here, at scrape time only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

Reading = tuple[str, str, str, Callable[[], float]]
"""Kind (counter or gauge), name, help, and where the number is read."""


class _Readings(Collector):
    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        for kind, name, text, read in self._readings:
            family = CounterMetricFamily(name, text) if kind == "counter" else GaugeMetricFamily(name, text)
            family.add_metric([], read())
            yield family


def exposition(readings: list[Reading]) -> Callable[[], bytes]:
    """A function that renders all readings, and those of the process itself, as Prometheus text."""
    registry = CollectorRegistry()
    registry.register(_Readings(readings))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)
