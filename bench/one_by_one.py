"""Submissions one at a time, and how long each waits to start. Standard library only: peers measure with it too."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from bench.tally import Tally

Submit = Callable[[int], Awaitable[object]]
START_SECONDS = 20.0
PAUSE_SECONDS = (0.015, 0.025)
"""Between two tasks: the client sleeps, the system goes idle, and no timer of anybody's can keep step."""
WARM_UP = 5


async def calls(submit: Submit, count: int) -> list[float]:
    """How long each call took until it was answered, in milliseconds."""
    took: list[float] = []
    for number in range(count + WARM_UP):
        before = time.monotonic_ns()
        await submit(number)
        took.append((time.monotonic_ns() - before) / 1e6)
    return took[WARM_UP:]


async def starts(submit: Submit, tally: Tally, count: int) -> list[float]:
    """From just before each call to the first line of its task, in milliseconds."""
    waited: list[float] = []
    pauses = random.Random(7)
    for number in range(count + WARM_UP):
        before = time.monotonic_ns()
        await submit(number)
        give_up_at = time.monotonic() + START_SECONDS
        await asyncio.sleep(pauses.uniform(*PAUSE_SECONDS))
        while not tally.stamp(number):
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"task {number} did not start within {START_SECONDS:g} s")
            await asyncio.sleep(PAUSE_SECONDS[0])
        waited.append((tally.stamp(number) - before) / 1e6)
    return waited[WARM_UP:]
