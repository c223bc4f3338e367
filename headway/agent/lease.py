"""How long the agent may believe that it owns what it runs.

A lease lasts `seconds` from when the heartbeat was SENT, by the agent's own clock: the leader counts from
when it received it, so the agent always gives up first, whatever the network did in between.
"""

from __future__ import annotations

KILL_SHARE = 0.25
KILL_SECONDS_MAX = 1.0


class Lease:
    """The lease of one session and the heartbeats that may still renew it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._until = 0.0
        self._sent: dict[int, float] = {}
        self._sequence = 0

    def grant(self, seconds: float, *, asked_at: float) -> None:
        """A session began; its Hello was sent at `asked_at`."""
        self.seconds = seconds
        self._until = asked_at + seconds
        self._sent.clear()

    def heartbeat(self, now: float) -> int:
        """The sequence of a heartbeat that is sent now. Those older than a lease can renew nothing and are
        dropped."""
        self._sequence += 1
        self._sent = {n: at for n, at in self._sent.items() if now - at < self.seconds}
        self._sent[self._sequence] = now
        return self._sequence

    def renewed(self, sequence: int) -> None:
        """The leader renewed at that heartbeat."""
        sent_at = self._sent.pop(sequence, None)
        if sent_at is not None:
            self._until = max(self._until, sent_at + self.seconds)

    @property
    def kill_at(self) -> float:
        """When to kill what is owned, so that it is dead when the lease ends."""
        return self._until - self._margin

    @property
    def guard_at(self) -> float:
        """When the guardian kills it, because the agent did not: its half of the margin."""
        return self._until - self._margin / 2

    @property
    def _margin(self) -> float:
        return min(KILL_SECONDS_MAX, self.seconds * KILL_SHARE)
