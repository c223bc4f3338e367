"""Whether a failed attempt is followed by another, and after how long."""

from __future__ import annotations

from headway.core.quantity import duration_ms
from headway.core.task import RetryRule

LOSSES_MAX = 5
"""A task whose nodes died under it this often is taken for the cause."""
LOSS_DELAY_MS = 100


def again_after_ms(rule: RetryRule | None, *, failures: int, exit_code: int | None, chance: float) -> int | None:
    """The pause before the next attempt after `failures` ones, or None when there is none. `chance` is in [0, 1)."""
    rule = rule or RetryRule()
    if failures >= rule.max_attempts or (exit_code is not None and exit_code in rule.never_on_exit):
        return None
    initial, longest = duration_ms(rule.initial, "initial"), duration_ms(rule.max, "max")
    assert isinstance(initial, int)
    assert isinstance(longest, int)
    growth = rule.factor ** (failures - 1) if rule.backoff == "exponential" else 1.0
    pause = min(initial * growth, float(longest))
    return round(pause * chance) if rule.jitter == "full" else round(pause)


def again_after_loss_ms(*, losses: int) -> int | None:
    """The pause after a node was lost under the task for the `losses`-th time, or None when that is enough."""
    return None if losses >= LOSSES_MAX else LOSS_DELAY_MS * losses
