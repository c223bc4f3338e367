"""Warm slots as the agent has them: prepared sandboxes that run one task after the other of one tenant.

A fresh sandbox costs some 8 ms, nearly all of it the kernel's for making and ending namespaces. A slot keeps those and
renews what carries state (see slot.py, the program that does it). The promise: a slot serves one tenant and no other,
ever; it is bounded how many there are; one in which anything was left that cannot be thrown away is ended, not used.
Whoever finds no slot gets a fresh sandbox, so slots make tasks faster and never later.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from headway.agent.leftovers import MARKER
from headway.agent.runners.watcher import Watcher
from headway.agent.sandbox.groups import Groups
from headway.agent.sandbox.sandboxed import Plan, Sandbox

PROGRAM = Path(__file__).with_name("slot.py")
SLOTS_MAX = 32
SLOTS_PER_CPU = 4
MAKING_MAX = 2
"""At once: making one takes the kernel as long as a fresh sandbox."""
IDLE_SECONDS = 30.0
"""Then an idle slot ends: 4 MB are not kept for a tenant that may not come again."""
SWEEP_SECONDS = 5.0
DEMAND_SECONDS = 5.0
"""A tenant whose tasks come this close to each other gets a slot."""
TASKS_MAX = 1000
"""Of one slot; then it is replaced, whatever it looks like."""
USERS = 15
"""Users of one slot: each task is another one than the fourteen before it."""
BLOCK = USERS + 2
"""Its root and its holder are users, too."""
FAULT_SECONDS = 60.0
"""After a slot could not be made, none is tried for so long."""
MESSAGE_BYTES_MAX = 96 * 1024
"""A task whose arguments and environment are longer gets a fresh sandbox."""
BUFFER_BYTES = 256 * 1024

_log = structlog.get_logger("headway.agent.slots")


class Began(NamedTuple):
    """A task still runs after a moment; this is its first process."""

    pid: int


class Ended(NamedTuple):
    """A task ended, with a status as wait(2) tells it."""

    status: int
    usage: resource.struct_rusage


class NotBegun(NamedTuple):
    """A task could not be started: an errno."""

    errno: int


class Gone(NamedTuple):
    """The slot died, and the task with it."""


Word = Began | Ended | NotBegun | Gone


@dataclass(frozen=True, slots=True)
class Job:
    """What a slot is asked to run."""

    argv: list[str]
    environ: dict[str, str]
    place: str
    """The name of its workspace in the directory of workspaces."""
    output: int
    joins: list[str]
    """The files of its control group (see `Group.joins`)."""
    script: tuple[str, str] | None = None
    """Digest and path."""


class Slot:
    """One prepared sandbox. Whoever took it hears of its task, and gives it back by what it hears last."""

    def __init__(self, tenant: int, first: int, runs: socket.socket, heard: Callable[[Slot, bytes], None]) -> None:
        self.tenant = tenant
        self.first = first
        self.since = 0.0
        self._runs = runs
        self._heard = heard
        self._tasks = 0
        self._hear: Callable[[Word], None] | None = None
        self._init = -1

    @property
    def user(self) -> int:
        """As whom its next task runs, as this machine numbers users."""
        return self.first + 2 + self._tasks % USERS

    @property
    def is_worn(self) -> bool:
        """Whether it has served long enough."""
        return self._tasks >= TASKS_MAX

    def run(self, job: Job, hear: Callable[[Word], None]) -> bool:
        """Has it run; `hear` is told until it is over. False, and nothing happens, when it is too long to be told.
        Raises OSError when the slot is dead or there are no descriptors."""
        words = [os.fsencode(word) for word in (*job.argv, *(f"{k}={v}" for k, v in job.environ.items()))]
        digest = job.script[0] if job.script is not None else ""
        head = f"R{self._tasks % USERS}\0{job.place}\0{digest}\0{len(job.argv)}\0".encode()
        body = head + b"\0".join(words)
        if len(body) > MESSAGE_BYTES_MAX or any(b"\0" in word for word in words):
            return False
        opened: list[int] = []
        try:
            if job.script is not None:
                opened.append(os.open(job.script[1], os.O_RDONLY | os.O_CLOEXEC))
            opened += [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in job.joins]
            _send(self._runs, body, [job.output, *opened])
        finally:
            for each in opened:
                os.close(each)
        self._tasks += 1
        self._hear = hear
        return True

    def pass_on(self, number: int) -> None:
        """To everything in the process group of its task, while that is there."""
        if self._hear is not None:
            with contextlib.suppress(OSError):  # it died, and we shall hear of it
                self._runs.send(b"K%d" % number, socket.MSG_DONTWAIT)

    def tell(self, word: Word) -> None:
        """What was heard of its task."""
        hear = self._hear
        if not isinstance(word, Began):
            self._hear = None
        if hear is not None:
            hear(word)

    @property
    def is_busy(self) -> bool:
        """Whether a task runs in it."""
        return self._hear is not None

    def ready(self) -> None:
        """Something can be read from it."""
        try:
            body = self._runs.recv(4096, socket.MSG_DONTWAIT) if self._init >= 0 else self._first_words()
        except BlockingIOError:
            return
        except OSError:
            body = b""
        self._heard(self, body)

    def fileno(self) -> int:
        """What to watch."""
        return self._runs.fileno()

    def close(self) -> None:
        """Ends it, and whatever is in it."""
        self._runs.close()
        if self._init >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            os.close(self._init)
            self._init = -1

    def _first_words(self) -> bytes:
        """What a slot says first comes with a descriptor of its init: with that, everything in it can be killed."""
        body, fds, _, _ = socket.recv_fds(self._runs, 4096, 1, socket.MSG_DONTWAIT)
        for descriptor in fds:
            os.set_inheritable(descriptor, False)
            self._init = descriptor
        return body


class Slots:
    """The slots of a node."""

    def __init__(
        self,
        plan: Plan,
        home: list[str],
        *,
        marker: str,
        watcher: Watcher,
        clock: Callable[[], float],
        most: int | None = None,
    ) -> None:
        self._plan = plan
        sizes = (str(plan.tmp_bytes), str(plan.shm_bytes))
        self._order = "\0".join((str(USERS), *sizes, *plan.words)).encode()
        self._filter = os.open(plan.filter, os.O_RDONLY | os.O_CLOEXEC)
        self._home = home
        self._marker = marker
        self._watcher = watcher
        self._clock = clock
        self._most = min(SLOTS_MAX, SLOTS_PER_CPU * (os.cpu_count() or 1)) if most is None else most
        self._loop = asyncio.get_running_loop()
        self._all: set[Slot] = set()
        self._making: set[Slot] = set()
        self._idle: dict[int, list[Slot]] = {}
        self._missed_at: dict[int, float] = {}
        self._no_more_until = 0.0
        self._warden: tuple[int, socket.socket] | None = None
        self._sweep_at: asyncio.TimerHandle | None = None

    @classmethod
    def of(
        cls, sandbox: Sandbox | None, groups: Groups, *, marker: str, watcher: Watcher, clock: Callable[[], float],
        most: int | None = None,
    ) -> Slots | None:  # fmt: skip
        """The slots of a node; None where tasks have no users or no control groups of their own, or none are wanted."""
        home = groups.apart("slots") if sandbox is not None and most != 0 else None
        plan = sandbox.slots(USERS) if sandbox is not None and home is not None else None
        if plan is None or home is None:
            return None
        return cls(plan, home.joins, marker=marker, watcher=watcher, clock=clock, most=most)

    def __len__(self) -> int:
        return len(self._all)

    def idle(self, tenant: int) -> int:
        """How many wait for a task of this tenant."""
        return len(self._idle.get(tenant, ()))

    @property
    def making(self) -> int:
        """How many are on their way."""
        return len(self._making)

    def take(self, tenant: int) -> Slot | None:
        """A slot for one task of this tenant. Where there is none, and it would have been of use lately, one is made
        for the next."""
        idle = self._idle.get(tenant)
        if idle:
            slot = idle.pop()
            if not idle:
                del self._idle[tenant]
            return slot
        now = self._clock()
        missed_at = self._missed_at.get(tenant)
        self._missed_at[tenant] = now
        if missed_at is not None and now - missed_at < DEMAND_SECONDS:
            self._wish(tenant, now)
        self._sweep_later()
        return None

    def run(self, slot: Slot, job: Job, hear: Callable[[Word], None]) -> bool:
        """Has a slot that was taken run something. False, and `hear` is never told, when it cannot."""
        try:
            if slot.run(job, hear):
                return True
        except OSError:  # it died meanwhile, or there are no descriptors: a fresh sandbox will say which
            self._end(slot)
            return False
        self._rest(slot)
        return False

    def close(self) -> None:
        """Ends all of them."""
        if self._sweep_at is not None:
            self._sweep_at.cancel()
        for slot in list(self._all):
            self._end(slot)
        self._dismiss()
        if self._filter >= 0:
            os.close(self._filter)
            self._filter = -1

    # ── making ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _wish(self, tenant: int, now: float) -> None:
        if now < self._no_more_until or len(self._making) >= MAKING_MAX:
            return
        if len(self._all) >= self._most and not self._make_room(tenant):
            return
        try:
            self._make(tenant)
        except OSError as error:
            self._fault(str(error))

    def _make_room(self, tenant: int) -> bool:
        """Ends the slot that has been idle longest, of another tenant."""
        others = [slot for whose, slots in self._idle.items() if whose != tenant for slot in slots]
        if not others:
            return False
        self._end(min(others, key=lambda slot: slot.since))
        return True

    def _make(self, tenant: int) -> None:
        warden = self._warden_socket()
        first = self._plan.identities.block(BLOCK)
        if first is None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            joins = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in self._home]
            try:
                _send(warden, b"%d\0%b" % (first, self._order), [theirs.fileno(), self._filter, *joins])
            finally:
                for each in joins:
                    os.close(each)
        except OSError:
            ours.close()
            self._plan.identities.give_block(first)
            self._dismiss()
            raise
        finally:
            theirs.close()
        slot = Slot(tenant, first, ours, self._heard)
        self._all.add(slot)
        self._making.add(slot)
        self._watcher.watch(slot.fileno(), slot.ready)

    def _warden_socket(self) -> socket.socket:
        if self._warden is not None:
            return self._warden[1]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            argv = [sys.executable, "-I", "-S", str(PROGRAM)]
            environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", MARKER: self._marker}
            onto = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
            pid = os.posix_spawn(sys.executable, argv, environ, file_actions=onto, setsid=True)
        for path in self._home:
            with open(path, "w") as procs:
                procs.write(str(pid))
        self._warden = (pid, ours)
        return ours

    def _dismiss(self) -> None:
        if self._warden is not None:
            pid, orders = self._warden
            self._warden = None
            orders.close()
            os.waitpid(pid, 0)

    def _fault(self, why: str) -> None:
        self._no_more_until = self._clock() + FAULT_SECONDS
        _log.warning("no warm slot could be made; tasks get fresh sandboxes", why=why)

    # ── what slots say ──────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, slot: Slot, body: bytes) -> None:
        match body[:1]:
            case b"C":
                self._making.discard(slot)
                self._rest(slot)
            case b"S":
                slot.tell(Began(int(body[1:])))
            case b"E":
                word, is_clean = _ending(body[1:])
                slot.tell(word)
                if is_clean:
                    self._rest(slot)
            case b"F":
                slot.tell(NotBegun(int(body[1:])))
                self._rest(slot)
            case b"W":
                self._fault(body[1:].decode(errors="replace"))
            case _:
                self._end(slot)

    def _rest(self, slot: Slot) -> None:
        if slot not in self._all:
            return
        if slot.is_worn:
            self._end(slot)
            return
        slot.since = self._clock()
        self._idle.setdefault(slot.tenant, []).append(slot)
        self._sweep_later()

    def _end(self, slot: Slot) -> None:
        self._all.discard(slot)
        self._making.discard(slot)
        idle = self._idle.get(slot.tenant, [])
        if slot in idle:
            idle.remove(slot)
            if not idle:
                del self._idle[slot.tenant]
        self._watcher.forget(slot.fileno())
        slot.close()
        self._plan.identities.give_block(slot.first)
        slot.tell(Gone())

    def _sweep_later(self) -> None:
        if self._sweep_at is None:
            self._sweep_at = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Ends what has been idle for long, and forgets tenants that have not come for long."""
        self._sweep_at = None
        now = self._clock()
        for slot in [slot for slots in self._idle.values() for slot in slots]:
            if now - slot.since >= IDLE_SECONDS:
                self._end(slot)
        self._missed_at = {one: at for one, at in self._missed_at.items() if now - at < DEMAND_SECONDS}
        if self._idle or self._missed_at:
            self._sweep_later()
        elif not self._all:
            self._dismiss()


def _ending(body: bytes) -> tuple[Ended, bool]:
    status, user, system, peak, read, written, is_clean = body.split()
    numbers = (float(user), float(system), int(peak), 0, 0, 0, 0, 0, 0, int(read), int(written), 0, 0, 0, 0, 0)
    return Ended(int(status), resource.struct_rusage(numbers)), is_clean == b"1"


def _send(sock: socket.socket, body: bytes, fds: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    sock.sendmsg([body], rights, socket.MSG_DONTWAIT)
