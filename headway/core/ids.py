"""Task ids: 63-bit integers that carry their time of birth and the number of who issued them.

41 bits of milliseconds since 2025, 10 bits of issuer, 12 bits of counter. An issuer number belongs to one pool for
ever, so an id alone tells its pool; ids of one issuer only grow, also when its clock steps back.
"""

from __future__ import annotations

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
COUNTER_BITS = 12
ISSUER_BITS = 10
TIME_SHIFT = COUNTER_BITS + ISSUER_BITS
_COUNTERS = 1 << COUNTER_BITS
ID_MAX = (1 << 63) - 1


class Issuer:
    """Makes ids under one leased number. Not before `not_before_ms`, never twice."""

    def __init__(self, number: int, *, not_before_ms: int) -> None:
        assert 0 <= number < 1 << ISSUER_BITS
        self.number = number
        self._base = number << COUNTER_BITS
        self._ms = not_before_ms - EPOCH_MS
        self._counter = 0

    def take(self, count: int, *, now_ms: int) -> list[int]:
        """`count` new ids, ascending. A burst of over 4,096 in a millisecond borrows from the next ones."""
        ms, counter = now_ms - EPOCH_MS, 0
        if ms <= self._ms:
            ms, counter = self._ms, self._counter
        ids: list[int] = []
        while len(ids) < count:
            if counter == _COUNTERS:
                ms, counter = ms + 1, 0
            span = min(_COUNTERS - counter, count - len(ids))
            first = (ms << TIME_SHIFT) | self._base | counter
            ids.extend(range(first, first + span))
            counter += span
        self._ms, self._counter = ms, counter
        return ids

    @property
    def used_until_ms(self) -> int:
        """The first millisecond not used yet: what the lease row must not fall behind."""
        return self._ms + 1 + EPOCH_MS


def issuer_of(task: int) -> int:
    """The number of who issued an id."""
    return (task >> COUNTER_BITS) & ((1 << ISSUER_BITS) - 1)


def born_ms(task: int) -> int:
    """When an id was issued, in Unix milliseconds."""
    return (task >> TIME_SHIFT) + EPOCH_MS


def first_id_at(unix_ms: int) -> int:
    """The smallest id that could be issued at that time: the border of a partition."""
    return max(unix_ms - EPOCH_MS, 0) << TIME_SHIFT
