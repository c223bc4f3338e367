"""The guardian: a program of its own that kills what the agent may no longer run when the agent cannot.

`python -I -S guardian.py headway-guardian MARKER AGENT_PID` reads from its standard input, a line for every renewal,
until when the agent may run what it runs (by CLOCK_BOOTTIME, in seconds; `inf`: it runs nothing). A line that is not
followed by another in time means that the agent is stopped or hangs: everything it started is killed, and the
guardian goes on watching. The end of the input means that the agent is gone: the same, and the guardian ends.

It imports nothing of ours and little of Python's: 4 MB, and a wake-up a second while there is a deadline.
"""

from __future__ import annotations

import os
import select
import sys
import time

ROUNDS_MAX = 50
LOOK_SECONDS = 1.0
"""How often the clock is looked at: timers stand still while the machine sleeps."""
SIGKILL = 9  # the module `signal` costs a megabyte
READ_BYTES = 65536
OURS = (b"HEADWAY_AGENT=", b"HEADWAY_GUARDIAN=")


def main() -> None:
    """Watches one agent until it is gone."""
    _, _, marker, agent = sys.argv
    mine = f"HEADWAY_AGENT={marker}".encode()
    kill_at = float("inf")
    while True:
        left = kill_at - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= 0:
            kill_all(mine, int(agent))
            kill_at = float("inf")
            continue
        patience = None if left == float("inf") else min(left, LOOK_SECONDS)
        if select.select([0], [], [], patience)[0]:
            body = os.read(0, READ_BYTES)
            if not body:
                break
            kill_at = float(body.split(b"\n")[-2])
    kill_all(mine, int(agent))


def kill_all(mine: bytes, agent: int) -> None:
    """A process that forks while it is looked for is found in the next round; one that cannot die (state D) ends the
    rounds by their number."""
    for n in range(ROUNDS_MAX):
        found = condemned(mine, agent)
        if not found:
            return
        for pid in found:
            try:  # noqa: SIM105  contextlib costs a megabyte
                os.kill(pid, SIGKILL)
            except OSError:
                pass
        if n >= 4:
            time.sleep(0.1)


def condemned(mine: bytes, agent: int) -> list[int]:
    """Who carries the agent's marker, who shares a session with one that does, and the agent's younger children in
    sessions of their own, whatever is left of their environment."""
    seen = {pid: found for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (found := looked_at(pid))}
    if os.getpid() not in seen:
        return []
    _, _, spared, born, _ = seen[os.getpid()]
    sessions: set[int] = set()
    for _, parent, session, start, names in seen.values():
        is_stray = parent == agent and start >= born and not any(name.startswith(OURS) for name in names)
        if mine in names or is_stray:
            sessions.add(session)
    sessions -= {spared, seen[agent][2] if agent in seen else spared}
    return [
        pid
        for pid, (state, _, session, _, names) in seen.items()
        if (mine in names or session in sessions) and state != b"Z"
    ]


def looked_at(pid: int) -> tuple[bytes, int, int, int, list[bytes]] | None:
    """State, parent, session, start and environment; None for one that is gone or not our user's (root looks at all:
    a sandbox's first process is a user of its own). A zombie has no environment, but its session may live."""
    try:
        if os.getuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
            return None
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        names = read(f"/proc/{pid}/environ").split(b"\0")
        return fields[0], int(fields[1]), int(fields[3]), int(fields[19]), names
    except OSError:
        return None


def read(path: str) -> bytes:
    """A file of /proc."""
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main()
