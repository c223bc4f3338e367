"""Chance: how long tasks take, and when they arrive. Each stream of tasks has a generator of its own, so that what one
tenant draws never depends on what others do, nor on what was decided about either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import assert_never

from headway.core.quantity import duration_ms, rate_text
from headway.core.refusal import Refused
from headway.sim.scenario import (
    Arrival,
    Bursts,
    Diurnal,
    Exponential,
    Fixed,
    Length,
    LogNormal,
    Mixture,
    Once,
    Pareto,
    Poisson,
    Storms,
    Uniform,
)
from headway.sim.stream import Draw

DAY = 86_400.0
WEEK = 7 * DAY
SECONDS_LEAST = 0.001
SIZE_MAX = 100_000_000


class Wrong(Exception):
    """Something that a scenario says cannot be."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.refused = Refused(path, message)


def seconds(said: str | int | float, path: str, *, least: float = 0.0) -> float:
    """The seconds of a duration."""
    found = duration_ms(said, path)
    if isinstance(found, Refused):
        raise Wrong(found.path, found.message)
    if found < least * 1000:
        raise Wrong(path, f"must be at least {least:g}s")
    return found / 1000


def per_second(said: str, path: str) -> float:
    """The rate in tasks a second."""
    found = rate_text(said, path)
    if isinstance(found, Refused):
        raise Wrong(path, 'expected a rate such as "5 per second", "90 per minute", "10 per 90s"')
    if not found[0] or not found[1]:
        raise Wrong(path, "must be more than 0; leave the work out if nothing of it arrives")
    return found[0] * 1000 / found[1]


# ── how long ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def draws(said: Length, path: str) -> Draw:
    """Draws the seconds a task takes."""
    match said:
        case Fixed():
            value = seconds(said.seconds, f"{path}.seconds", least=SECONDS_LEAST)
            return lambda _: value
        case Uniform():
            low, high = _bounds(said.least, said.most, path)
            return lambda chance: max(chance.uniform(low, high), SECONDS_LEAST)
        case Exponential():
            mean = seconds(said.mean, f"{path}.mean", least=SECONDS_LEAST)
            most = seconds(said.most, f"{path}.most", least=SECONDS_LEAST)
            return lambda chance: min(max(chance.expovariate(1 / mean), SECONDS_LEAST), most)
        case LogNormal():
            return _lognormal(said, path)
        case Pareto():
            return _pareto(said, path)
        case Mixture():
            return _mixture(said, path)
        case _:
            assert_never(said)


def _bounds(least: str | int | float, most: str | int | float, path: str) -> tuple[float, float]:
    low, high = seconds(least, f"{path}.least"), seconds(most, f"{path}.most", least=SECONDS_LEAST)
    if low >= high:
        raise Wrong(f"{path}.most", "must be more than least")
    return low, high


def _lognormal(said: LogNormal, path: str) -> Draw:
    median = seconds(said.median, f"{path}.median", least=SECONDS_LEAST)
    low, high = _bounds(said.least, said.most, path)
    if not 0 < said.sigma <= 10:
        raise Wrong(f"{path}.sigma", "must be more than 0 and at most 10; 1 to 2 is usual of batch work")
    mu, sigma, low = math.log(median), said.sigma, max(low, SECONDS_LEAST)
    return lambda chance: min(max(chance.lognormvariate(mu, sigma), low), high)


def _pareto(said: Pareto, path: str) -> Draw:
    low, high = _bounds(said.least, said.most, path)
    if low <= 0 or not 0 < said.alpha <= 20:
        where = "least" if low <= 0 else "alpha"
        raise Wrong(f"{path}.{where}", "must be more than 0" + (" and at most 20" if where == "alpha" else ""))
    tail, power = 1.0 - (low / high) ** said.alpha, -1.0 / said.alpha
    return lambda chance: low * (1.0 - chance.random() * tail) ** power


def _mixture(said: Mixture, path: str) -> Draw:
    if not said.parts or any(part.weight <= 0 or not math.isfinite(part.weight) for part in said.parts):
        raise Wrong(f"{path}.parts", "expected parts, each with a weight of more than 0")
    whole = sum(part.weight for part in said.parts)
    steps: list[tuple[float, Draw]] = []
    for number, part in enumerate(said.parts):
        before = steps[-1][0] if steps else 0.0
        steps.append((before + part.weight / whole, draws(part.duration, f"{path}.parts[{number}].duration")))

    def draw(chance: Random) -> float:
        point = chance.random()
        return next((one for until, one in steps if point < until), steps[-1][1])(chance)

    return draw


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def arrivals(said: Arrival, path: str, horizon: float, *, load: float = 1.0) -> Callable[[Random], Iterator[float]]:
    """When tasks arrive, in order, until the horizon; with a load of 2, twice as many."""
    after = seconds(said.after, f"{path}.after")
    until = horizon if said.until is None else min(seconds(said.until, f"{path}.until"), horizon)
    if after >= until:
        raise Wrong(f"{path}.until" if said.until is not None else f"{path}.after", "nothing would ever arrive")
    match said:
        case Poisson():
            rate = per_second(said.rate, f"{path}.rate") * load
            return lambda chance: _poisson(chance, rate, after, until)
        case Diurnal():
            return _diurnal(said, path, after, until, load)
        case Bursts():
            every = seconds(said.every, f"{path}.every", least=SECONDS_LEAST)
            size, within = _size(said.size, path, load), seconds(said.within, f"{path}.within")
            return lambda chance: _overlapping(_bursts(chance, every, size, after, until), chance, within, until)
        case Storms():
            every = seconds(said.every, f"{path}.every", least=1.0)
            size, within = _size(said.size, path, load), seconds(said.within, f"{path}.within")
            first = math.ceil(after / every)
            moments = [(n * every, size) for n in range(first, math.ceil(until / every))]
            return lambda chance: _overlapping(iter(moments), chance, within, until)
        case Once():
            at, within = seconds(said.at, f"{path}.at"), seconds(said.within, f"{path}.within")
            if not after <= at < until:
                raise Wrong(f"{path}.at", "must be before the horizon")
            size = _size(said.size, path, load)
            return lambda chance: _overlapping(iter([(at, size)]), chance, within, until)
        case _:
            assert_never(said)


def _size(said: int, path: str, load: float) -> int:
    if not 1 <= said <= SIZE_MAX:
        raise Wrong(f"{path}.size", f"must be from 1 to {SIZE_MAX}")
    return min(max(round(said * load), 1), SIZE_MAX)


def _poisson(chance: Random, rate: float, at: float, until: float) -> Iterator[float]:
    gap = chance.expovariate
    at += gap(rate)
    while at < until:
        yield at
        at += gap(rate)


def _diurnal(said: Diurnal, path: str, after: float, until: float, load: float) -> Callable[[Random], Iterator[float]]:
    mean, peak = per_second(said.rate, f"{path}.rate") * load, seconds(said.peak, f"{path}.peak")
    for name, part in (("swing", said.swing), ("weekend", said.weekend)):
        if not 0 <= part <= 1:
            raise Wrong(f"{path}.{name}", "must be from 0 to 1")
    swing, weekend = said.swing, said.weekend

    def thinned(chance: Random) -> Iterator[float]:
        most = mean * (1 + swing)
        for at in _poisson(chance, most, after, until):
            now = mean * (1 + swing * math.cos((at - peak) * (2 * math.pi / DAY)))
            if at % WEEK >= 5 * DAY:
                now *= weekend
            if chance.random() * most < now:
                yield at

    return thinned


def _bursts(chance: Random, every: float, size: int, at: float, until: float) -> Iterator[tuple[float, int]]:
    """Moments, each with how many arrive then: geometric, at least one."""
    stop = math.log1p(-1 / size) if size > 1 else -math.inf
    while (at := at + chance.expovariate(1 / every)) < until:
        yield at, 1 + int(math.log(1.0 - chance.random()) / stop)


def _overlapping(moments: Iterator[tuple[float, int]], chance: Random, within: float, until: float) -> Iterator[float]:
    """What arrives at some moments and shortly after them, in order even where two of them overlap."""
    open_: list[float] = []
    for at, size in moments:
        open_.sort(reverse=True)
        while open_ and open_[-1] <= at:
            yield open_.pop()
        open_ += [at + chance.random() * within for _ in range(size)] if within else [at] * size
    yield from sorted(at for at in open_ if at < until)
