"""What is done with a process that is dead: its status, what it used, and the last of its output."""

from __future__ import annotations

import os
import resource

from headway.agent.leftovers import kill_group
from headway.agent.runners.attempt import Attempt
from headway.agent.runners.orphans import reap_group

READ_BYTES = 64 * 1024
PIPE_BYTES_MAX = 1024 * 1024


def reap(attempt: Attempt) -> tuple[int, resource.struct_rusage]:
    """The exit status. The group is killed first: until its leader is reaped, its number is nobody else's."""
    os.close(attempt.pidfd)
    kill_group(attempt.pid)
    _, status, usage = os.wait4(attempt.pid, 0)
    reap_group(attempt.pid)
    return os.waitstatus_to_exitcode(status), usage


def drain(attempt: Attempt) -> None:
    """Takes what is still in the pipe: no more than a pipe holds, should somebody be left to fill it."""
    if attempt.pipe < 0:  # abandoned: nobody wants its output
        return
    for _ in range(PIPE_BYTES_MAX // READ_BYTES):
        try:
            body = os.read(attempt.pipe, READ_BYTES)
        except BlockingIOError:
            return
        if not body:
            return
        attempt.log.write(body)
