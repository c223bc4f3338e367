"""A folder as one stream of bytes: a tar archive that is the same for the same files, wherever and whenever it is made.

Sorted by path, without owners, times (unless they are asked for) or anything of the machine. Files are read as they are
packed; one that changed since the survey ends the packing, for its size is said already.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from headway.files.tree import DIRECTORY, REGULAR, Entry, opened

PIECE_BYTES = 256 * 1024
BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * BLOCK)


class Changed(Exception):
    """A file changed while it was packed; the message says which."""


class Packing:
    """The archive of some entries of a folder; it can be read several times."""

    def __init__(self, root: Path | str, entries: Iterable[Entry], *, keeps_times: bool = False) -> None:
        self._root = root
        self._parts = [(entry, _header(entry, keeps_times)) for entry in entries]
        self.size = sum(len(header) + _padded(entry.size) for entry, header in self._parts) + len(_END)

    def offsets(self) -> Iterator[tuple[Entry, int]]:
        """Where in the archive the body of each file begins."""
        at = 0
        for entry, header in self._parts:
            at += len(header)
            if entry.kind == "file":
                yield entry, at
                at += _padded(entry.size)

    def pieces(self) -> Iterator[bytes]:
        """The archive, piece by piece."""
        root = os.open(self._root, DIRECTORY)
        try:
            for entry, header in self._parts:
                if entry.kind != "file":
                    yield header
                    continue
                yield from _file(root, entry, header)
            yield _END
        finally:
            os.close(root)


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same as gzip, without name or time."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    for piece in pieces:
        if out := packer.compress(piece):
            yield out
    yield packer.flush()


def _header(entry: Entry, keeps_times: bool) -> bytes:
    info = tarfile.TarInfo(entry.path)
    info.mtime = entry.mtime if keeps_times else 0
    info.mode = 0o755 if entry.is_program or entry.kind == "directory" else 0o644
    if entry.kind == "directory":
        info.type = tarfile.DIRTYPE
    elif entry.kind == "link":
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
    else:
        info.size = entry.size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _file(root: int, entry: Entry, header: bytes) -> Iterator[bytes]:
    try:
        fd = opened(root, entry.path, REGULAR)
    except OSError as fault:
        raise Changed(f"{entry.path}: {fault.strerror}") from None
    with os.fdopen(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != entry.identity:
            raise Changed(f"{entry.path}: it is another file by now")
        yield header
        left = entry.size
        while left:
            piece = file.read(min(left, PIECE_BYTES))
            if not piece:
                raise Changed(f"{entry.path}: it is shorter by now")
            left -= len(piece)
            yield piece
    yield bytes(_padded(entry.size) - entry.size)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
