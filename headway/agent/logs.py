"""The log of one attempt: what is sent of its output, in which pieces, and what is dropped.

The promise: memory, network and the server's disk stay bounded whatever a task prints, and whoever follows it sees what
it prints now. The first FIRST_BYTES are sent as they come, the last LAST_BYTES at the end; of what is between only so
much as a rate allows, the newest. Each chunk says at which byte of the output it begins, so what is missing shows.
"""

from __future__ import annotations

from headway.core.log import CHUNK_BYTES, FIRST_BYTES, LAST_BYTES
from headway.wire import TAIL_BYTES_MAX, LogChunk

HELD_BYTES_MAX = 2 * LAST_BYTES
"""Of one attempt, sent or not."""


class Log:
    """Takes output, gives chunks."""

    __slots__ = ("_has_gap", "_held", "_sent", "written")

    def __init__(self) -> None:
        self.written = 0
        self._held = bytearray()  # the newest output, up to `written`
        self._sent = 0  # all before this was sent, or never will be
        self._has_gap = False

    def write(self, body: bytes) -> None:
        """Takes output, no more than CHUNK_BYTES at a time."""
        self.written += len(body)
        self._held += body
        if len(self._held) > 2 * HELD_BYTES_MAX:
            del self._held[:-HELD_BYTES_MAX]

    def skip(self, count: int) -> None:
        """Output that nobody read."""
        self.written += count
        self._held.clear()

    @property
    def unsent(self) -> int:
        """How much waits to be sent."""
        return min(self.written - self._sent, len(self._held))

    @property
    def full_chunk(self) -> bool:
        """Whether a whole chunk waits that may be sent at any rate."""
        return self.is_first and self.unsent >= CHUNK_BYTES

    @property
    def is_first(self) -> bool:
        """Whether what waits belongs to the first bytes, which are sent whole."""
        return self.written - self.unsent < FIRST_BYTES

    def chunks(self, tenant: int, task: int, attempt: int, most: int = 0) -> list[LogChunk]:
        """The pieces that are new since the last time; behind the first bytes, only the `most` newest ones."""
        first, until = self.written - self.unsent, min(self.written, FIRST_BYTES)
        found = self._between(first, until)
        if until < self.written and most > 0:
            found += self._between(max(first, until, self.written - most), self.written)
        return [LogChunk(tenant, task, attempt, at, body) for at, body in found]

    def rest(self, tenant: int, task: int, attempt: int) -> list[LogChunk]:
        """No more output comes: the pieces that are still to be sent, at least the last LAST_BYTES."""
        found = self.chunks(tenant, task, attempt)
        first = self.written - self.unsent
        if self.written > FIRST_BYTES:
            last = self.written - min(LAST_BYTES, len(self._held))
            if self._has_gap or first < last:
                self._sent = min(self._sent, last)
                first = last
        return found + [LogChunk(tenant, task, attempt, at, body) for at, body in self._between(first, self.written)]

    def so_far(self) -> bytes:
        """The end of what was written up to now."""
        return bytes(self._held[-TAIL_BYTES_MAX:])

    def _between(self, first: int, until: int) -> list[tuple[int, bytes]]:
        """The output from one place up to another, in chunks; it is sent then, or never will be."""
        if first >= until:
            return []
        start = self.written - len(self._held)
        self._has_gap = self._has_gap or first > self._sent
        self._sent = until
        pieces = range(first, until, CHUNK_BYTES)
        return [(at, bytes(self._held[at - start : min(at + CHUNK_BYTES, until) - start])) for at in pieces]
