"""Has an attempt stand still and go on: by its control group where the kernel can freeze one, else by SIGSTOP to every
process of it. Its memory stays; its clock does not run, so what it stands does not count against its cap.
"""

from __future__ import annotations

import contextlib
import os
import signal

from headway.agent.runners.attempt import Attempt
from headway.agent.runners.burial import all_of
from headway.agent.sandbox.engines import EngineCell

ROUNDS_MAX = 20
"""What is forked while others are being stopped is found in the next round."""


def stand(attempt: Attempt, marker: str, now: float) -> None:
    """Nothing of it runs when this returns."""
    assert attempt.stood_at is None
    attempt.stood_at = now
    group = None if isinstance(attempt.cell, EngineCell) else attempt.group
    if group is not None and group.can_freeze and group.freeze():
        return
    if group is not None and group.can_freeze:  # something of it hangs in the kernel: what runs is stopped
        group.thaw()
    _signal_all(attempt, marker, signal.SIGSTOP)


def go_on(attempt: Attempt, marker: str, now: float) -> None:
    """It goes on where it stood."""
    assert attempt.stood_at is not None
    attempt.began += now - attempt.stood_at
    attempt.stood_at = None
    if attempt.was_signalled:
        _signal_all(attempt, marker, signal.SIGCONT)
    elif attempt.group is not None:
        attempt.group.thaw()


def _signal_all(attempt: Attempt, marker: str, number: signal.Signals) -> None:
    attempt.was_signalled = number is signal.SIGSTOP
    told: set[int] = set()
    for _ in range(ROUNDS_MAX):
        found = set(all_of(attempt, marker)) - told
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if not found:
            return
        told |= found
