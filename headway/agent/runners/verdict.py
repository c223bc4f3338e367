"""What the end of a process means: outcome, code and message, and what it used."""

from __future__ import annotations

import resource
import signal

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


def used(usage: resource.struct_rusage) -> dict[str, float]:
    """What it used. The kernel starts a spawned program's peak at its parent's size, so a peak that is not above our
    own says nothing and is left out."""
    found = {"cpu_user": usage.ru_utime, "cpu_system": usage.ru_stime}
    if usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        found["memory_peak"] = usage.ru_maxrss * 1024
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
