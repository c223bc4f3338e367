"""Starts a program: posix_spawn, in a session of its own, with nothing of ours but what is given.

posix_spawn costs the agent about 100 µs a process, subprocess.Popen 130 and asyncio's subprocess a multiple;
all of them tell us why a program could not be started.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from typing import NewType

from headway.agent.leftovers import kill_group
from headway.wire import Outcome

Pid = NewType("Pid", int)

LACKS = (
    "is not in the sandbox, where only the node's /usr is; upload it as a script, have the operator show it "
    "(`headway agent --show DIR`), or ask for another profile (`--profile trusted`)"
)
"""What is said of a program that a sandbox does not show."""
_TASKS_FAULT = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ELOOP)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@dataclass(frozen=True, slots=True)
class NotSpawned:
    """Why a program did not start, and whose fault it is."""

    outcome: Outcome
    message: str


def spawn(argv: list[str], environ: dict[str, str], directory: str, fds: dict[int, int]) -> Pid | NotSpawned:
    """Starts `argv` in `directory` with the descriptors `fds` (target: source)."""
    onto = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in fds.items()]
    program = argv[0]
    try:
        program = find(argv[0], environ.get("PATH", DEFAULT_PATH))
        if program is None:
            return NotSpawned(Outcome.FAILED, _not_found(argv[0], environ.get("PATH", DEFAULT_PATH)))
        # posix_spawn knows no directory, so we go there and back. Nothing else of this thread runs in
        # between, and the agent names every file by its full path.
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.chdir(directory)
            pid = os.posix_spawn(
                program, argv, environ, file_actions=onto, setsid=True, setsigdef=_RESET, setsigmask=[]
            )
        finally:
            os.fchdir(here)
            os.close(here)
    except OSError as error:
        return _explained(program or argv[0], error)
    except ValueError as error:
        return NotSpawned(
            Outcome.FAILED, f"cannot be started: {error}; remove it from the arguments or the environment"
        )
    return Pid(pid)


def find(program: str, path: str) -> str | None:
    """The file that the task's own PATH means; posix_spawnp would search the agent's."""
    if "/" in program:
        return program
    for directory in path.split(":"):
        candidate = f"{directory}/{program}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None


def _not_found(program: str, path: str) -> str:
    return f"program not found: {program!r} is in none of {path}; install it on the node or give its full path"


def _explained(program: str, error: OSError) -> NotSpawned:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            what = f"no such file, or its interpreter (first line) is missing: {program}; install it on the node"
        case errno.EACCES | errno.EPERM:
            what = f"not executable: {program}; chmod +x it, and check that its file system is not mounted noexec"
        case errno.ENOEXEC:
            what = f"not a program for this machine: {program}; a script needs a first line such as #!/bin/sh"
        case errno.E2BIG:
            what = "arguments and environment are too long for the kernel; pass the data in a file"
        case _:
            what = f"the node could not start {program}: {error.strerror}; free memory, processes or open files there"
            return NotSpawned(Outcome.LOST, what)
    return NotSpawned(Outcome.FAILED, what)


def opened(pid: Pid) -> int:
    """A descriptor of a process just started. One that cannot be watched does not run."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        kill_group(pid)
        os.waitpid(pid, 0)
        raise


def not_begun(program: str, number: int) -> NotSpawned:
    """Why a program was not started in a sandbox, by its errno, and whose fault it is."""
    if number in _TASKS_FAULT:
        return NotSpawned(Outcome.FAILED, not_started(program, os.strerror(number), LACKS))
    why = os.strerror(number) if number else "its sandbox did not answer"
    return NotSpawned(Outcome.LOST, f"the node could not start {program}: {why}; free memory, processes or disk there")


def not_started(program: str, why: str, lacks: str) -> str:
    """The same in words."""
    match why:
        case "No such file or directory":
            return f"program not found: {program!r} {lacks}"
        case "Permission denied":
            return f"not executable: {program}; chmod +x it"
        case "Exec format error":
            return f"not a program for this machine: {program}; a script needs a first line such as #!/bin/sh"
        case "Argument list too long":
            return "arguments and environment are too long for the kernel; pass the data in a file"
        case _:
            return f"{program} could not be started: {why}"
