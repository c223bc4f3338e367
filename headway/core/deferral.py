"""Off-peak work: put off while it is peak time for it, yet never so long that it would be late for that.

What is put off is counted against the room there is for it: what is free, and what off-peak work holds already and
gives back by its caps. As long as all of it can still be started in time there, it waits. What is too much for that is
let go during the peak, the first due first, and takes its turn behind everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.core.lifecycle import Lane
from headway.core.nodes import Footprint, Nodes
from headway.core.peak import Peak, in_use
from headway.core.placement import Shape
from headway.core.policy import Policy
from headway.core.queue import Line, LineKey
from headway.core.resources import give, take

LOOK_SECONDS = 5.0
CHUNKS = 8
"""In how many parts of a line it is looked at separately when they are due."""
OFFPEAK = int(Lane.OFFPEAK)
_HAIR = 1e-9


class Deferral:
    """What waits for the peak to end, and how much of it may go before."""

    def __init__(self, nodes: Nodes, policy: Policy, *, is_full: Callable[[], bool]) -> None:
        self.policy = policy
        self._is_full = is_full
        self.peak = Peak()
        self.behind: Callable[[LineKey], int] = nothing_behind
        """How many of a line wait beyond what is in memory."""
        self._nodes = nodes
        self._lines: dict[LineKey, Line] = {}
        self._held: dict[str, int] = {}
        self._let_go: dict[int, int] = {}
        self._looks_at = 0.0

    def offered(self, line: Line) -> None:
        """A line of off-peak work is there."""
        self._lines[line.key] = line

    def forget(self, line: Line) -> None:
        """It is empty."""
        self._lines.pop(line.key, None)

    def as_of(self, other: Deferral) -> None:
        """Goes on from what another one knew of the peak."""
        self.peak.busy, self._let_go, self._looks_at = other.peak.busy, dict(other._let_go), other._looks_at

    def occupy(self, shape: Shape, count: int) -> None:
        """Off-peak work holds so much more."""
        give(self._held, shape.needs, count)

    def vacate(self, shape: Shape, count: int) -> None:
        """Off-peak work holds so much less."""
        take(self._held, shape.needs, count)

    def puts_off(self, footprint: Footprint) -> bool:
        """Whether off-peak work of a footprint waits for the peak to end."""
        return self.peak.is_for(footprint.shape.needs) and not self.is_let_go(footprint)

    def is_let_go(self, footprint: Footprint) -> bool:
        """Whether some of it may start though it is peak time."""
        return bool(self._let_go.get(footprint.number))

    def is_put_off(self, line: Line) -> bool:
        """Whether that is what a line waits for."""
        return line.key.lane == OFFPEAK and line.parked is None and line.is_known and self.puts_off(line.footprint)

    def observe(self) -> bool:
        """Looks at what is in use; True when somebody is put off by it or no longer."""
        used = in_use(self._nodes.free, self._nodes.capacity)
        return self.peak.observe(used, line=self.policy.peak_line, hysteresis=self.policy.peak_hysteresis)

    def room(self, line: Line) -> int:
        """How many of a line may start until it is looked again: during a peak those that were let go, else those that
        keep what they need under the line; the one that reaches it may still start."""
        shape = line.footprint.shape
        if self.peak.is_for(shape.needs):
            return self._let_go.get(line.footprint.number, 0)
        left, most = self.policy.peak_line, 1 << 30
        for name, need in shape.needs.items():
            whole = self._nodes.capacity.get(name, 0)
            if need > 0 and whole > 0:
                most = min(most, max(int((left - self.peak.used.get(name, 0.0)) * whole / need + _HAIR), 1))
        return most

    def started(self, line: Line, count: int) -> bool:
        """So many of a line did; True when the rest is put off again."""
        self.occupy(line.shape, count)
        left = self._let_go.get(line.footprint.number, 0)
        if not left:
            return False
        self._let_go[line.footprint.number] = max(left - count, 0)
        return count >= left

    def look(self, now: float) -> bool:
        """Lets go what would be late if it waited on; True when something else is let go than before."""
        if now < self._looks_at or not (self._let_go or (self.peak.busy and self._lines)):
            return False
        self._looks_at = now + LOOK_SECONDS
        may_go = self.peak.busy and not self._is_full()
        before, self._let_go = self._let_go, self._too_much(now) if may_go else {}
        return self._let_go != before

    def _too_much(self, now: float) -> dict[int, int]:
        """By footprint, how many cannot wait: they and what is due before them take all the room until they are due."""
        chunks = sorted(chunk for line in self._put_off() for chunk in self._chunks(line))
        asked: dict[str, int] = {}
        work: dict[str, float] = {}
        urgent = 0
        for at, (due, count, number, cap_seconds) in enumerate(chunks):
            needs = self._nodes.by_number(number).shape.needs
            for name, need in needs.items():
                asked[name] = asked.get(name, 0) + need * count
                work[name] = work.get(name, 0.0) + need * count * cap_seconds
            if self._is_too_much(needs, asked, work, due - now):
                urgent = at + 1
        found: dict[int, int] = {}
        waiting: dict[int, int] = {}
        for at, (_, count, number, _) in enumerate(chunks):
            waiting[number] = waiting.get(number, 0) + count
            if at < urgent or waiting[number] <= self._let_go.get(number, 0):  # who was let go once needs it still
                found[number] = waiting[number]
        return found

    def _is_too_much(
        self, needs: dict[str, int], asked: dict[str, int], work: dict[str, float], seconds: float
    ) -> bool:  # fmt: skip
        """Whether what is asked for takes all the room from now on, to be started in so many seconds."""
        seconds -= self.policy.promotion_margin_seconds + LOOK_SECONDS
        is_late = seconds <= 0
        for name, need in needs.items():
            free, held = max(self._nodes.free.get(name, 0), 0), self._held.get(name, 0)
            if free + held < need and seconds > 0:  # it is not the peak that stops it
                return False
            if asked[name] > free:  # what runs counts with the mean of the caps
                is_late = is_late or work[name] * (asked[name] + held) > (free + held) * seconds * asked[name]
        return is_late

    def _put_off(self) -> Iterator[Line]:
        for line in self._lines.values():
            if line.parked is None and line.is_known and self.peak.is_for(line.footprint.shape.needs):
                yield line

    def _chunks(self, line: Line) -> Iterator[tuple[float, int, int, float]]:
        """Parts of a line: when the first of each is due, how many there are, their footprint and longest cap."""
        parts = list(line.parts(CHUNKS))
        for at, (first, last, count) in enumerate(parts):
            more = self.behind(line.key) if at == len(parts) - 1 else 0
            yield first.start_by, count + more, line.footprint.number, max(first.cap_ms, last.cap_ms) / 1000


def nothing_behind(_: LineKey) -> int:
    """For who has all in memory."""
    return 0
