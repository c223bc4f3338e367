"""What the end of a process means: outcome, code and message."""

from __future__ import annotations

import signal

from headway.core.resources import Vector
from headway.wire import Outcome

CODES = {Outcome.CAPPED: "cap_exceeded", Outcome.KILLED: "killed", Outcome.LOST: "agent_stopped"}


def verdict(status: int, stopped: Outcome | None, cap_ms: int) -> tuple[Outcome, str, str]:
    """Outcome, code and message of an exit status (negative: a signal), `stopped` for a reason or by itself."""
    if stopped is not None:
        return stopped, CODES[stopped], why(stopped, cap_ms)
    if status == 0:
        return Outcome.DONE, "", ""
    if status > 0:
        return Outcome.FAILED, "exit_nonzero", f"exited with {status}"
    return Outcome.FAILED, "signalled", f"killed by {_signal_name(-status)}"


def why(stopped: Outcome, cap_ms: int) -> str:
    """Why an attempt was stopped."""
    match stopped:
        case Outcome.CAPPED:
            return f"stopped: it ran longer than its execution cap of {cap_ms / 1000:g}s"
        case Outcome.LOST:
            return "the agent was stopped while it ran"
        case _:
            return "stopped on request"


def out_of_memory(needs: Vector) -> str:
    """What is said of an attempt that the kernel killed for its memory."""
    mebibytes = needs.get("memory", 0) / 2**20
    return (
        f"killed: it used more memory than the {mebibytes:g} MiB it has; let it ask for more "
        f"(`resources: {{memory: {max(1, round(2 * mebibytes))}Mi}}`) or for a larger tier"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
