"""As whom sandboxed tasks run: each as a user of this machine that nobody else is.

The promise: two attempts that run at the same time are different users, none of them the agent's and none that owns a
file here. Only root can give such users; without it, tasks run as the agent's user and their namespaces alone keep them
apart.
"""

from __future__ import annotations

import array
import hashlib
import os
import socket
import sys
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

from headway.agent.sandbox.namespaces import OUTER

FIRST_USER = 1_900_000_000
"""Far from what distributions, directories and containers give out (up to 1,879,048,191)."""
ROOMS = 60_000
USERS_PER_ROOM = 4096
"""Each agent has a block of its own, by its data directory."""
BATCH = 16
OTHERS_MAX = 256
"""Namespaces for images whose user is not that of sandboxes."""
PROGRAM = Path(__file__).with_name("namespaces.py")


class NoIdentities(Exception):
    """Why no users can be made here."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, and the namespace in which it is 1000."""

    user: int
    namespace: int
    """A descriptor."""


class Identities:
    """The users of one agent, lent to attempts; made when they are needed."""

    def __init__(self, room: str) -> None:
        block = int.from_bytes(hashlib.sha256(room.encode()).digest()[:8]) % ROOMS
        self._next = FIRST_USER + block * USERS_PER_ROOM
        self._last = self._next + USERS_PER_ROOM
        self._free: list[Identity] = []
        self._blocks: deque[int] = deque()
        self._all: list[Identity] = []
        self._others: OrderedDict[tuple[int, tuple[int, int]], int] = OrderedDict()
        if os.getgroups():
            os.setgroups([])  # what the agent is a member of, its tasks would be, too

    def take(self) -> Identity:
        """A user that no attempt runs as."""
        if not self._free:
            self._make()
        return self._free.pop()

    def give(self, identity: Identity) -> None:
        """Nothing runs as it any more."""
        self._free.append(identity)

    def as_another(self, identity: Identity, inside: tuple[int, int]) -> int:
        """A descriptor of a namespace within its own in which this user is another user and group. The ones used last
        are kept. Raises NoIdentities."""
        key = (identity.user, inside)
        found = self._others.get(key)
        if found is None:
            made = _made(["within", *map(str, inside)], {OUTER: identity.namespace})
            if not made:
                raise NoIdentities("no more user namespaces can be made")
            found = self._others[key] = made[0]
        self._others.move_to_end(key)
        while len(self._others) > OTHERS_MAX:
            os.close(self._others.popitem(last=False)[1])
        return found

    def block(self, count: int) -> int | None:
        """The first of so many users in a row that no attempt runs as, always the same number of them; None when there
        are no more. The one that was given back longest ago, so that whoever was it last is long dead."""
        if self._blocks:
            return self._blocks.popleft()
        if self._last - count < self._next:
            return None
        self._last -= count
        return self._last

    def give_block(self, first: int) -> None:
        """Nothing runs as any of them any more."""
        self._blocks.append(first)

    def close(self) -> None:
        """Gives the namespaces up."""
        for namespace in (*(identity.namespace for identity in self._all), *self._others.values()):
            os.close(namespace)
        self._others.clear()
        self._all.clear()
        self._free.clear()

    def _make(self) -> None:
        count = min(BATCH, self._last - self._next)
        made = [Identity(self._next + n, namespace) for n, namespace in enumerate(_namespaces(self._next, count))]
        if not made:
            raise NoIdentities(f"no more than {USERS_PER_ROOM} sandboxes at once, or no user namespaces can be made")
        self._next += len(made)
        self._all += made
        self._free += reversed(made)


def _namespaces(first: int, count: int) -> list[int]:
    """Descriptors of new user namespaces; fewer when there cannot be more."""
    return _made([str(first), str(count)], {})


def _made(said: list[str], fds: dict[int, int]) -> list[int]:
    """What the program makes, given these words and descriptors."""
    ours, theirs = socket.socketpair()
    found: list[int] = []
    with ours:
        with theirs:
            words = [sys.executable, "-I", "-S", str(PROGRAM), *said]
            onto = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in {0: theirs.fileno(), **fds}.items()]
            pid = os.posix_spawn(sys.executable, words, {}, file_actions=onto, setsid=True)
        while True:
            word, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
            if not word:
                break
            for _, kind, body in ancillary:
                if kind == socket.SCM_RIGHTS:
                    found += array.array("i", body)
    os.waitpid(pid, 0)
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return found
