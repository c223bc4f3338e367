"""The checkpoints of functions: what one begins from is there before a worker gets it, and what it wrote is stored
before its end is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headway.agent.blobs import Blobs
from headway.agent.outbox import Outbox
from headway.agent.plain import plain
from headway.agent.runners import checkpoints
from headway.agent.runners.leaving import WRITES_NONE, Leaving
from headway.agent.transfer import TransferFault
from headway.core.checkpoints import CheckpointRule
from headway.files.packing import Changed
from headway.files.removing import remove
from headway.files.unpacking import Unsafe
from headway.wire import Assignment, Ending, Key, Outcome


class _Words(msgspec.Struct, frozen=True):
    checkpoint: CheckpointRule | None = None


@dataclass(slots=True)
class Writer:
    """A function that writes checkpoints."""

    assignment: Assignment
    directory: str
    owner: int
    rule: CheckpointRule | None
    stood_at: float | None = None

    @property
    def key(self) -> Key:
        """Its attempt."""
        return Key(self.assignment.tenant, self.assignment.task, self.assignment.attempt)


_words = msgspec.json.Decoder(_Words).decode


class Keeping:
    """Prepares functions that write checkpoints, and stores what they wrote."""

    def __init__(
        self,
        root: Path,
        *,
        blobs: Blobs,
        outbox: Outbox,
        clock: Callable[[], float],
        report: Callable[[list[Ending], float], None],
    ) -> None:
        remove(root)
        root.mkdir(parents=True, mode=0o700)
        self.root = str(root)
        self._blobs = blobs
        self._report = report
        self.tell: Callable[[Key], None] = lambda _: None
        self._outbox = outbox
        self._leaving: Leaving[Writer] = Leaving(blobs=blobs, outbox=outbox, clock=clock, tell=self._tell)
        self.say_again = self._leaving.say_again
        self._there: dict[Key, Writer] = {}
        self._busy: dict[Key, asyncio.Task[None]] = {}

    def keys(self) -> list[Key]:
        """What is being prepared, or stored after its end."""
        return list(self._busy)

    def prepare(self, assignment: Assignment, begin: Callable[[list[Assignment]], None]) -> None:
        """Has a function's checkpoint there, and lets it begin."""
        directory = f"{self.root}/{assignment.task}-{assignment.attempt}"
        writer = Writer(assignment, directory, os.getuid(), _words(assignment.spec).checkpoint)
        self._there[writer.key] = writer
        self._busy[writer.key] = asyncio.ensure_future(self._prepare(writer, begin))

    def leave(self, keys: Iterable[Key], stop: Callable[[Key], None] | None) -> None:
        """Asks functions to leave; those that do not are stopped, if there is a `stop`, or stay."""
        for key in keys:

            def stays(why: str, key: Key = key) -> None:
                if stop is not None:
                    stop(key)
                else:
                    self._outbox.stays(key, why)

            writer = self._there.get(key)
            if writer is None:
                stays(WRITES_NONE)
            elif key not in self._busy:
                self._leaving.ask(writer, stays)

    def _tell(self, writer: Writer, _: signal.Signals) -> None:
        self.tell(writer.key)

    def ended(self, endings: list[Ending]) -> list[Ending]:
        """Functions ended: those of them that can be told at once. Who left is told when what it wrote is stored."""
        if not self._there:
            return endings
        return [ending for ending in endings if not self._takes(ending)]

    def drop(self, keys: Iterable[Key] | None = None) -> None:
        """Forgets functions that are not ours any more (None: all)."""
        for key in list(self._there if keys is None else self._there.keys() & set(keys)):
            self._forget(key)

    def _takes(self, ending: Ending) -> bool:
        key = Key(ending.tenant, ending.task, ending.attempt)
        writer = self._there.get(key)
        if writer is None:
            return False
        if ending.outcome != Outcome.YIELDED:
            self._forget(key)
            return False
        self._leaving.ended(key)
        self._busy[key] = asyncio.ensure_future(self._store(writer, ending))
        return True

    async def _prepare(self, writer: Writer, begin: Callable[[list[Assignment]], None]) -> None:
        key, wrong = writer.key, ""
        try:
            os.makedirs(writer.directory, 0o700, exist_ok=True)
            place = checkpoints.place(writer.directory)
            await checkpoints.restore(self._blobs, writer.assignment, place, None)
        except (TransferFault, Unsafe, OSError) as fault:
            wrong = plain(f"its checkpoint could not be had: {fault}")
        del self._busy[key]
        if wrong:
            self._report([Ending(*key, Outcome.LOST, code="checkpoint_lost", message=wrong)], 0.0)
        else:
            self._leaving.began(writer)
            begin([writer.assignment])

    async def _store(self, writer: Writer, ending: Ending) -> None:
        key, place = writer.key, checkpoints.place(writer.directory)
        try:
            ending = await checkpoints.added(ending, self._blobs, key, place, writer.owner)
        except (TransferFault, Changed, checkpoints.TooLarge, OSError) as fault:
            why = plain(f"its checkpoint could not be stored: {fault}; it goes on from the one before")
            ending = msgspec.structs.replace(ending, outcome=Outcome.LOST, code="checkpoint_lost", message=why)
        del self._busy[key]
        self._forget(key)
        self._report([ending], 0.0)

    def _forget(self, key: Key) -> None:
        writer = self._there.pop(key)
        self._leaving.ended(key)
        if (busy := self._busy.pop(key, None)) is not None:
            busy.cancel()
        asyncio.get_running_loop().run_in_executor(None, remove, writer.directory)
