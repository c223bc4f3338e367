"""The table that people read. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.figures import Metric, Outcome, Spread, champion, lead
from bench.weather import is_rough

WHO_CHARS = 36
METRIC_CHARS = 18
FIGURE_CHARS = 28
TARGET_CHARS = 18
LEGEND = (
    "median [min..max] over the runs; lead: how many times better Headway is (below 1: behind); "
    "calib: millions of turns of a fixed Python loop a second, before/after;\n"
    "others: cores that processes of others took meanwhile, the most of any run; ~: the machine was slow or busy"
)


def heading(name: str, title: str) -> str:
    """What stands over a row."""
    columns = _columns("who", "metric", "median [min..max]", "target", "lead", "calib", "others")
    return f"\n{name}: {title}\n{columns}\n{'-' * len(columns)}"


def lines(metrics: Sequence[Metric], outcomes: Sequence[Outcome], best_loop: float) -> list[str]:
    """A line for every contestant and metric, its notes below."""
    told: list[str] = []
    for outcome in outcomes:
        told += _lines_of(metrics, outcome, outcomes, best_loop)
    return told


def missed(name: str, metrics: Sequence[Metric], outcomes: Sequence[Outcome]) -> list[str]:
    """What Headway promised and did not reach; a metric is reached when any of its ways of use reaches it."""
    told = [f"{name}: {o.who} was not measured: {o.failure}" for o in outcomes if o.failure and o.role != "peer"]
    for metric in metrics:
        best = champion(metric, outcomes)
        if best is not None and not metric.meets(best):
            told.append(f"{name}: {metric.name} {amount(best)} {metric.unit}, target {target(metric)}")
    return told


def figure(spread: Spread) -> str:
    """28,412 [27,900..29,500]"""
    return f"{amount(spread.median)} [{amount(spread.least)}..{amount(spread.most)}]"


def amount(value: float) -> str:
    """Three or four digits that count, and no more."""
    for least, form in ((100.0, ",.0f"), (10.0, ".1f"), (0.0, ".2f")):
        if abs(value) >= least:
            return format(value, form)
    return str(value)


def target(metric: Metric) -> str:
    """≥ 25,000"""
    if metric.target is None:
        return ""
    return f"{'≥' if metric.better == 'more' else '≤'} {metric.target:,g}"


def _lines_of(metrics: Sequence[Metric], one: Outcome, all_of_row: Sequence[Outcome], best: float) -> list[str]:
    told = [
        _line(one, metric, spread, champion(metric, all_of_row), best)
        for metric in metrics
        if (spread := one.spread(metric.name))
    ]
    told += [f"  · {one.who}: {note}" for note in one.notes]
    if one.failure:
        told.append(f"  ! {one.who}: NOT MEASURED: {one.failure}")
    return told


def _line(one: Outcome, metric: Metric, spread: Spread, headway: float | None, best: float) -> str:
    promised = ""
    if one.role != "peer" and metric.target is not None:
        promised = f"{target(metric)} {'met' if metric.meets(spread.median) else 'MISSED'}"
    ahead = f"×{lead(metric, headway, spread.median):.2f}" if one.role == "peer" and headway is not None else ""
    return _columns(
        one.who, f"{metric.name} {metric.unit}".strip(), figure(spread), promised, ahead, *_weather(one, best)
    )


def _weather(one: Outcome, best: float) -> tuple[str, str]:
    if not one.weathers:
        return "", ""
    before, after, _ = (statistics.median(side) for side in zip(*one.weathers, strict=True))
    rough = " ~" if is_rough(one.weathers, best) else ""
    return f"{before:.1f}/{after:.1f}", f"{max(w.others for w in one.weathers):.2f}{rough}"


def _columns(who: str, metric: str, figures: str, promised: str, ahead: str, loops: str, others: str) -> str:
    left = f"  {who:<{WHO_CHARS}} {metric:<{METRIC_CHARS}} {figures:<{FIGURE_CHARS}}"
    return f"{left} {promised:<{TARGET_CHARS}} {ahead:<7} {loops:<11} {others}".rstrip()
