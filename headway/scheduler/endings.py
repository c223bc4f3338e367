"""Ends of attempts, made durable in batches and then acknowledged.

Success is the common case and takes one statement for thousands. A failure asks the task's retry rule first; a loss
(node or worker died) is not the task's fault and has a bound of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import asyncpg
import msgspec
import structlog

from headway.core.retry import again_after_loss_ms, again_after_ms
from headway.core.task import Spec
from headway.scheduler.sessions import Session
from headway.store.queue import QueueStore
from headway.store.rows import End, Tries
from headway.store.steering import SteeringStore
from headway.wire import Ending, Outcome

BATCH_MAX = 2000
RECORDERS = 2
_spec = msgspec.json.Decoder(Spec).decode
_DONE, _FAILED = 2, 3
_INT, _LONG = 2**31, 2**62
_Over = list[tuple[int, int]]
REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError)
"""What the database, or the driver before it, says to a row that cannot be kept."""
_log = structlog.get_logger("headway.scheduler")
_FAULTLESS = frozenset({Outcome.LOST.value, Outcome.KILLED.value})


class Endings:
    """What has ended and is not durable yet."""

    def __init__(
        self,
        store: QueueStore,
        steering: SteeringStore,
        *,
        ended: Callable[[list[tuple[int, int]]], None],
        chance: random.Random,
    ) -> None:
        self._store = store
        self._steering = steering
        self._ended = ended
        self._chance = chance
        self._waiting: deque[tuple[list[Ending], Session, int]] = deque()
        self._arrived = asyncio.Event()
        self.recorded = 0
        self.retried = asyncio.Event()
        """Set when a task was scheduled for another attempt: the timekeeper has something new to wait for."""

    def add(self, endings: list[Ending], session: Session, sequence: int) -> None:
        """Takes endings in; the session is told when they are durable."""
        self._waiting.append((endings, session, sequence))
        self._arrived.set()

    def clear(self) -> None:
        """Forgets what is not durable: the agents repeat it to whoever leads next."""
        self._waiting.clear()
        self._arrived.clear()

    async def run(self) -> None:
        """Records for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(RECORDERS):
                group.create_task(self._record_for_ever())

    async def _record_for_ever(self) -> None:
        while True:
            await self._arrived.wait()
            await self.run_once()

    async def run_once(self) -> int:
        """Makes durable what has gathered; answers how many."""
        frames = self._gather()
        endings = [(ending, session.node) for more, session, _ in frames for ending in more]
        if endings:
            await self.record(endings)
        for _, session, sequence in frames:
            session.settle(sequence)
        return len(endings)

    def _gather(self) -> list[tuple[list[Ending], Session, int]]:
        frames: list[tuple[list[Ending], Session, int]] = []
        count = 0
        while self._waiting and (not frames or count + len(self._waiting[0][0]) <= BATCH_MAX):
            frames.append(self._waiting.popleft())
            count += len(frames[-1][0])
        if not self._waiting:
            self._arrived.clear()
        return frames

    async def record(self, endings: Iterable[tuple[Ending, int]]) -> None:
        """Makes endings durable, each with the node it ran on."""
        good: list[End] = []
        bad: list[tuple[Ending, int]] = []
        for ending, node in endings:
            if ending.outcome == 0:
                good.append(_end(ending, node, _DONE))
            else:
                bad.append((ending, node))
        again: list[End] = []
        left = [_end(ending, node, None, counts=False) for ending, node in bad if ending.outcome == Outcome.YIELDED]
        bad = [one for one in bad if one[0].outcome != Outcome.YIELDED]
        if left:
            self._note(await self._surely(self._steering.give_way, left))
            self.retried.set()
        if bad:
            tries = await self._store.tries([(ending.tenant, ending.task) for ending, _ in bad])
            for ending, node in bad:
                end = self._judge(ending, node, tries.get((ending.tenant, ending.task)))
                (good if end.status is not None else again).append(end)
        if good:
            self._note(await self._surely(self._store.finish, good))
        if again:
            self._note(await self._surely(self._store.try_again, again))
            self.retried.set()

    async def _surely(self, write: Callable[[list[End]], Awaitable[list[tuple[int, int]]]], ends: list[End]) -> _Over:
        """Writes ends whatever an agent put into them: one that the database refuses is found by halving, and written
        without what it said. Nobody else's end waits for it, and it is not repeated for ever."""
        try:
            return await write(ends)
        except REFUSED as fault:
            if len(ends) > 1:
                half = len(ends) // 2
                return await self._surely(write, ends[:half]) + await self._surely(write, ends[half:])
            _log.error("ending_refused_by_database", task=ends[0].id, why=str(fault))
            return await write([bare(ends[0])])

    def _note(self, over: list[tuple[int, int]]) -> None:
        self.recorded += len(over)
        self._ended(over)

    def _judge(self, ending: Ending, node: int, tries: Tries | None) -> End:
        """Whether the task failed for good or gets another attempt."""
        if tries is None:
            return _end(ending, node, _FAILED)  # its lease is gone; the statement will match no row
        if ending.outcome in _FAULTLESS:
            delay = again_after_loss_ms(losses=tries.losses + 1)
            return _end(ending, node, _FAILED if delay is None else None, delay_ms=delay or 0, counts=False)
        rule = _spec(tries.spec).retry
        delay = again_after_ms(
            rule, failures=tries.failures + 1, exit_code=ending.exit_code, chance=self._chance.random()
        )
        return _end(ending, node, _FAILED if delay is None else None, delay_ms=delay or 0)


def sound(ending: Ending) -> Ending:
    """The ending, if it is one that a sound agent could send; else what can be kept of it."""
    if (
        0 <= ending.outcome <= Outcome.YIELDED
        and 0 <= ending.ran_ms < _LONG
        and 0 <= ending.log_bytes < _LONG
        and (ending.exit_code is None or -_INT < ending.exit_code < _INT)
        and "\0" not in ending.code + ending.message
        and (ending.result is None or _is_json(ending.result))
    ):
        return ending
    message = f"the agent's account of how it ended makes no sense (outcome {ending.outcome})"
    return Ending(ending.tenant, ending.task, ending.attempt, Outcome.FAILED, code="ending_invalid", message=message)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return "\0" not in text


def bare(end: End) -> End:
    """The end without anything that could be refused."""
    message = "the database refused the agent's account of how it ended"
    status = _FAILED if end.status is not None else None
    return msgspec.structs.replace(
        end, outcome=Outcome.FAILED.value, status=status, ran_ms=0, exit_code=None, log_bytes=0, code="ending_invalid",
        message=message, result=None, usage=None, tail=None,
    )  # fmt: skip


def _end(ending: Ending, node: int, status: int | None, *, delay_ms: int = 0, counts: bool = True) -> End:
    usage = None if ending.usage is None else msgspec.json.encode(ending.usage).decode()
    return End(
        ending.tenant,
        ending.task,
        ending.attempt,
        ending.outcome,
        status,
        ending.ran_ms,
        ending.exit_code,
        ending.log_bytes,
        ending.code,
        ending.message,
        ending.result,
        usage,
        ending.tail or None,
        node,
        delay_ms,
        counts,
    )
