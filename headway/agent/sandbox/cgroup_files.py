"""The files of one control group, read and written by controller and name.

Opening such a file and closing it again costs the kernel eight times what reading it does. So a group that serves one
attempt after the other keeps its files open; how many groups may is for their owner to say (see groups.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

READ_BYTES = 65536


class Files:
    """What there is of a group in each hierarchy."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._places = places
        self._open: dict[tuple[str, str, int], int] | None = None

    def __contains__(self, controller: str) -> bool:
        return controller in self._places

    @property
    def are_kept(self) -> bool:
        """Whether files stay open once they were needed."""
        return self._open is not None

    def keep(self) -> None:
        """From now on they stay open."""
        if self._open is None:
            self._open = {}

    def close(self) -> None:
        """They are not kept any more."""
        kept, self._open = self._open, None
        for descriptor in (kept or {}).values():
            os.close(descriptor)

    def read(self, controller: str, name: str) -> bytes:
        """What the kernel says now."""
        if self._open is None:
            return read(f"{self._places[controller]}/{name}")
        return os.pread(self._kept(controller, name, os.O_RDONLY), READ_BYTES, 0)

    def write(self, controller: str, name: str, body: bytes) -> None:
        """Tells the kernel."""
        if self._open is None:
            write(f"{self._places[controller]}/{name}", body)
        else:
            os.write(self._kept(controller, name, os.O_WRONLY), body)

    def try_write(self, controller: str, name: str, body: bytes) -> bool:
        """Tells it; whether it listened."""
        try:
            self.write(controller, name, body)
        except OSError:
            return False
        return True

    def pairs(self, controller: str, name: str) -> dict[str, int]:
        """What a file of `name number` lines says; nothing when there is none."""
        try:
            lines = (line.split() for line in self.read(controller, name).decode().splitlines())
            return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}
        except OSError:
            return {}

    def _kept(self, controller: str, name: str, way: int) -> int:
        assert self._open is not None
        key = (controller, name, way)
        descriptor = self._open.get(key)
        if descriptor is None:
            descriptor = self._open[key] = os.open(f"{self._places[controller]}/{name}", way | os.O_CLOEXEC)
        return descriptor


def read(path: str) -> bytes:
    """A small file, opened for it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, READ_BYTES)
    finally:
        os.close(fd)


def write(path: str, body: bytes) -> None:
    """One write to a file that is there."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, body)
    finally:
        os.close(fd)


def try_write(path: str, body: bytes) -> bool:
    """The same; whether it could be written."""
    try:
        write(path, body)
    except OSError:
        return False
    return True
