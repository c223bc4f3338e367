"""One worker process as the agent sees it: its sockets, its shared page, and the tasks it holds."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import signal
import socket
import sys
from dataclasses import dataclass
from time import monotonic_ns

import msgspec

from headway.agent.leftovers import MARKER, kill_group
from headway.agent.runners.spawn import NotSpawned, spawn
from headway.agent.runners.worker_room import Room
from headway.agent.worker_checkpoints import ROOT
from headway.agent.worker_wire import (
    CURRENT,
    HEADER,
    NEWS,
    NEWS_OFFSET,
    PAGE_BYTES,
    REVOKE,
    STOP,
    STOP_OFFSET,
    TEMPORARY,
    FromWorker,
    framed,
)
from headway.wire import Assignment, Bounds, Outcome, bounded

READ_BYTES = 1024 * 1024
PRIVATE = ("HEADWAY_KEY", "HEADWAY_NODE_KEY", "HEADWAY_DATABASE_URL")
"""What of our environment is not the app's business."""
_FD_MIN = 64

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromWorker).decode


@dataclass(frozen=True, slots=True)
class Stop:
    """A running task that is being stopped: why, and when patience ends."""

    task: int
    why: Outcome
    force_at: float


class Worker:
    """A worker process. It holds at most one chunk of tasks."""

    def __init__(self, app: str, marker: str, room: Room, checkpoints: str) -> None:
        self.room = room
        self.held: dict[int, Assignment] = {}
        self.given_at = 0.0
        self.given = 0
        self.is_ready = False
        self.is_revoked = False
        self.is_closed = False
        self.announced = 0
        self.stop: Stop | None = None
        self.moved_ms: dict[int, int] = {}
        """By how much the caps of tasks it holds were moved since it was given them."""
        self.asked: set[int] = set()
        """Tasks it holds that are to write a checkpoint and leave."""
        self.stood_at: float | None = None
        """Since when it stands still."""
        self.stood: dict[int, float] = {}
        """For how many seconds tasks it holds stood still before."""
        self.was_ready = False
        self.was_killed = False
        self._unread = bytearray()
        self._unsent = bytearray()
        self.data, self._control, self._page, self.pid = _start(app, marker, room, checkpoints)
        self.pidfd = os.pidfd_open(self.pid)

    @property
    def is_idle(self) -> bool:
        """Whether it can be given tasks."""
        return self.is_ready and not self.held

    def give(self, chunk: list[Assignment], now: float) -> None:
        """Hands it tasks to run in this order; `send` gets them there."""
        assert self.is_idle
        self.held = {assignment.task: assignment for assignment in chunk}
        self.given, self.given_at = len(chunk), now
        self.moved_ms.clear()
        self.stood.clear()
        self.asked.clear()
        self.is_revoked = False
        self._unsent += framed(_encode(chunk))

    def send(self) -> bool:
        """Sends what the socket takes; True when nothing is left to send, or nobody to send it to."""
        try:
            while self._unsent:
                del self._unsent[: self.data.send(self._unsent)]
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()
        return True

    def receive(self) -> list[FromWorker]:
        """The messages that arrived."""
        with contextlib.suppress(BlockingIOError):
            while not self.is_closed:
                self._read()
        return self._messages()

    def _read(self) -> None:
        try:
            body = self.data.recv(READ_BYTES)
        except ConnectionResetError:
            body = b""
        self.is_closed = not body
        self._unread += body

    def _messages(self) -> list[FromWorker]:
        found: list[FromWorker] = []
        at = 0
        while len(self._unread) - at >= HEADER.size:
            (size,) = HEADER.unpack_from(self._unread, at)
            if len(self._unread) - at - HEADER.size < size:
                break
            at += HEADER.size
            found.append(_decode(self._unread[at : at + size]))
            at += size
        del self._unread[:at]
        return found

    def revoke(self) -> None:
        """Asks for everything that has not begun, and for the endings so far."""
        self.is_revoked = True
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._control.send(REVOKE)

    def change(self, task: int, bounds: Bounds) -> None:
        """A task it holds may run longer, or shorter."""
        before = self.held[task]
        self.moved_ms[task] = self.moved_ms.get(task, 0) + bounds.cap_ms - before.cap_ms
        self.held[task] = bounded(before, bounds)

    def stand(self, now: float) -> None:
        """Stops it where it is, and what it started."""
        self.stood_at = now
        self._signal_group(signal.SIGSTOP)

    def go_on(self, now: float) -> None:
        """Lets it go on; what it stood does not count against the cap of the task it runs."""
        assert self.stood_at is not None
        stood = now - self.stood_at
        self.stood_at = None
        task, _ = self.current()
        self.stood[task] = self.stood.get(task, 0.0) + stood
        self.moved_ms[task] = self.moved_ms.get(task, 0) + int(stood * 1000)
        self.tell_news(task)
        self._signal_group(signal.SIGCONT)

    def ran(self) -> tuple[int, float]:
        """The task it runs now (0: none), and for how many seconds, without those it stood still."""
        task, age = self.current()
        return task, age - self.stood.get(task, 0.0)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def tell_news(self, task: int) -> None:
        """Writes where the running task finds it what changed for it since it began."""
        NEWS.pack_into(self._page, NEWS_OFFSET, task, self.moved_ms.get(task, 0) * 1_000_000, int(task in self.asked))

    def current(self) -> tuple[int, float]:
        """The task it runs now (0: none) and for how many seconds."""
        task, start_ns = self._begun_last()
        return (task, (monotonic_ns() - start_ns) / 1e9) if start_ns else (0, 0.0)

    def take_ended(self) -> list[Assignment]:
        """Of what it holds, the tasks that ended without its telling how: all before the one begun last, and that one
        too if it was over. A dead worker never will tell."""
        task, start_ns = self._begun_last()
        if task not in self.held:
            return []
        order = list(self.held)
        ended = order[: order.index(task) + (start_ns == 0)]
        return [self.held.pop(one) for one in ended]

    def _begun_last(self) -> tuple[int, int]:
        """The worker may write while we read: a torn pair is seen differently when read again."""
        while True:
            seen = CURRENT.unpack_from(self._page, 0)
            if seen == CURRENT.unpack_from(self._page, 0):
                return seen

    def ask_to_stop(self, stop: Stop) -> None:
        """SIGTERM for one task: the worker ignores it when that task is over by then."""
        self.stop = stop
        STOP.pack_into(self._page, STOP_OFFSET, stop.task)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def stopped(self) -> None:
        """The task that was to stop is over."""
        self.stop = None
        STOP.pack_into(self._page, STOP_OFFSET, 0)

    def kill(self) -> None:
        """SIGKILL to it and the processes of its group."""
        self.is_ready = False
        self.was_killed = True
        self.room.kill()
        kill_group(self.pid)

    def reap(self) -> int:
        """The exit status of the dead process; closes everything but what `receive` still needs."""
        kill_group(self.pid)
        os.close(self.pidfd)
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:  # somebody in our process waits for every child
            return 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Gives back sockets and page."""
        self.data.close()
        self._control.close()
        self._page.close()


def _start(app: str, marker: str, room: Room, checkpoints: str) -> tuple[socket.socket, socket.socket, mmap.mmap, int]:
    data, their_data = socket.socketpair()
    control, their_control = socket.socketpair()
    page = os.memfd_create("headway-worker", os.MFD_CLOEXEC)
    os.ftruncate(page, PAGE_BYTES)
    # Sources are moved out of the way of the targets 3, 4 and 5.
    theirs = [
        fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FD_MIN) for fd in (their_data.fileno(), their_control.fileno(), page)
    ]
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    argv = [sys.executable, "-m", "headway.agent.worker_process", app, "3", "4", "5", str(os.getpid())]
    pid = spawn(
        argv,
        {**_environment(marker, room), ROOT: checkpoints},
        os.getcwd(),
        {0: null, 1: 2, 2: 2, **dict(zip((3, 4, 5), theirs, strict=True))},
    )
    mapped = mmap.mmap(page, PAGE_BYTES)
    for fd in (*theirs, page, null):
        os.close(fd)
    their_data.close()
    their_control.close()
    data.setblocking(False)
    control.setblocking(False)
    if isinstance(pid, NotSpawned):
        raise OSError(pid.message)
    return data, control, mapped, pid


def _environment(marker: str, room: Room) -> dict[str, str]:
    """The app's environment is ours (it is the user's own program), without our keys."""
    kept = {name: value for name, value in os.environ.items() if name not in PRIVATE}
    return {**kept, MARKER: marker, "PYTHONUNBUFFERED": "1", "TMPDIR": room.directory, TEMPORARY: room.directory}
