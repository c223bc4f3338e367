"""Waits for file descriptors with an epoll of its own, which the event loop watches as one descriptor.

A process costs two registrations and two removals. The loop's `add_reader` makes an object per descriptor;
this makes none, and one wake-up takes everything that is ready.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

READY_MAX = 64


class Watcher:
    """Calls back while a descriptor is readable."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._called: dict[int, Callable[[], None]] = {}
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._ready)

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        """Calls `call` whenever `fd` is readable or hung up."""
        self._called[fd] = call
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Must come before close: a child between vfork and exec holds a copy that would keep firing."""
        if self._called.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Ends it."""
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _ready(self) -> None:
        ready = [(fd, self._called[fd]) for fd, _ in self._epoll.poll(0, READY_MAX)]
        for fd, call in ready:
            # An earlier call of this round may have forgotten it, and another file may have its number by now.
            if self._called.get(fd) is call:
                call()
