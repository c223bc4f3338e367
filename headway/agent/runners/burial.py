"""How attempts are killed, and what is done with a process that is dead: its status, and what it used."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence

from headway.agent.leftovers import descendants_of, kill_attempts, kill_group, processes_of
from headway.agent.runners.attempt import Attempt
from headway.agent.runners.orphans import reap_group
from headway.agent.sandbox.engines import EngineCell


def reap(attempt: Attempt) -> tuple[int, resource.struct_rusage]:
    """The exit status. The group is killed first: until its leader is reaped, its number is nobody else's."""
    if attempt.told is not None:
        return os.waitstatus_to_exitcode(attempt.told.status), attempt.told.usage
    os.close(attempt.pidfd)
    kill_group(attempt.pid)
    _, status, usage = os.wait4(attempt.pid, 0)
    reap_group(attempt.pid)
    return os.waitstatus_to_exitcode(status), usage


def all_of(attempt: Attempt, marker: str) -> list[int]:
    """Everything of an attempt that runs: who is in its group; where that is not all of it, who carries its name, and
    who descends from those."""
    is_elsewhere = isinstance(attempt.cell, EngineCell)  # an engine's containers are in groups of the engine
    if attempt.group is not None and not is_elsewhere:
        return attempt.group.pids()
    named = processes_of(marker, {(attempt.assignment.task, attempt.assignment.attempt)}, {attempt.pid})
    # In a sandbox no other process bears the marker; in a container none need to but the first.
    parents = named if is_elsewhere else [attempt.pid]
    return list({*named, *(below for pid in parents for below in descendants_of(pid))})


def kill_all(attempts: Sequence[Attempt], marker: str) -> None:
    """Kills everything of attempts: their groups at once, then their sessions and what carries their names."""
    for attempt in attempts:
        if attempt.group is not None:
            attempt.group.kill()
        if attempt.slot is None:  # else all of it was in its group, and its number may be somebody's by now
            kill_group(attempt.pid)
    ours = [attempt for attempt in attempts if attempt.slot is None]
    if ours:
        names = {(attempt.assignment.task, attempt.assignment.attempt) for attempt in ours}
        kill_attempts(marker, names, {attempt.pid for attempt in ours})
