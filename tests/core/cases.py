"""How many cases a property is tried with: so many in every run, the same ones each time, and with HEADWAY_CASES=50
fifty times as many, others each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("HEADWAY_CASES", "1"))


def cases(count: int, *, steps: int = 50) -> settings:
    """So many cases; of a machine, each with so many steps at most."""
    return settings(
        max_examples=count * TIMES,
        stateful_step_count=steps,
        deadline=None,
        derandomize=TIMES == 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
