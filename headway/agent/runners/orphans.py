"""Finds what an ended attempt left behind, for the price of reading one small file.

The agent adopts orphans (PR_SET_CHILD_SUBREAPER): a process that a task put into another session, and that
would be init's otherwise, shows up among the agent's children. Killing the process group does the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from headway.agent.leftovers import adopt_orphans, attempt_of, environment, kill
from headway.agent.runners.watcher import Watcher

READ_BYTES = 64 * 1024
FOREIGN_SECONDS = 5.0
"""A zombie we cannot place may be the child of a program that embeds the agent, which will reap it. After
this long nobody else will."""


class Orphans:
    """The children that nobody started as such."""

    def __init__(self, marker: str, watcher: Watcher, clock: Callable[[], float]) -> None:
        adopt_orphans()
        self._marker = marker
        self._watcher = watcher
        self._clock = clock
        self._children = _opened(f"/proc/self/task/{os.getpid()}/children")
        self._dying: set[int] = set()
        self._others: set[int] = set()  # workers, the guardian, children of a program that embeds us
        self._zombies: dict[int, float] = {}

    def take(self, known: Callable[[int], bool], is_live: Callable[[int, int], bool]) -> None:
        """Kills and reaps orphans of attempts that are not live. `known`: pids that have an owner."""
        listed = _numbers(self._listed())
        self._others &= listed
        self._zombies = {pid: seen for pid, seen in self._zombies.items() if pid in listed}
        young = self._clock() - FOREIGN_SECONDS
        for pid in listed - self._others - self._dying:
            if not known(pid) and self._zombies.get(pid, young) <= young:
                self._judge(pid, known, is_live)

    def adopted(self) -> Callable[[], set[int]]:
        """Says, when it is asked, which children we have that we had not when this was called."""
        before = self._listed()
        return lambda: _numbers(self._listed()) - _numbers(before)

    def close(self) -> None:
        """Ends it."""
        if self._children is not None:
            os.close(self._children)

    def _listed(self) -> bytes:
        """Our children of now, orphans among them."""
        if self._children is None:
            return b""
        body = b""
        while more := os.pread(self._children, READ_BYTES, len(body)):
            body += more
        return body

    def _judge(self, pid: int, known: Callable[[int], bool], is_live: Callable[[int, int], bool]) -> None:
        environ = environment(pid)
        if not environ:
            self._reap_later(pid)
            return
        attempt = attempt_of(self._marker, environ)
        if attempt is None:
            self._others.add(pid)
        elif not is_live(*attempt):
            kill(pid)
            self._bury(pid, known, is_live)

    def _bury(self, pid: int, known: Callable[[int], bool], is_live: Callable[[int, int], bool]) -> None:
        """Reaps it when it is dead, and looks again: it may have had children of its own."""
        pidfd = os.pidfd_open(pid)
        self._dying.add(pid)

        def dead() -> None:
            self._watcher.forget(pidfd)
            os.close(pidfd)
            self._dying.discard(pid)
            _reap(pid)
            self.take(known, is_live)

        self._watcher.watch(pidfd, dead)

    def _reap_later(self, pid: int) -> None:
        if self._zombies.pop(pid, None) is None:
            self._zombies[pid] = self._clock()
        else:
            _reap(pid)


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN: the process group is all we can end cheaply
        return None


def _numbers(listed: bytes) -> set[int]:
    return set(map(int, listed.split()))


def reap_group(group: int) -> None:
    """Reaps what was killed with its process group and became ours."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
