"""Holds attempts to the disk they may take: bytes and files in what is theirs, removed but open ones included.

No filesystem that is found everywhere does it for us (decision 0019), so it is measured. Twenty times a second the
agent asks how much is free, which costs microseconds. An attempt is looked through when so much has gone since it last
was that it may have taken half of what it had left, so the closer to its bound the oftener; and every few seconds in
any case, because others may give back what it takes. What has too much is killed at once: within what can be written
in a twentieth of a second. Space cannot be reserved faster than it is written, the sandbox's list of calls sees to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from headway.agent.runners.attempt import Attempt
from headway.agent.runners.directories import artifacts_of
from headway.agent.sandbox.space import DEPTH_MAX, Space, TooDeep
from headway.core.resources import Vector
from headway.wire import Key

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
DISK_BYTES = 8 * GIB
"""Of an attempt that asked for no disk."""
FILES_MIN = 10_000
BYTES_PER_FILE = 8 * KIB
"""Disk comes with files: twice as many as ext4 has by default on as much."""
LOOK_SECONDS = 0.05
AGAIN_SECONDS = 5.0
"""How long an attempt is believed to be as it was although nothing went."""
SHARE, SHARE_MAX = 20, 4
"""One part in so many of a thread is spent on looking through what is large; at most, while disk is going."""
THREADS_MAX = 8
"""Looked through at once: what is large keeps nobody waiting."""
CLOSE_SECONDS = 1.0

_log = structlog.get_logger("headway.agent.disk")


def allowed(needs: Vector) -> tuple[int, int]:
    """How many bytes and how many files an attempt may have."""
    size = needs.get("disk") or DISK_BYTES
    return size, max(FILES_MIN, size // BYTES_PER_FILE)


@dataclass(slots=True)
class _Known:
    """What is known of one attempt."""

    left: tuple[float, float]
    """Bytes and files it had left when it was looked through."""
    gone: tuple[float, float]
    """What had gone of the disks by then."""
    again_at: float
    not_before: float = 0.0
    is_looked_at: bool = False


class Disk:
    """Looks after the attempts that `running` answers; `exceeded` is told which has too much, and what.

    In threads of its own: while a disk is busy with a bomb, the agent's loop may have to wait for it, and what ends the
    bomb must not."""

    def __init__(
        self,
        roots: list[str],
        *,
        running: Callable[[], Iterable[Attempt]],
        processes: Callable[[Attempt], list[int]],
        exceeded: Callable[[Attempt, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._roots = roots
        self._running = running
        self._processes = processes
        self._exceeded = exceeded
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._looking: threading.Thread | None = None
        self._threads = ThreadPoolExecutor(THREADS_MAX, "headway-disk")
        self._has_work = threading.Event()
        self._is_over = threading.Event()
        self._known: dict[Key, _Known] = {}
        self._free = (0, 0)
        self._gone = (0.0, 0.0)
        self.releasing = threading.Lock()
        """Whoever takes an attempt's group away holds it: then nobody else's is killed for what it took."""

    def watch(self) -> None:
        """Something runs."""
        if self._looking is None:
            self._free = self._measure()
            self._looking = threading.Thread(target=self._look_on, name="headway-disk-look", daemon=True)
            self._looking.start()
        self._has_work.set()

    def close(self) -> None:
        """Nothing runs any more."""
        self._is_over.set()
        self._has_work.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._looking is not None:
            self._looking.join(CLOSE_SECONDS)

    def _look_on(self) -> None:
        while not self._is_over.is_set():
            if not self._look():
                self._has_work.clear()
                self._has_work.wait()
            self._is_over.wait(LOOK_SECONDS)

    def _measure(self) -> tuple[int, int]:
        """Bytes and inodes free where attempts work."""
        try:
            seen = [os.statvfs(root) for root in self._roots]
        except OSError:  # somebody removed the agent's directory
            return self._free
        return sum(one.f_bfree * one.f_frsize for one in seen), sum(one.f_ffree for one in seen)

    def _look(self) -> bool:
        """Looks once; False when nothing runs."""
        free = self._measure()
        size, files = (max(0, before - now) for before, now in zip(self._free, free, strict=True))
        self._free, self._gone = free, (self._gone[0] + size, self._gone[1] + files)
        running = {attempt.key: attempt for attempt in list(self._running()) if attempt.has_begun}
        self._known = {key: self._known.get(key) or self._begun(attempt) for key, attempt in running.items()}
        now = self._clock()
        for key, known in self._known.items():
            if self._is_due(known, now) and not self._is_over.is_set():
                known.is_looked_at = True
                with contextlib.suppress(RuntimeError):  # it is being closed
                    self._threads.submit(self._judge, running[key], known)
        return bool(running)

    def _begun(self, attempt: Attempt) -> _Known:
        return _Known(allowed(attempt.assignment.needs), self._gone, self._clock() + AGAIN_SECONDS)

    def _is_due(self, known: _Known, now: float) -> bool:
        if known.is_looked_at or now < known.not_before:
            return False
        went = (now - before for before, now in zip(known.gone, self._gone, strict=True))
        return now >= known.again_at or any(2 * gone >= left for gone, left in zip(went, known.left, strict=True))

    def _judge(self, attempt: Attempt, known: _Known) -> None:
        began = self._clock()
        size, files = allowed(attempt.assignment.needs)
        space, gone = Space(size, files), self._gone
        wrong = ""
        try:
            for place in (attempt.directory, artifacts_of(attempt.directory), *attempt.layers):
                space.add_folder(place)
            space.add_removed(self._processes(attempt))
        except TooDeep:
            wrong = f"killed: directories in its workspace are nested deeper than {DEPTH_MAX}; nest them less"
        except OSError as error:  # what is left of it is looked at the next time
            _log.warning("an attempt could not be looked through", task=attempt.assignment.task, why=str(error))
        if space.is_too_much:
            wrong = _too_much(space)
        if wrong:
            self._stop(attempt, wrong)
        took = self._clock() - began
        known.left, known.gone = (size - space.size, files - space.files), gone
        known.again_at, known.not_before = began + max(AGAIN_SECONDS, SHARE * took), began + SHARE_MAX * took
        known.is_looked_at = False

    def _stop(self, attempt: Attempt, wrong: str) -> None:
        """What can be killed at once is; the loop sees to the rest."""
        with self.releasing:
            group = attempt.group
            if group is not None and attempt.stop is None:
                attempt.excess = wrong
                group.kill()
        with contextlib.suppress(RuntimeError):  # it was closed
            self._loop.call_soon_threadsafe(self._exceeded, attempt, wrong)


def _too_much(space: Space) -> str:
    if space.files > space.files_max:
        what = f"it made more than the {space.files_max} files it may have on {_said(space.size_max)} of disk"
    else:
        what = f"it used more disk than the {_said(space.size_max)} it has, files removed but still open included"
    more = _said(2 * space.size_max).replace(" ", "").removesuffix("B")
    return f"killed: {what}; remove what is not needed any more, or ask for more (`resources: {{disk: {more}}}`)"


def _said(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and not size % unit:
            return f"{size // unit} {name}"
    return f"{size / MIB:.1f} MiB"
