"""No process outlives what proves that it may run.

Every process of an agent carries `HEADWAY_AGENT=<node>:<incarnation>` in its environment. Three things use
it: a new agent kills what an earlier incarnation of its node left before it says Hello; a guardian does the same as
soon as the agent vanishes, or is stopped and cannot kill what it runs when its lease ends; and an attempt that ends
takes the orphans it left with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from hashlib import blake2b
from pathlib import Path

import structlog

MARKER = "HEADWAY_AGENT"
ROUNDS_MAX = 50
PR_SET_CHILD_SUBREAPER = 36
PROGRAM = Path(__file__).with_name("guardian.py")
_log = structlog.get_logger("headway.agent")
DEAF_TO = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]


def owner_of(node: str, data_dir: Path) -> str:
    """Two agents of one name on one machine are told apart by their directory: neither kills the other's. A digest,
    because a task can read what is told to the first process of its sandbox."""
    return blake2b(f"{node}@{data_dir.resolve()}".encode(), digest_size=16).hexdigest()


def mark(node: str, incarnation: str) -> str:
    """The marker's value."""
    return f"{node}:{incarnation}"


def kill_leftovers(node: str, incarnation: str) -> int:
    """Kills every process of other incarnations of this node; how many there were."""
    killed = 0
    for _ in range(ROUNDS_MAX):
        found = [pid for pid in _own_processes() if _is_left(pid, node, incarnation)]
        for pid in found:
            kill(pid)
        killed += len(found)
        if not found:
            break
    return killed


def kill(pid: int) -> None:
    """SIGKILL to one process, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """SIGKILL to a process group, if somebody is left in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_attempts(marker: str, attempts: set[tuple[int, int]], sessions: set[int]) -> None:
    """Kills every process of these attempts (task, number)."""
    for pid in processes_of(marker, attempts, sessions):
        kill(pid)


def processes_of(marker: str, attempts: set[tuple[int, int]], sessions: set[int]) -> list[int]:
    """Every process of these attempts (task, number): by its session, or by what its environment says."""
    return [
        pid
        for pid in _own_processes()
        if session_of(pid) in sessions or attempt_of(marker, environment(pid)) in attempts
    ]


def descendants_of(pid: int) -> list[int]:
    """What a process started, and what those did. In a sandbox nobody leaves the family: who loses its parent becomes a
    child of the sandbox's first process."""
    children: dict[int, list[int]] = {}
    for one in _own_processes():
        children.setdefault(_stat_of(one)[1], []).append(one)
    found = list(children.get(pid, ()))
    for one in found:
        found += children.get(one, ())
    return found


def attempt_of(marker: str, environ: dict[bytes, bytes]) -> tuple[int, int] | None:
    """The attempt (task, number) that a process with this environment belongs to, if it is one of ours."""
    if environ.get(MARKER.encode()) != marker.encode():
        return None
    try:
        return int(environ[b"HEADWAY_TASK_ID"]), int(environ[b"HEADWAY_ATTEMPT"])
    except (KeyError, ValueError):  # a worker, or what a function started: lives and dies with its process group
        return None


def environment(pid: int) -> dict[bytes, bytes]:
    """The environment a process was started with; nothing for one that is gone, a zombie or not ours."""
    try:
        body = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (line.partition(b"=") for line in body.split(b"\0"))
    return {name: value for name, _, value in pairs if name}


def session_of(pid: int) -> int:
    """The session of a process; 0 for one that is gone or already a zombie."""
    state, _, session = _stat_of(pid)
    return 0 if state == b"Z" else session


def _stat_of(pid: int) -> tuple[bytes, int, int]:
    """The state, the parent and the session of a process; zeros for one that is gone."""
    try:
        state, parent, _, session = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return b"", 0, 0
    return state, int(parent), int(session)


def adopt_orphans() -> None:
    """Makes grandchildren whose parent ended our children instead of init's, so that they can be found
    cheaply."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


class Guardian:
    """The agent's hold on its guardian (see guardian.py): while it is open, what was told last is what counts."""

    def __init__(self, node: str, incarnation: str) -> None:
        self._marker = mark(node, incarnation)
        self._start()

    def _start(self) -> None:
        read, self._lifeline = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._lifeline, False)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        onto = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ((read, 0), (null, 1), (null, 2))]
        arguments = [sys.executable, "-I", "-S", str(PROGRAM), "headway-guardian", self._marker, str(os.getpid())]
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HEADWAY_GUARDIAN": self._marker}
        try:
            self._pid = os.posix_spawn(
                sys.executable, arguments, environ, file_actions=onto, setsid=True, setsigmask=DEAF_TO
            )
        finally:
            os.close(read)
            os.close(null)

    def tell(self, kill_at: float) -> None:
        """Until when (CLOCK_BOOTTIME) what runs may run; inf: nothing runs. One that was killed is replaced."""
        line = f"{kill_at:.3f}\n".encode()
        with contextlib.suppress(BlockingIOError):
            try:
                os.write(self._lifeline, line)
            except BrokenPipeError:
                _log.warning("the guardian was killed; another one takes its place")
                self._forget()
                self._start()
                os.write(self._lifeline, line)

    def _forget(self) -> None:
        os.close(self._lifeline)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def close(self) -> None:
        """The guardian kills what is left and ends."""
        self._forget()


def _own_processes() -> list[int]:
    """Processes of our own user; of root, all: a sandbox's first process is a user of its own."""
    user = os.getuid()
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if user == 0 or os.stat(f"/proc/{name}").st_uid == user:
                    found.append(int(name))
    return found


def _is_left(pid: int, node: str, incarnation: str) -> bool:
    marker = environment(pid).get(MARKER.encode(), b"").decode(errors="replace")
    owner, _, born = marker.rpartition(":")
    return owner == node and born != incarnation
