"""Reads what processes print and sends it on, without ever being held up by it or holding anybody up.

The promise: what is printed after a silence is on its way within QUICK_SECONDS; however many print however much, frames
stay few; no task and no agent waits for a server that is slow or away, but for PATIENCE_SECONDS in all; and of a flood
only the little that will be kept is ever copied out of the kernel (10 GB cost 1 s of cpu).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Callable

from headway.agent.outbox import Outbox
from headway.agent.runners.attempt import Attempt
from headway.agent.runners.watcher import Watcher
from headway.core.log import FIRST_BYTES

READ_BYTES = 64 * 1024
PIPE_BYTES = 1024 * 1024
QUICK_SECONDS = 0.005
"""How long a line waits for company after a silence."""
BUSY_SECONDS = 0.03
"""And while there is more all the time."""
BUSY_SECONDS_EACH = 0.002
LONGEST_SECONDS = 0.5
FLOOD_SECONDS = 0.005
"""How long a flood is left in its pipe before it is looked at again."""
PATIENCE_SECONDS = 2.0
"""How long the first bytes of an attempt may wait for a leader that takes none, before they are dropped."""
ROLLING_BYTES_PER_SECOND = 64 * 1024
"""Behind its first bytes, this much of an attempt is sent."""
ALL_ROLLING_BYTES_PER_SECOND = 1024 * 1024
"""Of all attempts of the node together."""


class Printing:
    """The pipes of a node's attempts."""

    def __init__(self, watcher: Watcher, outbox: Outbox, clock: Callable[[], float], null: int) -> None:
        self._watcher = watcher
        self._outbox = outbox
        self._clock = clock
        self._null = null
        self._loop = asyncio.get_running_loop()
        self._talking: set[Attempt] = set()
        self._waiting: dict[Attempt, float] = {}
        self._shipped_at = 0.0
        self._count = 0

    def listen(self, attempt: Attempt) -> None:
        """Reads an attempt's pipe from now on."""
        if attempt.pipe >= 0:
            self._watcher.watch(attempt.pipe, lambda: self._readable(attempt))

    def forget(self, attempt: Attempt) -> None:
        """It is over."""
        self._talking.discard(attempt)
        self._waiting.pop(attempt, None)

    def drain(self, attempt: Attempt) -> None:
        """Takes what is still in the pipe: no more than a pipe holds, should somebody be left to fill it."""
        if attempt.pipe < 0:  # abandoned: nobody wants its output
            return
        for _ in range(PIPE_BYTES // READ_BYTES):
            try:
                body = os.read(attempt.pipe, READ_BYTES)
            except BlockingIOError:
                return
            if not body:
                return
            attempt.log.write(body)
            if attempt.log.full_chunk:
                self._ship(attempt, 0)

    def ship_rest(self, attempt: Attempt) -> None:
        """Everything of it was read."""
        self._outbox.log(attempt.log.rest(*attempt.key))

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _readable(self, attempt: Attempt) -> None:
        log = attempt.log
        if log.written >= FIRST_BYTES:
            self._roll(attempt)
            return
        if self._outbox.logs_full and log.unsent >= READ_BYTES and self._waits(attempt):
            return
        body = os.read(attempt.pipe, READ_BYTES)
        if not body:
            self._watcher.forget(attempt.pipe)  # closed its output, may run on
            return
        log.write(body)
        if log.full_chunk and not self._outbox.logs_full:
            self._ship(attempt, 0)
        else:
            self._talk(attempt)

    def _waits(self, attempt: Attempt) -> bool:
        """Lets the task wait in write() for the leader, while there is patience left for it."""
        since = self._waiting.setdefault(attempt, self._clock())
        if self._clock() - since > PATIENCE_SECONDS:
            return False
        self._pause(attempt, FLOOD_SECONDS)
        self._talk(attempt)
        return True

    def _roll(self, attempt: Attempt) -> None:
        """Takes the newest of a flood, and lets the kernel drop the rest."""
        there = _available(attempt.pipe)
        if there > READ_BYTES:
            attempt.log.skip(os.splice(attempt.pipe, self._null, there - READ_BYTES))
        body = os.read(attempt.pipe, READ_BYTES)
        if not body:
            self._watcher.forget(attempt.pipe)
            return
        attempt.log.write(body)
        self._talk(attempt)
        if there < PIPE_BYTES // 2:
            with contextlib.suppress(OSError):  # it may not have more; then it wakes us more often
                fcntl.fcntl(attempt.pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._pause(attempt, FLOOD_SECONDS)

    def _pause(self, attempt: Attempt, seconds: float) -> None:
        self._watcher.forget(attempt.pipe)
        self._loop.call_later(seconds, self._go_on, attempt, attempt.pipe)

    def _go_on(self, attempt: Attempt, pipe: int) -> None:
        if attempt.pipe == pipe:  # or it is over
            self.listen(attempt)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _talk(self, attempt: Attempt) -> None:
        if not self._talking:
            self._loop.call_later(self._linger(), self._ship_all)
        self._talking.add(attempt)

    def _linger(self) -> float:
        busy = min(max(BUSY_SECONDS, self._count * BUSY_SECONDS_EACH), LONGEST_SECONDS)
        silent = self._clock() - self._shipped_at
        return QUICK_SECONDS if silent > busy else busy

    def _ship_all(self) -> None:
        talking, self._talking = self._talking, set()
        now = self._clock()
        seconds = min(now - self._shipped_at, LONGEST_SECONDS)
        self._shipped_at, self._count = now, len(talking)
        rate = min(ROLLING_BYTES_PER_SECOND, ALL_ROLLING_BYTES_PER_SECOND // max(len(talking), 1))
        if self._outbox.logs_full:
            for attempt in talking:
                self._talk(attempt)
            return
        for attempt in talking:
            self._ship(attempt, int(rate * seconds))

    def _ship(self, attempt: Attempt, most: int) -> None:
        self._waiting.pop(attempt, None)
        if chunks := attempt.log.chunks(*attempt.key, most):
            self._outbox.log(chunks)


def _available(pipe: int) -> int:
    """How many bytes are in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return count
