"""A shelf in a directory of this machine, or of a file system that all servers share.

An object is written beside its place, synced, and renamed to it; then the directory is synced. A crash leaves either
nothing or a `.part` file that `remove` takes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

from headway.store.shelf import PIECE_BYTES, NoRoom, NotThere, ShelfFault

_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


class DirectoryShelf:
    """Objects as files below a root that only the server's user may enter."""

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise ShelfFault(f"the directory {root} for blobs cannot be made: {fault.strerror}") from None

    async def write(self, place: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores what comes."""
        path = self._root / place
        part = path.with_name(path.name + ".part")
        try:
            fd = await asyncio.to_thread(_created, part)
        except OSError as fault:
            raise _refused(fault) from None
        try:
            async for piece in pieces:
                await asyncio.to_thread(_write_all, fd, piece)
            await asyncio.to_thread(_finish, fd, part, path)
        except BaseException as fault:
            with contextlib.suppress(OSError):
                part.unlink()
            if isinstance(fault, OSError):
                raise _refused(fault) from None
            raise
        finally:
            os.close(fd)

    async def read(self, place: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `end`."""
        try:
            fd = os.open(self._root / place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise NotThere(f"{place} is not in {self._root}; servers of one database must share it") from None
        except OSError as fault:
            raise ShelfFault(f"{self._root / place} cannot be read: {fault.strerror}") from None
        try:
            while start < end:
                try:
                    piece = await asyncio.to_thread(os.pread, fd, min(PIECE_BYTES, end - start), start)
                except OSError as fault:
                    raise ShelfFault(f"{self._root / place} cannot be read: {fault.strerror}") from None
                if not piece:
                    raise ShelfFault(f"{self._root / place} is shorter than it was; restore it from a backup")
                start += len(piece)
                yield piece
        finally:
            os.close(fd)

    async def remove(self, place: str) -> None:
        """Takes an object away."""
        path = self._root / place
        try:
            await asyncio.to_thread(_remove, path)
        except OSError as fault:
            raise ShelfFault(f"{path} cannot be removed: {fault.strerror}") from None


def _created(part: Path) -> int:
    part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(part, _WRITE, 0o600)


def _write_all(fd: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]


def _finish(fd: int, part: Path, path: Path) -> None:
    os.fsync(fd)
    os.replace(part, path)
    for directory in (path.parent, path.parent.parent):  # the second has the name of the first, which may be new
        above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".part").unlink(missing_ok=True)


def _refused(fault: OSError) -> ShelfFault:
    kind = NoRoom if fault.errno in _FULL else ShelfFault
    return kind(f"the blob cannot be written: {fault.strerror}")
