"""What is done with a process that is dead: its status, and what it used."""

from __future__ import annotations

import os
import resource

from headway.agent.leftovers import kill_group
from headway.agent.runners.attempt import Attempt
from headway.agent.runners.orphans import reap_group


def reap(attempt: Attempt) -> tuple[int, resource.struct_rusage]:
    """The exit status. The group is killed first: until its leader is reaped, its number is nobody else's."""
    os.close(attempt.pidfd)
    kill_group(attempt.pid)
    _, status, usage = os.wait4(attempt.pid, 0)
    reap_group(attempt.pid)
    return os.waitstatus_to_exitcode(status), usage
