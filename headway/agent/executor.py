"""Owns every assignment from its arrival to its ending: what waits, what fits, who runs it.

The promise: every assignment is answered once, by an `Ending` or by `Returned`; nothing is started that does
not fit or whose ending would find no room; and what waits here too long goes back, so that another node may
take it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from headway.agent.blobs import Blobs
from headway.agent.gpus import Gpus
from headway.agent.images.store import Images
from headway.agent.outbox import Outbox
from headway.agent.ports import Ports
from headway.agent.runners.attempt import Standing
from headway.agent.runners.function import FunctionRunner
from headway.agent.runners.keeping import Keeping
from headway.agent.runners.lending import Lending
from headway.agent.runners.process import ProcessRunner
from headway.agent.runners.roots import Roots
from headway.agent.runners.starting import NO_WALLS, Walls
from headway.agent.runners.watcher import Watcher
from headway.agent.runners.worker_room import Rooms
from headway.agent.sandbox.groups import Groups
from headway.agent.window import LONG_SECONDS, Window, differs
from headway.core.placement import ceded, kept
from headway.core.resources import fits, give, how_many_fit, take
from headway.wire import Assignment, Blob, Bounds, Ending, Granted, Key, Outcome, bounded

PROCESS_WINDOW_MAX = 128
PROCESS_WINDOW_FIRST = 16
FUNCTION_WINDOW_MAX = 4000
FUNCTION_WINDOW_FIRST = 256
QUEUE_MAX = 20_000
"""No leader that heeds the windows comes near this."""
REVIEW_SECONDS = 0.05
"""How often the queues are looked at, while there is something in them."""
STOP_GRACE_MS = 5000
"""No longer than this is a task waited for when the agent itself stops."""

_log = structlog.get_logger("headway.agent.executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the node runs."""

    kinds: frozenset[str]
    capacity: dict[str, int]
    app: str | None
    workers: int
    ports: Ports = field(default_factory=Ports)
    gpus: Gpus = field(default_factory=Gpus)
    warm_slots: int | None = None
    worker_memory: int | None = None
    """Bytes for each worker; None: an equal share of the node's."""


class Executor:
    """The node's queues and runners."""

    def __init__(
        self,
        offer: Offer,
        *,
        data_dir: Path,
        marker: str,
        outbox: Outbox,
        blobs: Blobs,
        groups: Groups,
        walls: Walls = NO_WALLS,
        images: Images | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._offer = offer
        self._blobs = blobs
        self.profiles = walls.profiles
        """How closed in it can run processes."""
        self._outbox = outbox
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._free = dict(offer.capacity)
        self._queue: deque[Assignment] = deque()
        self._moved_at = clock()
        self._shape: dict[str, int] = {}
        self._standing: set[Key] = set()
        self._process_window = Window(first=PROCESS_WINDOW_FIRST, most=PROCESS_WINDOW_MAX)
        self._function_window = Window(first=FUNCTION_WINDOW_FIRST, most=FUNCTION_WINDOW_MAX)
        self._owned_until = math.inf
        self._is_pumping = False
        self._is_stopping = False
        self._review_at: asyncio.TimerHandle | None = None
        self._all_ended = asyncio.Event()
        self.functions_changed = asyncio.Event()
        """Set when the app offers other functions than before."""
        self._watcher = Watcher()
        self._processes = ProcessRunner(
            data_dir=data_dir,
            marker=marker,
            watcher=self._watcher,
            outbox=outbox,
            lending=Lending(offer.ports, offer.gpus),
            blobs=blobs,
            groups=groups,
            walls=walls,
            roots=Roots(images, has_engine=walls.engine is not None),
            slots_max=offer.warm_slots,
            clock=clock,
            on_end=self._process_ended,
        )
        self._functions: FunctionRunner | None = None
        if offer.app is not None and "function" in offer.kinds:
            self._functions = FunctionRunner(
                app=offer.app,
                workers=offer.workers,
                rooms=Rooms(groups, data_dir / "workers", _worker_memory(offer)),
                keeping=Keeping(
                    data_dir / "checkpoints", blobs=blobs, outbox=outbox, clock=clock, report=self._functions_ended
                ),
                marker=marker,
                watcher=self._watcher,
                outbox=outbox,
                clock=clock,
                on_end=self._functions_ended,
                on_functions=self.functions_changed.set,
            )
        self._told = self.windows()

    # ── what the leader says ────────────────────────────────────────────────────────────────────────────────

    def dispatch(self, assignments: list[Assignment]) -> None:
        """Takes assignments."""
        functions = [a for a in assignments if a.kind == "function"]
        others = [a for a in assignments if a.kind != "function"] if len(functions) < len(assignments) else []
        self._take_functions(functions)
        self._take_processes(others)

    def kill(self, keys: list[Key]) -> None:
        """Stops what the leader wants stopped."""
        wanted = set(keys)
        if self._functions is not None:
            self._functions.stop(wanted, Outcome.KILLED)
        queued = [a for a in self._queue if _key(a) in wanted]
        self._queue = deque(a for a in self._queue if _key(a) not in wanted)
        message = "stopped on request before it began"
        self._outbox.end([Ending(*_key(a), Outcome.KILLED, 0, None, "killed", message) for a in queued])
        for key in wanted:
            self._processes.stop(key, Outcome.KILLED)

    def stand(self, keys: list[Key]) -> None:
        """Has attempts stand still; what has not begun goes back instead."""
        wanted = set(keys)
        back = [_key(a) for a in self._queue if _key(a) in wanted]
        self._queue = deque(a for a in self._queue if _key(a) not in wanted)
        for key in wanted.difference(back):
            assignment = self._processes.assignment(key)
            if assignment is None:
                continue
            match self._processes.stand(key):
                case Standing.UNBEGUN:
                    give(self._free, assignment.needs)
                    back.append(key)
                case Standing.STILL:
                    if key not in self._standing:
                        self._standing.add(key)
                        give(self._free, ceded(assignment.needs))
                    self._outbox.stands(key)
                case Standing.NOT:
                    pass
        if self._functions is not None:
            back += self._functions.stand(wanted)
        self._outbox.hand_back(back)
        self._pump()

    def leave(self, keys: list[Key], *, must: bool) -> None:
        """Has attempts leave the node; what has not begun goes back."""
        wanted = set(keys)
        back = [_key(a) for a in self._queue if _key(a) in wanted]
        self._queue = deque(a for a in self._queue if _key(a) not in wanted)
        for key in wanted.difference(back):
            self._wake(key)
            assignment = self._processes.assignment(key)
            if assignment is not None and self._processes.leave(key, must=must) is Standing.UNBEGUN:
                self._give_room(assignment)
                back.append(key)
        if self._functions is not None:
            back += self._functions.leave(wanted, must=must)
        self._outbox.hand_back(back)

    def go_on(self, keys: list[Key]) -> None:
        """Has attempts go on that stood still."""
        for key in keys:
            self._wake(key)
        if self._functions is not None:
            self._functions.go_on(set(keys))

    def _wake(self, key: Key) -> None:
        assignment = self._processes.assignment(key)
        if assignment is not None and self._processes.go_on(key):
            self._standing.discard(key)
            take(self._free, ceded(assignment.needs))
            self._outbox.goes_on(key)

    def change(self, bounds: list[Bounds]) -> None:
        """Lets attempts run longer, or shorter."""
        said = {Key(one.tenant, one.task, one.attempt): one for one in bounds}
        self._queue = deque(bounded(a, said[_key(a)]) if _key(a) in said else a for a in self._queue)
        self._processes.change(said)
        if self._functions is not None:
            self._functions.change(said)

    def abandon(self, keys: set[Key] | None = None) -> None:
        """Kills (None: everything) at once and forgets: the leader may start it elsewhere."""
        self._queue = deque(a for a in self._queue if keys is not None and _key(a) not in keys)
        for assignment in self._processes.abandon(keys):
            self._give_room(assignment)
        if self._functions is not None:
            self._functions.abandon(keys)
        self._all_ended.set()
        self._pump()

    def owns_until(self, kill_at: float) -> None:
        """The lease: nothing begins after it, and what was dead by then was perhaps killed by the guardian."""
        self._owned_until = self._processes.owned_until = kill_at

    def blob(self, answer: Blob | Granted) -> None:
        """A blob arrived, or may be read or stored."""
        self._blobs.heard(answer)

    def made_room(self) -> None:
        """Endings were acknowledged, so more may be started."""
        self._pump()
        if self._functions is not None and self._functions.queued:
            self._functions.feed()

    def rejoin(self) -> None:
        """A new session: open questions are asked again."""
        self._blobs.ask_again()
        self._processes.say_again()
        if self._functions is not None:
            self._functions.say_again()

    # ── what the session asks ───────────────────────────────────────────────────────────────────────────────

    def keys(self) -> list[Key]:
        """Everything that has not ended."""
        functions = self._functions.keys() if self._functions is not None else []
        return [_key(a) for a in self._queue] + self._processes.attempts() + functions

    def standing(self) -> list[Key]:
        """What stands still."""
        functions = self._functions.standing() if self._functions is not None else []
        return [*self._standing, *functions]

    @property
    def fed_seconds(self) -> float:
        """For how long the processes that wait here will keep the node busy."""
        slots = how_many_fit(self._shape, self._offer.capacity, most=PROCESS_WINDOW_MAX)
        return self._process_window.lasts(len(self._queue), slots)

    @property
    def has_functions(self) -> bool:
        """Whether it runs functions at all."""
        return self._functions is not None

    def functions(self) -> list[str]:
        """What the app offers."""
        return self._functions.offered if self._functions is not None else []

    def announced(self) -> list[Key]:
        """What was announced as started."""
        functions = self._functions.announced() if self._functions is not None else []
        return self._processes.announced() + functions

    def windows(self) -> dict[str, int]:
        """How many of each kind it will hold beyond those that fit."""
        process = self._process_size()
        sizes = dict.fromkeys(sorted(self._offer.kinds - {"function"}), process)
        if self._functions is not None:
            sizes["function"] = self._function_window.size(self._offer.workers)
        return sizes

    def _process_size(self) -> int:
        slots = how_many_fit(self._shape, self._offer.capacity, most=PROCESS_WINDOW_MAX)
        return self._process_window.size(slots)

    def load(self) -> dict[str, float]:
        """What a heartbeat says about how busy the node is."""
        self._processes.tend()
        queued = len(self._queue) + (self._functions.queued if self._functions is not None else 0)
        free = {f"free_{name}": float(amount) for name, amount in self._free.items()}
        return {"owned": float(len(self.keys())), "queued": float(queued), **free}

    # ── the end of the agent ────────────────────────────────────────────────────────────────────────────────

    async def stop(self) -> None:
        """Hands back what never began, stops what runs, and returns when everything has ended."""
        self._is_stopping = True
        self._hand_back(0, 0)
        for key in self._processes.attempts():
            self._processes.stop(key, Outcome.LOST, grace_ms_max=STOP_GRACE_MS)
        if self._functions is not None:
            self._functions.stop_all(Outcome.LOST, grace_ms_max=STOP_GRACE_MS)
        while self.keys():
            self._all_ended.clear()
            await self._all_ended.wait()

    def close(self) -> None:
        """Kills whatever is left, for every case in which `stop` was not waited for."""
        if self._review_at is not None:
            self._review_at.cancel()
        self._is_stopping = True
        self.abandon()
        if self._functions is not None:
            self._functions.close()
        self._processes.close()
        self._blobs.close()
        self._watcher.close()

    # ── queue and runners ───────────────────────────────────────────────────────────────────────────────────

    def _take_functions(self, assignments: list[Assignment]) -> None:
        if not assignments:
            return
        if self._functions is None or self._is_stopping:
            self._refuse(assignments)
            return
        room = max(0, QUEUE_MAX - self._functions.queued)
        if assignments[room:]:
            self._refuse(assignments[room:])
        self._functions.add(assignments[:room])
        self._review_later()

    def _take_processes(self, assignments: list[Assignment]) -> None:
        if not assignments:
            return
        owned = {*map(_key, self._queue), *self._processes.attempts()}  # said twice is run once
        assignments = [a for a in assignments if _key(a) not in owned]
        fitting = [a for a in assignments if self._can_ever_run(a)]
        if len(fitting) < len(assignments):
            self._refuse([a for a in assignments if not self._can_ever_run(a)])
        if not self._queue:
            self._moved_at = self._clock()
        room = max(0, QUEUE_MAX - len(self._queue))
        if fitting[room:]:
            self._refuse(fitting[room:])
        self._queue += fitting[:room]
        self._pump_once()

    def _can_ever_run(self, assignment: Assignment) -> bool:
        offered = assignment.kind in self._offer.kinds and assignment.profile in self.profiles
        offered = offered and not self._is_stopping
        return offered and fits(assignment.needs, self._offer.capacity)

    def _refuse(self, assignments: list[Assignment]) -> None:
        if not self._is_stopping:
            _log.warning(
                "handed back what this node does not offer or has no room for",
                count=len(assignments),
                first=assignments[0].task,
            )
        self._outbox.hand_back([_key(a) for a in assignments])

    def _pump(self) -> None:
        """Starts what fits, one at a time and letting the loop breathe: starting a process takes half a
        millisecond, and endings, heartbeats and frames must not wait for sixty of them."""
        if not self._is_pumping and self._queue:
            self._is_pumping = True
            self._loop.call_soon(self._pump_once)

    def _pump_once(self) -> None:
        self._is_pumping = False
        now = self._clock()
        may_start = not self._is_stopping and self._outbox.has_room and now < self._owned_until
        if self._queue and may_start and fits(self._queue[0].needs, self._free):
            assignment = self._queue.popleft()
            self._moved_at = now
            self._shape = assignment.needs
            take(self._free, assignment.needs)
            self._processes.start(assignment)
            self._pump()
        if self._queue:
            self._review_later()

    def _process_ended(self, assignment: Assignment, ending: Ending) -> None:
        self._give_room(assignment)
        self._process_window.ran(ending.ran_ms / 1000)
        self._outbox.end([ending])
        self._ended()
        self._pump()

    def _give_room(self, assignment: Assignment) -> None:
        key, needs = _key(assignment), assignment.needs
        give(self._free, kept(needs) if key in self._standing else needs)
        self._standing.discard(key)

    def _functions_ended(self, endings: list[Ending], seconds: float) -> None:
        if seconds:
            self._function_window.ran(seconds, len(endings))
        self._outbox.end(endings)
        self._ended()

    def _ended(self) -> None:
        self._all_ended.set()
        self._tell_windows()

    def _tell_windows(self) -> None:
        windows = self.windows()
        if any(differs(self._told[kind], size) for kind, size in windows.items()):
            self._told = windows
            self._outbox.windows(windows)

    # ── flow control ────────────────────────────────────────────────────────────────────────────────────────

    def _review_later(self) -> None:
        if self._review_at is None:
            self._review_at = self._loop.call_later(REVIEW_SECONDS, self._review)

    def _review(self) -> None:
        """Hands back what has waited too long behind what turned out to be long."""
        self._review_at = None
        now = self._clock()
        began = self._processes.oldest_began()
        if began is not None and now - began > LONG_SECONDS:
            self._process_window.drags(now - began)
        if self._functions is not None and (age := self._functions.oldest_age()) > LONG_SECONDS:
            self._function_window.drags(age)
        self._tell_windows()
        functions_moved_at = self._functions.moved_at if self._functions is not None else now
        process = self._process_size() if now - self._moved_at > LONG_SECONDS else len(self._queue)
        function = self._told.get("function", 0) if now - functions_moved_at > LONG_SECONDS else None
        self._hand_back(process, function)
        if self._queue or (self._functions is not None and self._functions.queued):
            self._review_later()

    def _hand_back(self, keep_processes: int, keep_functions: int | None) -> None:
        back = [_key(self._queue.pop()) for _ in range(len(self._queue) - keep_processes)]
        if self._functions is not None and keep_functions is not None:
            back += self._functions.hand_back(keep_functions)
        if back:
            self._outbox.hand_back(back)


def _worker_memory(offer: Offer) -> int | None:
    share = offer.capacity.get("memory", 0) // max(1, offer.workers)
    return offer.worker_memory or share or None


def _key(assignment: Assignment) -> Key:
    return Key(assignment.tenant, assignment.task, assignment.attempt)
