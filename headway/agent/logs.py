"""The log of one attempt: what is kept of its output, in which pieces, and what is dropped.

The promise: memory and the leader's disk stay bounded whatever a task prints. The first half of
`LOG_BYTES_MAX` and the last `LAST_BYTES` are kept; between them stands a line that says how much is missing.
"""

from __future__ import annotations

from headway.wire import TAIL_BYTES_MAX, LogChunk

LOG_BYTES_MAX = 16 * 1024 * 1024
FIRST_BYTES = LOG_BYTES_MAX // 2
LAST_BYTES = 64 * 1024
CHUNK_BYTES = 64 * 1024


class Log:
    """Takes output, gives chunks."""

    __slots__ = ("_fresh", "_last", "_room", "_sequence", "_tail", "written")

    def __init__(self) -> None:
        self.written = 0
        self._fresh = bytearray()  # kept, not yet in a chunk
        self._room = FIRST_BYTES
        self._last = bytearray()  # the end of what came after FIRST_BYTES
        self._tail = b""
        self._sequence = 0

    def write(self, body: bytes) -> None:
        """Takes output."""
        self.written += len(body)
        first = body[: self._room]
        self._room -= len(first)
        self._fresh += first
        if len(first) < len(body):
            self._last += body[len(first) :]
            if len(self._last) > 2 * LAST_BYTES:
                del self._last[:-LAST_BYTES]

    @property
    def full_chunk(self) -> bool:
        """Whether a whole chunk waits."""
        return len(self._fresh) >= CHUNK_BYTES

    def chunks(self, tenant: int, task: int, attempt: int) -> list[LogChunk]:
        """The pieces that are new since the last time."""
        if not self._fresh:
            return []
        body = bytes(self._fresh)
        self._fresh.clear()
        self._tail = (self._tail + body[-TAIL_BYTES_MAX:])[-TAIL_BYTES_MAX:]
        pieces = [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]
        self._sequence += len(pieces)
        first = self._sequence - len(pieces)
        return [LogChunk(tenant, task, attempt, first + n, piece) for n, piece in enumerate(pieces)]

    def close(self) -> None:
        """No more output comes: the end of what was too long joins, after the line that says what is missing."""
        dropped = self.written - FIRST_BYTES - min(len(self._last), LAST_BYTES)
        if dropped > 0:
            self._fresh += f"\n[headway: {dropped} bytes of output dropped here]\n".encode()
        self._fresh += self._last[-LAST_BYTES:]
        self._last.clear()

    def so_far(self) -> bytes:
        """The end of what was written up to now."""
        return self._tail + self._fresh[-TAIL_BYTES_MAX:]

    def tail(self) -> bytes:
        """The end of the log, after `close` and the last `chunks`."""
        return self._tail
