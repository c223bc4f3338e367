"""A row: contestants measured in turn, run after run, so that all of them see the same weather."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from bench.figures import Metric, Outcome, Sample
from bench.weather import Used, Weather, calibrate, wait_for_calm


class Unmeasurable(Exception):
    """A contestant cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Somebody to measure. `measure` is one run, from nothing to nothing."""

    who: str
    measure: Callable[[], Sample]
    role: Literal["headway", "variant", "peer"] = "headway"


@dataclass(slots=True)
class Row:
    """What is measured of whom. `open` holds what lives as long as the row."""

    name: str
    title: str
    metrics: Sequence[Metric]
    contestants: Sequence[Contestant]
    open: ExitStack = field(default_factory=ExitStack)


def hold(row: Row, runs: int, say: Callable[[str], None], patience: float = 0.0) -> list[Outcome]:
    """Measures everybody `runs` times; who fails once is out, and the others go on. Waits up to `patience` seconds each
    time for the machine to be quiet.
    """
    outcomes = [Outcome(contestant.who, contestant.role) for contestant in row.contestants]
    with row.open:
        for number in range(runs):
            for contestant, outcome in zip(row.contestants, outcomes, strict=True):
                if not outcome.failure:
                    say(f"{row.name} {number + 1}/{runs}: {contestant.who} …")
                    wait_for_calm(patience)
                    _measure(contestant, outcome)
    return outcomes


def _measure(contestant: Contestant, outcome: Outcome) -> None:
    gc.collect()
    before, used = calibrate(), Used.now()
    try:
        sample = contestant.measure()
    except Exception as error:  # noqa: BLE001  whatever is wrong with one, the others are measured
        outcome.failure = f"{type(error).__name__}: {error}"
        return
    others = used.others_until(Used.now())
    time.sleep(0.2)  # what is stopping gets out of the way of the loop
    outcome.samples.append(sample)
    outcome.weathers.append(Weather(before, calibrate(), others))
