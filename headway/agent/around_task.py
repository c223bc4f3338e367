"""What a worker does around each task besides running it: ends and removes what it left, and measures what it used.

The promise: processes that a task started, however they hid, and files that it put into the temporary directory are
gone before the next task begins; what was there when the app had been imported stays. A task that was over in less time
than it takes to make a file or a process costs nothing; after it, the end of its batch is soon enough to look.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
ROUNDS_MAX = 50
REPORTED_MS_MIN = 10
"""Shorter tasks use too little to be told: reading it would cost as much."""
HARMLESS_NS_MAX = 10_000
"""Nobody forks, or makes a file, in less; that is twice what a function takes that does nothing."""
RESET_PEAK = b"5"


class Residue:
    """Ends and removes what tasks leave."""

    def __init__(self, temporary: str | None) -> None:
        # What a task forks and forgets becomes our child and not the agent's, so we can know whose it is.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._pid = os.getpid()
        self._temporary = temporary
        self._first = set(_descendants(self._pid))
        self._stay = set(os.listdir(temporary)) if temporary is not None else set[str]()
        self._clean_ns = self._changed_ns()

    def remove(self, ran_ns: int) -> None:
        """After each task."""
        if ran_ns < HARMLESS_NS_MAX:
            return
        if _has_children():
            self._end_children()
        if self._changed_ns() != self._clean_ns:
            self._remove_files()

    def remove_all(self) -> None:
        """After each batch. A file may have been made within the tick of the clock in which the last was removed."""
        if _has_children():
            self._end_children()
        self._remove_files()

    def _remove_files(self) -> None:
        if self._temporary is None:
            return
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._temporary):
                if entry.name in self._stay:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
        self._clean_ns = self._changed_ns()

    def _changed_ns(self) -> int:
        if self._temporary is None:
            return 0
        try:
            return os.stat(self._temporary).st_mtime_ns
        except OSError:
            return 0

    def _end_children(self) -> None:
        for _ in range(ROUNDS_MAX):
            kept = self._first | _helpers()
            left = [pid for pid in _descendants(self._pid, but=kept) if pid not in kept]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:  # those that are not our children yet are so in the next round
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


class Meter:
    """What tasks used, read where it matters."""

    def __init__(self) -> None:
        self._before = _used()

    def begin(self) -> None:
        """What is used from now on is the next task's."""
        self._before = _used()
        with contextlib.suppress(OSError):  # opened anew each time: a function may close what it did not open
            reset = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            os.write(reset, RESET_PEAK)
            os.close(reset)

    def read(self) -> dict[str, float]:
        """What was used since the last reading, by us and by children that were waited for."""
        now, before = _used(), self._before
        used = {name: max(0.0, now[name] - before[name]) for name in now}
        if (peak := _peak()) is not None:
            used["memory_peak"] = peak
        self.begin()
        return used


def _used() -> dict[str, float]:
    mine, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_user": mine.ru_utime + theirs.ru_utime,
        "cpu_system": mine.ru_stime + theirs.ru_stime,
        "io_read": (mine.ru_inblock + theirs.ru_inblock) * 512.0,
        "io_written": (mine.ru_oublock + theirs.ru_oublock) * 512.0,
    }


def _peak() -> float | None:
    """The most memory we held since it was reset."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024.0
    return None


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _helpers() -> set[int]:
    """The processes that multiprocessing keeps for itself, and would miss."""
    found: set[int] = set()
    for module, name, pid in (
        ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
        ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
    ):
        number = getattr(getattr(sys.modules.get(module), name, None), pid, None)
        found |= {number} if isinstance(number, int) else set()
    return found


def _descendants(pid: int, but: set[int] | None = None) -> Iterator[int]:
    """Every process below; `but`: with all that is below these left out."""
    for task in _listed(Path(f"/proc/{pid}/task")):
        for child in _children(task):
            if but is None or child not in but:
                yield child
                yield from _descendants(child, but)


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _children(task: Path) -> list[int]:
    try:
        return [int(word) for word in (task / "children").read_bytes().split()]
    except OSError:
        return []
