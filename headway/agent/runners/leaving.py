"""Asks attempts to write a checkpoint and leave, and stores what they write while they run.

The promise: who is asked and does not leave in time stays, and it is said so; what was stored and said is what the next
attempt begins from, whatever happens to this one.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import structlog

from headway.agent.blobs import Blobs
from headway.agent.outbox import Outbox
from headway.agent.runners import checkpoints
from headway.agent.transfer import TransferFault
from headway.core.checkpoints import CheckpointRule
from headway.core.quantity import duration_ms
from headway.files.packing import Changed
from headway.wire import Checkpointed, Key

LOOK_SECONDS = 0.25
"""How often it is looked whether a task says that a checkpoint is complete."""
AGAIN_SECONDS = 5.0
"""How long a checkpoint waits that could not be stored."""
WRITES_NONE = "it writes no checkpoints; let it say so: checkpoint: {}"
_log = structlog.get_logger("headway.agent.checkpoints")


class Writes(Protocol):
    """An attempt that writes checkpoints, or does not."""

    @property
    def key(self) -> Key: ...
    @property
    def owner(self) -> int: ...
    @property
    def rule(self) -> CheckpointRule | None: ...
    @property
    def directory(self) -> str: ...
    @property
    def stood_at(self) -> float | None: ...


W = TypeVar("W", bound=Writes)


class Leaving(Generic[W]):
    """The attempts that write checkpoints."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        outbox: Outbox,
        clock: Callable[[], float],
        tell: Callable[[W, signal.Signals], None],
    ) -> None:
        self._blobs = blobs
        self._outbox = outbox
        self._clock = clock
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._there: dict[Key, W] = {}
        self._storing: dict[Key, asyncio.Task[None]] = {}
        self._asked: dict[Key, asyncio.TimerHandle] = {}
        self._not_before: dict[Key, float] = {}
        self._last: dict[Key, str] = {}
        self._look_at: asyncio.TimerHandle | None = None

    def began(self, attempt: W) -> None:
        """An attempt runs that writes checkpoints."""
        self._there[attempt.key] = attempt
        self._look_later()

    def ended(self, key: Key) -> None:
        """It is over."""
        self._there.pop(key, None)
        self._last.pop(key, None)
        self._not_before.pop(key, None)
        if (asked := self._asked.pop(key, None)) is not None:
            asked.cancel()
        if (storing := self._storing.pop(key, None)) is not None:
            storing.cancel()

    def ask(self, attempt: W, stays: Callable[[str], None]) -> None:
        """Asks an attempt to write a checkpoint and leave; `stays` is told why it does not."""
        rule = attempt.rule
        if rule is None:
            stays(WRITES_NONE)
            return
        if attempt.key in self._asked:
            return
        grace = duration_ms(rule.grace, "grace")
        seconds = grace / 1000 if isinstance(grace, int) else 0.0
        self._asked[attempt.key] = self._loop.call_later(seconds, self._in_vain, attempt.key, stays, rule.grace)
        self._tell(attempt, signal.Signals[rule.signal])

    def is_asked(self, key: Key) -> bool:
        """Whether it has been asked, and neither left nor let its grace pass."""
        return key in self._asked

    def say_again(self) -> None:
        """A new session: nobody knows whether what was said last was heard."""
        for key, digest in self._last.items():
            self._outbox.keeps(Checkpointed(*key, digest))

    def _in_vain(self, key: Key, stays: Callable[[str], None], grace: object) -> None:
        self._asked.pop(key, None)
        stays(f"it wrote no checkpoint within {grace}")

    def _look_later(self) -> None:
        if self._look_at is None and self._there:
            self._look_at = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._look_at = None
        now = self._clock()
        for key, attempt in self._there.items():
            waits = key in self._storing or now < self._not_before.get(key, 0.0) or attempt.stood_at is not None
            if not waits and checkpoints.is_ready(checkpoints.place(attempt.directory)):
                self._storing[key] = asyncio.ensure_future(self._store(attempt))
        self._look_later()

    async def _store(self, attempt: W) -> None:
        key, path = attempt.key, checkpoints.place(attempt.directory)
        try:
            digest = await checkpoints.stored(self._blobs, key, path, attempt.owner)
        except (TransferFault, Changed, checkpoints.TooLarge, OSError) as fault:
            _log.warning("checkpoint_not_stored", task=key.task, why=str(fault))
            self._not_before[key] = self._clock() + AGAIN_SECONDS
        else:
            self._last[key] = digest
            self._outbox.keeps(Checkpointed(*key, digest))
            checkpoints.taken(path)
        finally:
            if self._storing.get(key) is asyncio.current_task():
                del self._storing[key]
