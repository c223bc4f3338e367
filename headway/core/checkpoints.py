"""What a task says of being warned before its cap, and of writing checkpoints."""

from __future__ import annotations

from typing import Literal

import msgspec

from headway.core.quantity import duration_ms
from headway.core.refusal import Refused

Duration = str | int | float
Signal = Literal["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGALRM", "SIGWINCH"]
LEFT_EXIT = 85
"""With this status a process says that it wrote a checkpoint and leaves (ERESTART of Linux)."""
GRACE_MS_MAX = 3_600_000


class CapWarning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a process is warned before its execution cap is over."""

    before: Duration = "30s"
    signal: Signal = "SIGUSR1"


class CheckpointRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """That a task writes checkpoints, and how it is asked for one."""

    signal: Signal = "SIGUSR2"
    grace: Duration = "30s"


def wrong_rules(warning: CapWarning | None, checkpoint: CheckpointRule | None, *, is_function: bool) -> list[Refused]:
    """Everything that is wrong with them."""
    wrong: list[Refused] = []
    if warning is not None:
        before = duration_ms(warning.before, "cap_warning.before", least_ms=1)
        wrong += [before] if isinstance(before, Refused) else []
        if is_function:
            wrong.append(Refused("cap_warning", "a function gets no signals; it asks ctx.remaining"))
    if checkpoint is not None:
        grace = duration_ms(checkpoint.grace, "checkpoint.grace", least_ms=1)
        if isinstance(grace, int) and grace > GRACE_MS_MAX:
            grace = Refused("checkpoint.grace", "must not exceed 1h")
        wrong += [grace] if isinstance(grace, Refused) else []
    if warning is not None and checkpoint is not None and warning.signal == checkpoint.signal:
        wrong.append(Refused("checkpoint.signal", f"is that of cap_warning, {warning.signal}; say another"))
    return wrong
