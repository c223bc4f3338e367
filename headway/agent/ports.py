"""The port numbers of a node: which are lent to an attempt, and which are really free.

The promise: no number is lent twice at a time, and each was free for anyone to bind when it was lent. A number that
came back is the last one to be lent again, so that what still knocks there does not meet a stranger.
"""

from __future__ import annotations

import socket
from collections import deque

FIRST, LAST = 20_000, 29_999
"""Below what kernels give to outgoing connections (from 32768 on), above what services listen on."""


class Ports:
    """A range of numbers, and who may bind them now."""

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        assert 0 < first <= last < 65_536
        self._free = deque(range(first, last + 1))
        self._is_dual = socket.has_dualstack_ipv6()

    def take(self, count: int) -> list[int] | None:
        """So many numbers that nobody has; None when there are not as many."""
        taken: list[int] = []
        busy: list[int] = []
        while self._free and len(taken) < count:
            number = self._free.popleft()
            (taken if self._can_be_bound(number) else busy).append(number)
        self._free.extendleft(reversed(busy))
        if len(taken) == count:
            return taken
        self._free.extendleft(reversed(taken))
        return None

    def give(self, numbers: list[int]) -> None:
        """Numbers come back."""
        self._free.extend(numbers)

    def _can_be_bound(self, number: int) -> bool:
        """On all addresses, as the strictest listener would: what somebody listens on anywhere is not free."""
        family = socket.AF_INET6 if self._is_dual else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if self._is_dual:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                probe.bind(("", number))
            except OSError:
                return False
        return True
