"""Runs commands and scripts: one process group and one log each, and nothing left of them afterwards.

The promise: an attempt ends once, with its exit code, the end of its output and what it used; when its end is
reported, its process group is dead, its orphans are killed and its directory is on its way out.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import select
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from headway.agent.blobs import Blobs
from headway.agent.cache import Name
from headway.agent.leftovers import kill_group
from headway.agent.logs import Log
from headway.agent.outbox import Outbox
from headway.agent.runners import freight
from headway.agent.runners.attempt import Attempt, Standing, decode, ended, faulty, not_started
from headway.agent.runners.burial import all_of, kill_all, reap
from headway.agent.runners.directories import Directories
from headway.agent.runners.disk import Disk
from headway.agent.runners.judging import judged, of_slot
from headway.agent.runners.leaving import Leaving
from headway.agent.runners.lending import Lending
from headway.agent.runners.orphans import Orphans
from headway.agent.runners.printing import Printing
from headway.agent.runners.roots import Roots
from headway.agent.runners.spawn import NotSpawned, Pid, opened
from headway.agent.runners.starting import Starting, Walls
from headway.agent.runners.timing import Timing
from headway.agent.runners.verdict import CODES, why
from headway.agent.runners.watcher import Watcher
from headway.agent.sandbox.cgroups import Usage
from headway.agent.sandbox.groups import Groups
from headway.agent.sandbox.slots import Began, Ended, Gone, NotBegun, Slots, Word
from headway.wire import Assignment, Bounds, Ending, Key, Outcome

ANNOUNCE_SECONDS = 0.02
"""What ends sooner is not announced: its ending says all."""
CLOSE_SECONDS = 1.0
GRACE_MS_MAX = 10 * 60_000

_log = structlog.get_logger("headway.agent.processes")


class ProcessRunner:
    """Starts and ends process attempts; `on_end` is told of each once."""

    def __init__(
        self,
        *,
        data_dir: Path,
        marker: str,
        watcher: Watcher,
        outbox: Outbox,
        lending: Lending,
        blobs: Blobs,
        groups: Groups,
        walls: Walls,
        roots: Roots,
        slots_max: int | None = None,
        clock: Callable[[], float],
        on_end: Callable[[Assignment, Ending], None],
    ) -> None:
        self._watcher = watcher
        self._outbox = outbox
        self._lending = lending
        self._blobs = blobs
        self._groups = groups
        self._roots = roots
        self._clock = clock
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._slots = Slots.of(walls.sandbox, groups, marker=marker, watcher=watcher, clock=clock, most=slots_max)
        self._starting = Starting(
            marker=marker,
            directories=Directories(data_dir / "attempts"),
            lending=lending,
            walls=walls,
            slots=self._slots,
            clock=clock,
        )
        self._orphans = Orphans(marker, watcher, clock)
        self._marker = marker
        self._timing = Timing(
            marker=marker,
            clock=clock,
            tell=self._starting.tell,
            over=lambda attempt: self._stop(attempt, Outcome.CAPPED),
        )
        self._leaving = Leaving(blobs=blobs, outbox=outbox, clock=clock, tell=self._starting.tell)
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._attempts: dict[Key, Attempt] = {}
        self._pids: dict[int, Attempt] = {}
        self._disk = Disk(
            self._starting.roots,
            running=self._attempts.values,
            processes=lambda attempt: all_of(attempt, marker),
            exceeded=self._exceeded,
            clock=clock,
        )
        self._printing = Printing(watcher, outbox, clock, self._null)
        self._unannounced: list[Attempt] = []
        self.owned_until = math.inf
        self.is_known: Callable[[int], bool] = self._pids.__contains__

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt. Its cap counts from here."""
        attempt = Attempt(assignment, self._clock())
        self._attempts[attempt.key] = attempt
        self._timing.arm(attempt)
        try:
            self._read(attempt)
        except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
            self._end(attempt, faulty(attempt, fault))

    def _read(self, attempt: Attempt) -> None:
        try:
            attempt.words = decode(attempt.assignment.spec)
        except msgspec.DecodeError as error:
            self._end(attempt, ended(attempt, Outcome.FAILED, "spec_invalid", f"the agent cannot read it: {error}"))
            return
        self._launch(attempt)

    def attempts(self) -> list[Key]:
        """Everything it runs."""
        return list(self._attempts)

    def assignment(self, key: Key) -> Assignment | None:
        """What an attempt is, if it runs here."""
        attempt = self._attempts.get(key)
        return None if attempt is None else attempt.assignment

    def announced(self) -> list[Key]:
        """What was announced as started."""
        silent = set(self._unannounced)
        return [key for key, attempt in self._attempts.items() if attempt.has_begun and attempt not in silent]

    def oldest_began(self) -> float | None:
        """When the attempt began that runs longest."""
        return next(iter(self._attempts.values())).began if self._attempts else None

    def stop(self, key: Key, reason: Outcome, grace_ms_max: int = GRACE_MS_MAX) -> None:
        """Stops an attempt, if it runs here: politely, then by force."""
        attempt = self._attempts.get(key)
        if attempt is not None:
            self._stop(attempt, reason, grace_ms_max)

    def change(self, said: Mapping[Key, Bounds]) -> None:
        """Lets attempts run longer, or shorter; one that is being stopped stays so."""
        for key in said.keys() & self._attempts.keys():
            self._timing.change(self._attempts[key], said[key])

    def stand(self, key: Key) -> Standing:
        """Has an attempt stand still. One that is being stopped is not kept from its end."""
        found = self._steerable(key)
        if isinstance(found, Standing):
            return found
        self._timing.stand(found)
        return Standing.STILL

    def leave(self, key: Key, *, must: bool) -> Standing:
        """Asks an attempt to leave with a checkpoint; if it does not, and `must`, it is stopped."""
        found = self._steerable(key)
        if isinstance(found, Standing):
            return found

        def stays(why: str) -> None:
            if must:
                self._stop(found, Outcome.LOST)
            else:
                self._outbox.stays(key, why)

        self._leaving.ask(found, stays)
        return Standing.STILL

    def say_again(self) -> None:
        """A new session."""
        self._leaving.say_again()

    def _steerable(self, key: Key) -> Attempt | Standing:
        """An attempt that something can be asked of; one that has not begun is given up."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.stop is not None or attempt.is_over:
            return Standing.NOT
        if not attempt.has_begun:  # what it needs is on its way
            self._release(attempt)
            self._tidy(attempt)
            return Standing.UNBEGUN
        return attempt

    def go_on(self, key: Key) -> bool:
        """Has it go on; False for one that does not stand."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.stood_at is None:
            return False
        self._timing.go_on(attempt)
        return True

    def abandon(self, keys: set[Key] | None = None) -> list[Assignment]:
        """Kills attempts (None: all) at once and forgets them: they are not ours any more."""
        whose = self._attempts.keys() if keys is None else keys & self._attempts.keys()
        gone = [self._attempts[key] for key in whose]
        for attempt in gone:
            self._release(attempt)
        self._force(*(attempt for attempt in gone if attempt.has_begun))  # `_exited` buries them
        return [attempt.assignment for attempt in gone]

    def close(self) -> None:
        """Waits for what was killed, which takes no time worth the name."""
        assert not self._attempts
        if self._slots is not None:
            self._slots.close()
        for attempt in list(self._pids.values()):
            if select.select([attempt.pidfd], [], [], CLOSE_SECONDS)[0]:
                self._reap(attempt)
                self._starting.end(attempt)
        self._disk.close()
        self._orphans.close()
        self._groups.close()
        os.close(self._null)

    # ── start ───────────────────────────────────────────────────────────────────────────────────────────────

    def _launch(self, attempt: Attempt) -> None:
        if freight.is_here(self._blobs, attempt) and self._roots.is_there(attempt):
            self._begin(attempt)
        else:
            attempt.preparing = asyncio.ensure_future(self._prepare(attempt))

    def _begin(self, attempt: Attempt) -> None:
        try:
            if self._is_lent(attempt):
                self._spawn(attempt, self._argv(attempt))
        except OSError as error:  # no disk, no descriptors: the node's fault
            self._end(attempt, not_started(attempt, error))
        except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
            self._end(attempt, faulty(attempt, fault))

    def _is_lent(self, attempt: Attempt) -> bool:
        """Whether it got the ports and GPUs it asked for; ends it when others have them."""
        refusal = self._lending.take(attempt)
        if refusal is not None:
            self._end(attempt, ended(attempt, Outcome.LOST, *refusal))
        return refusal is None

    def _spawn(self, attempt: Attempt, argv: list[str]) -> None:
        if not attempt.directory:
            self._starting.prepare(attempt)
        if (wrong := freight.start_in(attempt)) is not None:
            self._end(attempt, wrong)
            return
        attempt.pipe, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(attempt.pipe, False)
        try:
            attempt.held = self._groups.take(attempt.assignment.needs)
            if self._starting.runs_warm(attempt, argv, write, lambda word: self._told(attempt, word)):
                self._watch_output(attempt)
                return
            adopted = self._orphans.adopted()
            pid = self._starting.spawn(attempt, argv, {0: self._null, 1: write, 2: write})
        finally:
            os.close(write)
        if isinstance(pid, NotSpawned):
            self._end(attempt, ended(attempt, pid.outcome, "spawn_failed", pid.message))
            return
        if attempt.held is not None:
            self._groups.join(attempt.held, pid, adopted)
        self._starting.release(attempt)
        attempt.pid, attempt.pidfd = pid, opened(pid)
        self._pids[pid] = attempt
        self._watcher.watch(attempt.pidfd, lambda: self._exited(attempt))
        self._watch_output(attempt)
        if attempt.words.cap_warning is not None:
            self._timing.arm(attempt)
        if attempt.words.checkpoint is not None:
            self._leaving.began(attempt)

    def _watch_output(self, attempt: Attempt) -> None:
        self._printing.listen(attempt)
        self._announce_later(attempt)

    def _told(self, attempt: Attempt, word: Word) -> None:
        """What its slot says of an attempt."""
        match word:
            case Began(pid):
                attempt.pid = Pid(pid)
            case Ended():
                attempt.slot, attempt.told = None, word
                self._gone(attempt, -1)
            case NotBegun() | Gone():
                attempt.slot = None
                starved = self._starting.starved(attempt, self._give_group(attempt))
                has_lease = self._clock() < self.owned_until
                self._finish(attempt, of_slot(attempt, word, starved=starved, has_lease=has_lease))

    def _argv(self, attempt: Attempt) -> list[str]:
        """What to execute."""
        words = attempt.words
        if words.script is None:
            return self._starting.command(attempt)
        return self._starting.argv(attempt, self._blobs.path(Name(attempt.assignment.tenant, words.script)))

    async def _prepare(self, attempt: Attempt) -> None:
        """Fetches and unpacks what it needs, and goes on."""
        try:
            self._starting.prepare(attempt)
        except OSError as error:
            self._end(attempt, not_started(attempt, error))
            return
        wrong = await freight.load(self._blobs, attempt) or await self._roots.get(attempt)
        if wrong is None:
            self._begin(attempt)
        else:
            self._end(attempt, wrong)

    def _announce_later(self, attempt: Attempt) -> None:
        if not self._unannounced:
            self._loop.call_later(ANNOUNCE_SECONDS, self._announce)
        self._unannounced.append(attempt)

    def _announce(self) -> None:
        attempts, self._unannounced = self._unannounced, []
        running = [attempt.key for attempt in attempts if self._attempts.get(attempt.key) is attempt]
        if running:
            self._disk.watch()
            self._outbox.start(running)

    # ── end ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop(self, attempt: Attempt, reason: Outcome, grace_ms_max: int = GRACE_MS_MAX) -> None:
        if attempt.stop is not None:
            return
        attempt.stop = reason
        if not attempt.has_begun:
            self._end(attempt, ended(attempt, reason, CODES[reason], why(reason, attempt.assignment.cap_ms)))
            return
        if attempt.stood_at is not None:
            self._timing.go_on(attempt)
        assert attempt.timer is not None
        attempt.timer.cancel()
        grace_ms = min(attempt.assignment.grace_ms, grace_ms_max)
        attempt.timer = self._loop.call_later(grace_ms / 1000, self._force, attempt)
        self._starting.ask_to_end(attempt)

    def _exceeded(self, attempt: Attempt, what: str) -> None:
        if self._attempts.get(attempt.key) is attempt and attempt.has_begun and attempt.stop is None:
            attempt.excess = what
            self._force(attempt)

    def _force(self, *attempts: Attempt) -> None:
        kill_all(attempts, self._marker)

    def tend(self) -> None:
        """Buries orphans that ended by themselves; for a node on which no process attempt ends for long."""
        self._orphans.take(self.is_known, self._is_live)
        self._groups.sweep()

    def _exited(self, attempt: Attempt) -> None:
        """A process is dead. What it leaves in its sandbox dies with it, and is waited for."""
        remains = self._starting.remains(attempt)
        if remains < 0 or select.select([remains], [], [], 0)[0]:
            self._gone(attempt, remains)
            return
        self._watcher.forget(attempt.pidfd)
        self._watcher.watch(remains, lambda: self._gone(attempt, remains))

    def _gone(self, attempt: Attempt, remains: int) -> None:
        """Everything is dead. Whatever goes wrong from here on, its attempt ends once and its room is free."""
        if remains >= 0:
            self._watcher.forget(remains)
            os.close(remains)
        try:
            ending = self._buried(attempt)
        except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
            ending = faulty(attempt, fault)
        self._finish(attempt, ending)

    def _finish(self, attempt: Attempt, ending: Ending) -> None:
        if self._attempts.get(attempt.key) is not attempt:  # abandoned meanwhile
            self._tidy(attempt)
        elif attempt.stop is not Outcome.LOST and freight.is_left(attempt, ending):
            attempt.preparing = asyncio.ensure_future(self._collect(attempt, ending))
        else:
            self._end(attempt, ending)

    async def _collect(self, attempt: Attempt, ending: Ending) -> None:
        """Stores what it left, and reports its end. It is over and has no process any more; if it is stopped
        meanwhile, it was stopped."""
        assert attempt.timer is not None
        attempt.timer.cancel()
        attempt.pid, attempt.is_over = Pid(0), True
        ran_ms = int(attempt.ran(self._clock()) * 1000)
        ending = await freight.unload(self._blobs, attempt, ending)
        self._end(attempt, msgspec.structs.replace(ending, ran_ms=ran_ms))

    def _buried(self, attempt: Attempt) -> Ending:
        status, rusage = self._reap(attempt)
        self._printing.drain(attempt)
        usage = self._give_group(attempt)
        if attempt.stop is None and (wrong := self._starting.wrong(attempt, status)) is not None:
            attempt.log = Log()  # all that was said is bubblewrap's
            return ended(attempt, wrong.outcome, "spawn_failed", wrong.message)
        starved = status != 0 and self._starting.starved(attempt, usage)
        has_lease, asked = self._clock() < self.owned_until, self._leaving.is_asked(attempt.key)
        return judged(attempt, status, rusage, usage, starved=starved, has_lease=has_lease, asked=asked)

    def _reap(self, attempt: Attempt) -> tuple[int, resource.struct_rusage]:
        if attempt.told is None:
            self._watcher.forget(attempt.pidfd)
            del self._pids[attempt.pid]
        return reap(attempt)

    def _give_group(self, attempt: Attempt) -> Usage | None:
        """Kills what is left of an attempt, in whatever session it hid, and says what all of it used."""
        with self._disk.releasing:
            held, attempt.held = attempt.held, None
        return None if held is None else self._groups.give(held)

    def _end(self, attempt: Attempt, ending: Ending) -> None:
        """Reports an end, the log before it."""
        try:
            ending = self._with_log(attempt, ending)
        except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
            ending = faulty(attempt, fault)
        ran_ms = ending.ran_ms or int(attempt.ran(self._clock()) * 1000)
        if attempt.pid in self._pids:  # it began, and then something went wrong
            kill_group(attempt.pid)
        self._release(attempt)
        self._tidy(attempt)
        self._on_end(attempt.assignment, msgspec.structs.replace(ending, ran_ms=ran_ms))

    def _with_log(self, attempt: Attempt, ending: Ending) -> Ending:
        log = attempt.log
        if not log.written:
            return ending
        self._printing.ship_rest(attempt)
        return msgspec.structs.replace(ending, tail=log.so_far(), log_bytes=log.written)

    def _tidy(self, attempt: Attempt) -> None:
        """What an attempt leaves behind goes; if it does not go, that is no reason not to report its end."""
        self._lending.give(attempt)
        try:
            self._give_group(attempt)
            if attempt.unpacking is not None and not attempt.unpacking.done():
                attempt.unpacking.add_done_callback(lambda _: self._starting.finish(attempt))
            else:
                self._starting.finish(attempt)
            self._roots.give(attempt)
            self._orphans.take(self.is_known, self._is_live)
        except Exception:  # noqa: BLE001  see above
            _log.exception("could not tidy up after an attempt", task=attempt.assignment.task)

    def _release(self, attempt: Attempt) -> None:
        """Gives back what an attempt holds besides its process."""
        del self._attempts[attempt.key]
        self._leaving.ended(attempt.key)
        assert attempt.timer is not None
        attempt.timer.cancel()
        if attempt.preparing is not None and attempt.preparing is not asyncio.current_task():
            attempt.preparing.cancel()
        for name in attempt.lent:
            self._blobs.give_back(name)
        if not attempt.pid:
            self._roots.give(attempt)
        self._printing.forget(attempt)
        if attempt.pipe >= 0:
            self._watcher.forget(attempt.pipe)
            os.close(attempt.pipe)
            attempt.pipe = -1

    def _is_live(self, task: int, number: int) -> bool:
        return any(key.task == task and key.attempt == number for key in self._attempts)
