"""Runs functions in long-lived worker processes, in chunks of about CHUNK_SECONDS of work.

The promise: a short task costs microseconds, a slow one holds no other hostage (what did not begin is revoked
and goes to another worker), a task that overstays is stopped politely and then by force, and one that kills
its worker costs the others nothing but a moment. All work is per chunk: no asyncio task and no future per
task.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping

import msgspec
import structlog

from headway.agent.outbox import Outbox
from headway.agent.runners.function_endings import (
    died,
    key_of,
    starved,
    stopped,
    untold,
    with_reason,
    without_stand,
)
from headway.agent.runners.keeping import Keeping
from headway.agent.runners.watcher import Watcher
from headway.agent.runners.worker import Stop, Worker
from headway.agent.runners.worker_room import Rooms
from headway.agent.worker_wire import STOPPED, Booted, Finished
from headway.wire import Assignment, Bounds, Ending, Key, Outcome, bounded

CHUNK_SECONDS = 0.005
CHUNK_MAX = 500
CHUNK_CHARS = 1024 * 1024
FIRST_MEAN = CHUNK_SECONDS / 8
TICK_SECONDS = 0.02
"""How often busy workers are looked at: the precision of caps, and when a chunk is late."""
SUSPECTS_MAX = 1000
GRACE_MS_MAX = 10 * 60_000
BOOT_BACKOFF_SECONDS = (0.5, 30.0)

_log = structlog.get_logger("headway.agent.functions")


class FunctionRunner:
    """The queue of functions and the workers that empty it."""

    def __init__(
        self,
        *,
        app: str,
        workers: int,
        rooms: Rooms,
        keeping: Keeping,
        marker: str,
        watcher: Watcher,
        outbox: Outbox,
        clock: Callable[[], float],
        on_end: Callable[[list[Ending], float], None],
        on_functions: Callable[[], None],
    ) -> None:
        self._app = app
        self._rooms = rooms
        self._keeping = keeping
        keeping.tell, self.say_again = self._ask, keeping.say_again
        self._marker = marker
        self._watcher = watcher
        self._outbox = outbox
        self._clock = clock
        self._on_end = on_end
        self._on_functions = on_functions
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Assignment] = deque()
        self.moved_at = clock()
        self._mean = FIRST_MEAN
        self._suspects: set[int] = set()
        self._doomed: dict[int, Outcome] = {}
        self._to_stand: set[int] = set()
        self._tick_at: asyncio.TimerHandle | None = None
        self._backoff = BOOT_BACKOFF_SECONDS[0]
        self._is_closing = False
        self._grace_ms_max = GRACE_MS_MAX
        self.offered: list[str] = []
        self._workers: list[Worker] = []
        for _ in range(workers):
            self._start_worker()

    # ── what the executor does ──────────────────────────────────────────────────────────────────────────────

    def add(self, assignments: list[Assignment]) -> None:
        """Takes functions to run; those that begin from a checkpoint when it is there."""
        if any(assignment.checkpoints for assignment in assignments):
            for assignment in assignments:
                if assignment.checkpoints:
                    self._keeping.prepare(assignment, self._enqueue)
            assignments = [assignment for assignment in assignments if not assignment.checkpoints]
        self._enqueue(assignments)

    def _enqueue(self, assignments: list[Assignment]) -> None:
        if not self._queue:
            self.moved_at = self._clock()
        self._queue += assignments
        self.feed()

    def feed(self) -> None:
        """Gives every idle worker a chunk."""
        if self._is_closing or not self._outbox.has_room:
            return
        for worker in self._workers:
            if not self._queue:
                break
            if worker.is_idle:
                self._give(worker)

    @property
    def queued(self) -> int:
        """How many wait for a worker."""
        return len(self._queue)

    def hand_back(self, keep: int) -> list[Key]:
        """Gives up what waits beyond `keep`, the latest first."""
        given = [self._queue.pop() for _ in range(len(self._queue) - keep)]
        back = [key_of(assignment) for assignment in given]
        self._keeping.drop(back)
        return back

    def oldest_age(self) -> float:
        """For how long the task has been running that runs longest."""
        ages = [age for task, age in (worker.current() for worker in self._workers if worker.held) if task]
        return max(ages, default=0.0)

    def keys(self) -> list[Key]:
        """Everything it holds."""
        held = [assignment for worker in self._workers for assignment in worker.held.values()]
        return [key_of(assignment) for assignment in (*self._queue, *held)] + self._keeping.keys()

    def announced(self) -> list[Key]:
        """What was announced as started and still runs."""
        return [key_of(w.held[w.announced]) for w in self._workers if w.announced in w.held]

    def stop(self, keys: set[Key], why: Outcome) -> None:
        """Stops functions: what never began ends at once, what runs gets SIGTERM, then SIGKILL."""
        queued = [assignment for assignment in self._queue if key_of(assignment) in keys]
        self._doomed.update((assignment.task, why) for assignment in queued)
        self._end_doomed()
        for worker in self._workers:
            doomed = [task for task, assignment in worker.held.items() if key_of(assignment) in keys]
            if doomed:
                self._doomed.update(dict.fromkeys(doomed, why))
                worker.revoke()
                self._look_at(worker)

    def change(self, said: Mapping[Key, Bounds]) -> None:
        """Lets functions run longer, or shorter; one that is being stopped stays so."""
        self._queue = deque(bounded(a, said[key_of(a)]) if key_of(a) in said else a for a in self._queue)
        for worker in self._workers:
            for task, assignment in list(worker.held.items()):
                if (bounds := said.get(key_of(assignment))) is not None:
                    worker.change(task, bounds)
            self._look_at(worker)

    def leave(self, keys: set[Key], *, must: bool) -> list[Key]:
        """Asks functions to leave with a checkpoint; those that do not are stopped if they must. Answers those that had
        not begun."""
        back = [key_of(a) for a in self._queue if key_of(a) in keys]
        self._queue = deque(a for a in self._queue if key_of(a) not in keys)
        self._keeping.drop(back)
        held = {key_of(a) for worker in self._workers for a in worker.held.values()} & keys
        self.go_on(held)
        self._keeping.leave(held, (lambda key: self.stop({key}, Outcome.LOST)) if must else None)
        return back

    def _ask(self, key: Key) -> None:
        for worker in self._workers:
            if key.task in worker.held:
                worker.asked.add(key.task)
                self._look_at(worker)

    def stand(self, keys: set[Key]) -> list[Key]:
        """Has functions stand still, as soon as their workers hold nobody else's; answers those that had not begun."""
        back = [key_of(a) for a in self._queue if key_of(a) in keys]
        self._queue = deque(a for a in self._queue if key_of(a) not in keys)
        for worker in self._workers:
            wanted = {task for task, assignment in worker.held.items() if key_of(assignment) in keys}
            standing = self._standing_in(worker)
            if standing is not None and standing in keys:
                self._outbox.stands(standing)
            elif wanted:
                self._to_stand |= wanted
                self._look_at(worker)
        return back

    def go_on(self, keys: set[Key]) -> None:
        """Has functions go on that stood still."""
        for worker in self._workers:
            key = self._standing_in(worker)
            if key is not None and key in keys:
                worker.go_on(self._clock())
                self._outbox.goes_on(key)

    def standing(self) -> list[Key]:
        """What stands still."""
        return [key for worker in self._workers if (key := self._standing_in(worker)) is not None]

    def _standing_in(self, worker: Worker) -> Key | None:
        assignment = worker.held.get(worker.current()[0]) if worker.stood_at is not None else None
        return None if assignment is None else key_of(assignment)

    def _stand(self, worker: Worker, assignment: Assignment) -> None:
        """Stops a worker; what else it holds goes to others first, for it could not be had from one that stands."""
        if len(worker.held) > 1:
            if not worker.is_revoked:
                worker.revoke()
            return
        self._to_stand.discard(assignment.task)
        if worker.stood_at is None:
            worker.stand(self._clock())
        self._outbox.stands(key_of(assignment))

    def _hand_back_unbegun(self) -> None:
        """Of what was to stand still, that which came back from its worker without having begun."""
        back = [key_of(a) for a in self._queue if a.task in self._to_stand]
        if back:
            self._queue = deque(a for a in self._queue if a.task not in self._to_stand)
            self._to_stand -= {key.task for key in back}
            self._outbox.hand_back(back)

    def stop_all(self, why: Outcome, grace_ms_max: int) -> None:
        """The agent stops: nothing begins any more, what runs is stopped."""
        self._is_closing = True
        self._grace_ms_max = grace_ms_max
        self.stop(set(self.keys()), why)

    def abandon(self, keys: set[Key] | None = None) -> None:
        """Kills (None: everything) at once and forgets: it is not ours any more."""
        self._keeping.drop(keys)
        forgotten = [a for a in self._queue if keys is None or key_of(a) in keys]
        self._queue = deque(a for a in self._queue if keys is not None and key_of(a) not in keys)
        for worker in self._workers:
            gone = [task for task, a in worker.held.items() if keys is None or key_of(a) in keys]
            if gone:
                worker.kill()
            forgotten += [worker.held.pop(task) for task in gone]
        for assignment in forgotten:
            self._doomed.pop(assignment.task, None)

    def close(self) -> None:
        """Ends the workers; nothing may be running."""
        self._is_closing = True
        if self._tick_at is not None:
            self._tick_at.cancel()
        for worker in self._workers:
            self._loop.remove_writer(worker.data.fileno())
            self._watcher.forget(worker.data.fileno())
            self._watcher.forget(worker.pidfd)
            worker.kill()
            worker.reap()
            self._rooms.give(worker.room)
            worker.close()
        self._workers.clear()

    # ── giving and taking ───────────────────────────────────────────────────────────────────────────────────

    def _give(self, worker: Worker) -> None:
        share = -(-len(self._queue) // len(self._workers))
        most = min(CHUNK_MAX, max(1, int(CHUNK_SECONDS / max(self._mean, 1e-6))), share)
        chunk: list[Assignment] = []
        chars = 0
        while self._queue and len(chunk) < most and chars < CHUNK_CHARS:
            assignment = self._queue.popleft()
            chunk.append(assignment)
            chars += len(assignment.spec)
        if chunk:
            self.moved_at = self._clock()
            worker.give(chunk, self.moved_at)
            self._send(worker)
            self._tick_later()

    def _send(self, worker: Worker) -> None:
        """Sends what the socket takes, and the rest when it takes more: arguments may be large."""
        if worker.send():
            self._loop.remove_writer(worker.data.fileno())
        else:
            self._loop.add_writer(worker.data.fileno(), self._send, worker)

    def _received(self, worker: Worker) -> None:
        try:
            messages = worker.receive()
        except msgspec.DecodeError:  # the app wrote into our socket; what the worker says cannot be trusted now
            worker.kill()
            return
        if worker.is_closed:  # its pidfd says the rest
            self._watcher.forget(worker.data.fileno())
        for message in messages:
            match message:
                case Booted():
                    self._booted(worker, message)
                case Finished():
                    self._finished(worker, message)
        self.feed()

    def _finished(self, worker: Worker, message: Finished) -> None:
        held = worker.held
        endings = [ending for ending in message.endings if held.pop(ending.task, None) is not None]
        if worker.stop is not None or self._doomed:
            endings = [self._as_stopped(worker, ending) for ending in endings]
        if message.revoked:
            back = [held.pop(task) for task in message.revoked if task in held]
            self._queue.extendleft(reversed(back))
            if self._to_stand:
                self._hand_back_unbegun()
        if worker.stood:
            endings = [without_stand(ending, worker.stood) for ending in endings]
        if self._to_stand:
            self._to_stand -= {ending.task for ending in endings}
        if message.logs:
            self._outbox.log(message.logs)
        if endings:
            seconds = message.busy_ns / 1e9
            # Half way at each chunk: after a few, chunks have the right size.
            self._mean += (seconds / len(endings) - self._mean) / 2
            self._report(endings, seconds)
        self._end_doomed()

    def _as_stopped(self, worker: Worker, ending: Ending) -> Ending:
        """An ending that our SIGTERM caused says why we sent it; one that came before it stays what it is."""
        self._doomed.pop(ending.task, None)
        stop = worker.stop
        if stop is None or stop.task != ending.task:
            return ending
        worker.stopped()
        if ending.code != STOPPED:
            return ending
        return with_reason(ending, stop.why)

    def _end_doomed(self) -> None:
        """Revoked tasks that were to be stopped have ended without having begun."""
        if not self._doomed or not self._queue:
            return
        doomed = [a for a in self._queue if a.task in self._doomed]
        if doomed:
            self._queue = deque(a for a in self._queue if a.task not in self._doomed)
            self._end_unbegun(doomed)

    def _end_unbegun(self, assignments: list[Assignment]) -> None:
        """Ends tasks that were to be stopped and never began. What a stopping agent gives up costs no
        attempt."""
        whys = [(assignment, self._doomed.pop(assignment.task)) for assignment in assignments]
        self._outbox.hand_back([key_of(assignment) for assignment, why in whys if why is Outcome.LOST])
        self._report([stopped(assignment, why, 0) for assignment, why in whys if why is not Outcome.LOST], 0.0)

    def _report(self, endings: list[Ending], seconds: float) -> None:
        endings = self._keeping.ended(endings)
        if endings:
            self._on_end(endings, seconds)

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _tick_later(self) -> None:
        if self._tick_at is None:
            self._tick_at = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Looks at busy workers; without any there is no next tick, and an idle agent costs nothing."""
        self._tick_at = None
        busy = [worker for worker in self._workers if worker.held]
        for worker in busy:
            self._look_at(worker)
        if busy:
            self._tick_later()

    def _look_at(self, worker: Worker) -> None:
        now = self._clock()
        if worker.room.looks(worker.pid):
            worker.kill()
            return
        if worker.stood_at is not None and (worker.stop is not None or worker.current()[0] in self._doomed):
            worker.go_on(now)
        if worker.stop is not None:
            if now >= worker.stop.force_at:
                worker.kill()
            return
        if len(worker.held) > 1 and not worker.is_revoked and now - worker.given_at > TICK_SECONDS:
            worker.revoke()
        task, age = worker.ran()
        assignment = worker.held.get(task)
        if assignment is None or worker.stood_at is not None:
            return
        if task in worker.moved_ms or task in worker.asked:
            worker.tell_news(task)
        if task in self._doomed:
            self._ask_to_stop(worker, assignment, self._doomed[task], now)
        elif task in self._to_stand:
            self._stand(worker, assignment)
        elif age * 1000 >= assignment.cap_ms:
            self._ask_to_stop(worker, assignment, Outcome.CAPPED, now)
        elif age > TICK_SECONDS and worker.announced != task:
            worker.announced = task
            self._outbox.start([key_of(assignment)])

    def _ask_to_stop(self, worker: Worker, assignment: Assignment, why: Outcome, now: float) -> None:
        if len(worker.held) > 1:
            worker.revoke()
        grace_ms = min(assignment.grace_ms, self._grace_ms_max)
        worker.ask_to_stop(Stop(assignment.task, why, now + grace_ms / 1000))

    # ── the workers' lives ──────────────────────────────────────────────────────────────────────────────────

    def _start_worker(self) -> None:
        if self._is_closing:
            return
        room = None
        try:
            room = self._rooms.take()
            worker = Worker(self._app, self._marker, room, self._keeping.root)
        except OSError as error:
            _log.error("a worker could not be started; will try again", why=str(error))
            if room is not None:
                self._rooms.give(room)
            self._start_later()
            return
        self._rooms.join(room, worker.pid)
        self._workers.append(worker)
        self._watcher.watch(worker.data.fileno(), lambda: self._received(worker))
        self._watcher.watch(worker.pidfd, lambda: self._gone(worker))

    def _booted(self, worker: Worker, message: Booted) -> None:
        if message.error:
            _log.error("the app cannot be imported; its functions are not offered", app=self._app, error=message.error)
            return
        self._backoff = BOOT_BACKOFF_SECONDS[0]
        worker.is_ready = worker.was_ready = True
        if self.offered != message.functions:
            self.offered = message.functions
            self._on_functions()

    def _gone(self, worker: Worker) -> None:
        """A worker died. What it had finished and sent is taken; the task it ran ends; what it had not begun
        goes to another worker. What ended without its result having been sent (at most one chunk) is lost: the
        leader gives it another attempt, for nobody knows how it ended."""
        self._watcher.forget(worker.pidfd)
        worker.is_ready = False
        self._received(worker)
        self._watcher.forget(worker.data.fileno())
        self._loop.remove_writer(worker.data.fileno())
        status = worker.reap()
        self._rooms.give(worker.room)
        self._workers.remove(worker)
        self._answer_for(worker, status)
        worker.close()
        self._restart(was_ready=worker.was_ready)
        self.feed()

    def _answer_for(self, worker: Worker, status: int) -> None:
        """Ends the task that a dead worker ran; what it had not begun waits again."""
        # One task a chunk for a while: what a crash can take down with it is then told already.
        self._mean = max(self._mean, CHUNK_SECONDS)
        silent = worker.take_ended()
        self._report([untold(assignment) for assignment in silent], 0.0)
        culprit, age = worker.ran()
        blamed = worker.held.pop(culprit, None)
        if blamed is None and worker.held and not worker.was_killed:
            # It died and says that it ran nothing. Perhaps it was dead when it was given these; but if that happens
            # twice to the same task, the task is to blame, or this could go on for ever.
            first = next(iter(worker.held))
            blamed = worker.held.pop(first) if first in self._suspects else None
            self._suspects = {first} if len(self._suspects) >= SUSPECTS_MAX else {*self._suspects, first}
        self._queue.extendleft(reversed(worker.held.values()))
        if blamed is not None:
            ran_ms = int(age * 1000) if culprit == blamed.task else 0
            why = self._doomed.pop(blamed.task, None)
            if worker.stop is not None and worker.stop.task == blamed.task:
                why = worker.stop.why
            if why is not None:
                ending = stopped(blamed, why, ran_ms)
            elif worker.room.is_overfull and status == -signal.SIGKILL:
                ending = starved(blamed, worker.room, ran_ms)
            else:
                ending = died(blamed, status, ran_ms)
            self._report([ending], ran_ms / 1000)
        self._end_doomed()

    def _restart(self, *, was_ready: bool) -> None:
        if self._is_closing:
            return
        if was_ready:
            self._start_worker()
            return
        self._start_later()

    def _start_later(self) -> None:
        self._loop.call_later(self._backoff, self._start_worker)
        self._backoff = min(self._backoff * 2, BOOT_BACKOFF_SECONDS[1])
