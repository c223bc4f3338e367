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


def what_was_refused(said: bytes, *, has_network: bool) -> str:
    """What a sandbox may have refused to a program that failed with such last words, and how to ask for it."""
    for words, hint in _REFUSALS:
        if any(word in said for word in words) and not (has_network and hint is _NO_NETWORK):
            return f"; {hint}"
    return ""


_NO_NETWORK = "its sandbox has no network: ask for one with `network: true` (--network)"
_REFUSALS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    (
        (
            b"Network is unreachable", b"Temporary failure in name resolution", b"Could not resolve",
            b"Network unreachable", b"Name or service not known", b"bad address",
            b"unable to resolve host", b"getaddrinfo", b"Connection refused",
        ),
        _NO_NETWORK,
    ),
    (
        (b"No space left on device",),
        "/tmp and /dev/shm of its sandbox are small: write to $HOME, or ask for a larger /tmp with `tmp: 512Mi` "
        "(--tmp)",
    ),
    (
        (b"fallocate",),
        "its sandbox lets no space be reserved ahead (fallocate): write instead, or ask for another profile "
        "(`profile: trusted`, --profile)",
    ),
    (
        (b"Read-only file system", b"Permission denied"),
        "its sandbox lets it write to $HOME, /tmp and /dev/shm only; write there, or ask for another profile "
        "(`profile: trusted`, --profile)",
    ),
    (
        (
            b"Operation not permitted", b"Function not implemented", b"not supported by protocol",
            b"must be superuser", b"must be root",
        ),
        "its sandbox refuses mounts, namespaces, ptrace, raw sockets and the like; ask for another profile "
        "(`profile: trusted`, --profile) if it needs them",
    ),
)  # fmt: skip


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
