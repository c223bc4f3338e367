"""The app whose functions are measured. Their bodies are those of every peer."""

from __future__ import annotations

import headway
from bench import tally

app = headway.App("bench")


@app.task
def noop(number: int) -> int:
    """Next to nothing."""
    tally.tick()
    return number


@app.task
def stamp(number: int) -> int:
    """Writes down when it began."""
    tally.stamp(number)
    return number
