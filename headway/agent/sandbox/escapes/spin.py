"""How much a neighbour is slowed by one that spins in many processes.

The neighbour writes down when each small step of its work was done. The spinner is frozen and let go in turns, so both
sorts of turns meet the same machine, and what differs is what the spinner does. A piece of work is as many steps as
take PIECE_SECONDS without it, wherever they begin: longer than the kernel's time slices, which are not what is
measured. While it lasts, the node's attempts outweigh whatever else runs on the machine.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from itertools import pairwise
from typing import NamedTuple

from headway.agent.sandbox.escapes.ground import PYTHON, Ground

FORKS = 4
"""Each doubles the spinner's processes."""
PIECE_SECONDS = 0.02
TURNS = 10
TURN_SECONDS = 0.2
SETTLE_SECONDS = 0.02
"""What is done so soon after a change belongs to no turn."""
LOOKS, LOOK_SECONDS = 2000, 0.01
_SPIN = f"import os\nprint('up', flush=True)\nfor _ in range({FORKS}): os.fork()\nwhile True: pass\n"
_WORK = (
    "import time\nprint('up', flush=True)\n"
    "while True:\n"
    "    print(*(time.monotonic_ns() // 1000 for _ in range(64) if sum(range(30000))), flush=True)\n"
)


class Turn(NamedTuple):
    """A stretch of time (CLOCK_MONOTONIC) in which the spinner ran, or stood."""

    began: float
    ended: float
    is_spinning: bool


class Slowed(NamedTuple):
    """The 99th percentile of what a piece of work took, in seconds: the median of all turns of a sort."""

    alone: float
    beside: float

    @property
    def times(self) -> float:
        """How many times as long a piece takes beside a spinner."""
        return self.beside / self.alone


async def slowed(ground: Ground, *, neighbour: int = 1000, spinner: int = 1000, turns: int = TURNS) -> Slowed:
    """Measures it, for attempts with these shares of the cpu."""
    spinning = ground.start([PYTHON, "-I", "-S", "-c", _SPIN], cpu=spinner)
    working = ground.start([PYTHON, "-I", "-S", "-c", _WORK], cpu=neighbour)
    for _ in range(LOOKS):
        if ground.logs.get(spinning) and ground.logs.get(working):
            break
        await asyncio.sleep(LOOK_SECONDS)
    taken: list[Turn] = []
    with ground.groups.outweighing():
        for number in range(turns):
            is_spinning = number % 2 == 1
            ground.let(spinning, run=is_spinning)
            began = time.monotonic()
            await asyncio.sleep(TURN_SECONDS)
            taken.append(Turn(began + SETTLE_SECONDS, time.monotonic(), is_spinning))
    for number in (spinning, working):
        ground.kill(number)
        await ground.ending(number)
    return judged([int(word) / 1e6 for word in ground.logs[working].split()[1:]], taken)


def judged(stamps: list[float], turns: list[Turn]) -> Slowed:
    """What the stamps of a neighbour's steps say."""
    within = [[at for at in stamps if turn.began <= at <= turn.ended] for turn in turns]
    alone = [steps for steps, turn in zip(within, turns, strict=True) if not turn.is_spinning]
    beside = [steps for steps, turn in zip(within, turns, strict=True) if turn.is_spinning]
    each = sorted(after - before for steps in alone for before, after in pairwise(steps))
    if not each:
        raise ValueError("the neighbour did not get to work")
    count = max(1, round(PIECE_SECONDS / each[len(each) // 2]))
    return Slowed(*(statistics.median(_percentile_99(steps, count) for steps in sort) for sort in (alone, beside)))


def _percentile_99(stamps: list[float], count: int) -> float:
    """Of pieces of so many steps. Who did not finish one in a whole turn was held up for no less than all of it."""
    pieces = sorted(after - before for before, after in zip(stamps, stamps[count:], strict=False))
    return pieces[min(len(pieces) - 1, len(pieces) * 99 // 100)] if pieces else TURN_SECONDS
