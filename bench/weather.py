"""How much of the machine a measurement really had: a fixed Python loop timed before and after it, and the processor
time that others took meanwhile.

A figure from between two slow loops, or from beside a busy neighbour, says little about what was measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench import proc

TURNS = 2_000_000
SLOW_BELOW = 0.7
"""Of the fastest loop seen when the bench began."""
BUSY_ABOVE = 0.15
"""Cores that others took: on two of them, more than the kernel and the bench's own looking."""


LOOK_SECONDS = 0.5


class Weather(NamedTuple):
    """Around and during one measurement: millions of turns a second, and cores taken by others."""

    before: float
    after: float
    others: float


class Used(NamedTuple):
    """Processor seconds so far, and when that was."""

    machine: float
    ours: float
    at: float

    @classmethod
    def now(cls) -> Used:
        """Reads all three."""
        ours = proc.cpu_seconds(proc.family(os.getpid()))
        return cls(proc.machine_cpu_seconds(), ours, time.monotonic())

    def others_until(self, later: Used) -> float:
        """Cores that neither we nor what we started used, in between."""
        theirs = (later.machine - self.machine) - (later.ours - self.ours)
        return max(theirs / (later.at - self.at), 0.0)


def wait_for_calm(patience: float) -> None:
    """Returns when others leave the machine alone, or when patience is over."""
    give_up_at = time.monotonic() + patience
    while time.monotonic() < give_up_at:
        before = Used.now()
        time.sleep(LOOK_SECONDS)
        if before.others_until(Used.now()) < BUSY_ABOVE:
            return


def calibrate(turns: int = TURNS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Millions of turns a second."""
    began = clock()
    left = turns
    while left:
        left -= 1
    return turns / (clock() - began) / 1e6


def is_rough(weathers: Sequence[Weather], best: float) -> bool:
    """Whether any of these measurements was made on less than the machine."""
    return any(min(w.before, w.after) < SLOW_BELOW * best or w.others > BUSY_ABOVE for w in weathers)
