"""The app of `headway dev --demo`: two functions a worker can run."""

from __future__ import annotations

import headway

app = headway.App("demo")


@app.task(tier="basic", delay_tolerance="5s", execution_cap="1m", retry=headway.Retry(max_attempts=3))
def primes_below(limit: int) -> int:
    """How many primes there are below `limit`."""
    sieve = bytearray([1]) * limit
    sieve[:2] = bytes(min(limit, 2))
    for n in range(2, int(limit**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, limit, n)))
    return sum(sieve)


@app.task(tier="basic", delay_tolerance="1m", execution_cap="1m")
def square(n: int) -> int:
    """Next to no work: what a task costs by itself."""
    return n * n
