"""What the leader must still be told, in the order in which it must hear it.

The promise: an ending is kept until it is acknowledged and repeated in every new session; the log of an
attempt goes before its ending. There are no timers: whatever came together while the last frame was being
sent is the next frame. The room is bounded; without room nothing new is started.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable, Iterator

from headway.wire import (
    Checkpointed,
    Ended,
    Ending,
    Fetch,
    FromAgent,
    Frozen,
    Key,
    LogChunk,
    Logs,
    Offer,
    Returned,
    Started,
    Stays,
    Thawed,
    Windows,
)

ENDINGS_MAX = 50_000
ENDINGS_BYTES_MAX = 64 * 1024 * 1024
LOGS_BYTES_MAX = 32 * 1024 * 1024
FRAME_BYTES = 1024 * 1024
"""Far below FRAME_BYTES_MAX: a frame is closed when it reaches this, and a heartbeat waits behind one at most."""
FRAME_KEYS = 50_000
ENDING_BYTES = 64
LOG_BYTES = 64


class Outbox:
    """Takes what runners report; gives frames to the session."""

    def __init__(self) -> None:
        self._endings: list[Ending] = []
        self._unacknowledged: deque[tuple[int, list[Ending], int]] = deque()
        self._endings_bytes = 0  # pending and unacknowledged
        self._endings_count = 0
        self._sequence = 0
        self._logs: deque[LogChunk] = deque()
        self._logs_bytes = 0
        # Sent, and not known to have arrived: by the heartbeat that follows them. There is no Ack for logs,
        # but a renewal proves that the leader read everything before its heartbeat.
        self._logs_sent: deque[tuple[int, LogChunk]] = deque()
        self._logs_sent_bytes = 0
        self._next_heartbeat = 1
        self._started: list[Key] = []
        self._returned: list[Key] = []
        self._questions: list[Fetch | Offer] = []
        self._stands: set[Key] = set()
        self._goes_on: set[Key] = set()
        self._news_of_leaving: list[Stays | Checkpointed] = []
        self._windows: dict[str, int] | None = None
        self._news = asyncio.Event()
        self._progress = asyncio.Event()

    # ── what runners say ────────────────────────────────────────────────────────────────────────────────────

    def end(self, endings: list[Ending]) -> None:
        """Attempts ended."""
        self._endings += endings
        self._endings_count += len(endings)
        self._endings_bytes += sum(map(_size, endings))
        self._news.set()

    def log(self, chunks: Iterable[LogChunk]) -> None:
        """Attempts printed something."""
        for chunk in chunks:
            self._logs.append(chunk)
            self._logs_bytes += len(chunk.body) + LOG_BYTES
        self._news.set()

    def start(self, keys: Iterable[Key]) -> None:
        """Attempts began."""
        self._started += keys
        self._news.set()

    def hand_back(self, keys: Iterable[Key]) -> None:
        """Attempts that never began go back."""
        self._returned += keys
        self._news.set()

    def stands(self, key: Key) -> None:
        """An attempt stands still."""
        self._goes_on.discard(key)
        self._stands.add(key)
        self._news.set()

    def goes_on(self, key: Key) -> None:
        """An attempt that stood still goes on."""
        self._stands.discard(key)
        self._goes_on.add(key)
        self._news.set()

    def stays(self, key: Key, why: str) -> None:
        """An attempt that was to leave does not."""
        self._news_of_leaving.append(Stays([key], why))
        self._news.set()

    def keeps(self, said: Checkpointed) -> None:
        """What another attempt would begin from was stored."""
        self._news_of_leaving.append(said)
        self._news.set()

    def ask(self, question: Fetch | Offer) -> None:
        """A blob is wanted, or offered."""
        self._questions.append(question)
        self._news.set()

    def windows(self, windows: dict[str, int]) -> None:
        """The windows changed."""
        self._windows = windows
        self._news.set()

    @property
    def has_room(self) -> bool:
        """Whether more may be started: its ending would find a place."""
        return self._endings_count < ENDINGS_MAX and self._endings_bytes < ENDINGS_BYTES_MAX

    @property
    def logs_full(self) -> bool:
        """Whether runners should stop reading output until the leader took some."""
        return self._logs_bytes > LOGS_BYTES_MAX

    def ended_keys(self) -> list[Key]:
        """Attempts that ended and are not acknowledged."""
        waiting = [ending for _, endings, _ in self._unacknowledged for ending in endings]
        return [Key(e.tenant, e.task, e.attempt) for e in waiting + self._endings]

    # ── what the session does ───────────────────────────────────────────────────────────────────────────────

    async def wait(self) -> None:
        """Until there is something to say."""
        await self._news.wait()

    async def settled(self) -> None:
        """Until everything is said and every ending acknowledged."""
        while self._endings_count or self._news.is_set():
            self._progress.clear()
            await self._progress.wait()

    def frames(self) -> Generator[FromAgent]:
        """Everything to say now. A log goes before its ending, a start before its end."""
        self._news.clear()
        if self._started:
            started, self._started = self._started, []
            yield Started(started)
        if self._returned:
            returned, self._returned = self._returned, []
            yield Returned(returned)
        if self._stands:
            stands, self._stands = self._stands, set()
            yield Frozen(list(stands))
        if self._goes_on:
            goes_on, self._goes_on = self._goes_on, set()
            yield Thawed(list(goes_on))
        leaving, self._news_of_leaving = self._news_of_leaving, []
        yield from leaving
        if self._windows is not None:
            windows, self._windows = self._windows, None
            yield Windows(windows)
        questions, self._questions = self._questions, []
        yield from questions
        ended = self._take_endings()  # before the logs are: theirs are in
        while self._logs:
            yield Logs(self._some_logs())
        yield from ended
        self._progress.set()

    def acknowledged(self, sequence: int) -> None:
        """The leader has every `Ended` up to `sequence`."""
        while self._unacknowledged and self._unacknowledged[0][0] <= sequence:
            _, endings, size = self._unacknowledged.popleft()
            self._endings_count -= len(endings)
            self._endings_bytes -= size
        self._progress.set()

    def heartbeat_sent(self, sequence: int) -> None:
        """Logs sent from now on are proved by the next heartbeat."""
        self._next_heartbeat = sequence + 1

    def renewed(self, sequence: int) -> None:
        """The leader read everything that was sent before that heartbeat."""
        while self._logs_sent and self._logs_sent[0][0] <= sequence:
            self._forget_log()

    def rewind(self, disowned: set[Key], started: Iterable[Key]) -> None:
        """A new session: everything unacknowledged is to be said again, except what is not ours any more."""
        kept = [ending for _, endings, _ in self._unacknowledged for ending in endings] + self._endings
        self._unacknowledged.clear()
        self._endings, self._endings_count, self._endings_bytes = [], 0, 0
        self._started, self._returned, self._questions = list(started), [], []
        self._stands, self._goes_on = set(), set()  # Hello said it
        self._news_of_leaving = []  # is said again
        again = [chunk for _, chunk in self._logs_sent]
        self._logs_sent.clear()
        self._logs_sent_bytes = 0
        self._logs.extendleft(reversed(again))
        self._logs_bytes += sum(len(chunk.body) + LOG_BYTES for chunk in again)
        self.end([e for e in kept if (e.tenant, e.task, e.attempt) not in disowned])

    def _take_endings(self) -> list[Ended]:
        """All endings in frames. They count as unacknowledged at once: the connection may break before they
        go."""
        endings, self._endings = self._endings, []
        frames: list[Ended] = []
        for some, size in _split(endings):
            self._sequence += 1
            self._unacknowledged.append((self._sequence, some, size))
            frames.append(Ended(self._sequence, some))
        return frames

    def _some_logs(self) -> list[LogChunk]:
        """As many chunks as go into one frame."""
        some: list[LogChunk] = []
        size = 0
        while self._logs and size < FRAME_BYTES:
            chunk = self._logs.popleft()
            some.append(chunk)
            size += len(chunk.body) + LOG_BYTES
        self._logs_bytes -= size
        self._logs_sent_bytes += size
        self._logs_sent.extend((self._next_heartbeat, chunk) for chunk in some)
        while self._logs_sent_bytes > LOGS_BYTES_MAX:
            self._forget_log()
        return some

    def _forget_log(self) -> None:
        _, chunk = self._logs_sent.popleft()
        self._logs_sent_bytes -= len(chunk.body) + LOG_BYTES


def _size(ending: Ending) -> int:
    size = ENDING_BYTES + len(ending.tail) + len(ending.message)
    if ending.artifacts is not None:
        size += sum(len(file.path) + ENDING_BYTES for file in ending.artifacts.manifest.files)
    return size if ending.result is None else size + len(ending.result)


def _split(endings: list[Ending]) -> Iterator[tuple[list[Ending], int]]:
    """The endings in frames. Text is counted in characters: at worst four bytes each, still below the limit."""
    some: list[Ending] = []
    size = 0
    for ending in endings:
        some.append(ending)
        size += _size(ending)
        if size >= FRAME_BYTES or len(some) >= FRAME_KEYS:
            yield some, size
            some, size = [], 0
    if some:
        yield some, size
