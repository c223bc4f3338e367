"""An archive made by anybody, unpacked where it can do no harm.

The promise: nothing is written, linked or changed outside the folder; nothing is made but plain files, directories and
links that stay inside; no more than the limits say is written or held in memory, whatever the archive claims. It reads
tar as GNU tar, bsdtar and Python write it, plain or gzip, as a stream; what it does not know it refuses.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headway.files.tree import DEPTH_MAX, DIRECTORY, PATH_BYTES_MAX, Limits, leads_outside

BLOCK = 512
PIECE_BYTES = 256 * 1024
EXTENSION_BYTES_MAX = 64 * 1024
"""A name, or what is said of a file beyond its header."""
_FILE, _DIRECTORY, _LINK = (b"0", b"\0", b"7"), b"5", b"2"
_KINDS = {b"1": "a hard link", b"3": "a device", b"4": "a device", b"6": "a pipe", b"S": "a sparse file"}
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Unsafe(Exception):
    """The archive is broken, too large or holds what may not be unpacked; the message says what."""


class _Member(NamedTuple):
    path: str
    kind: bytes
    mode: int
    size: int
    mtime: int
    target: str


def unpack(pieces: Iterable[bytes], root: Path | str, limits: Limits, *, owner: tuple[int, int] | None = None) -> int:
    """Unpacks an archive into a folder that is there; answers how many bytes the files have. What is made belongs to
    `owner` (user, group), if one is said."""
    fd = os.open(root, DIRECTORY)
    try:
        return _Unpacking(_Reader(_plain(pieces)), fd, limits, owner).run()
    finally:
        os.close(fd)


def unpack_file(archive: Path | str, root: Path | str, limits: Limits, *, owner: tuple[int, int] | None = None) -> int:
    """Unpacks an archive that is a file."""
    with open(archive, "rb", buffering=0) as file:
        return unpack(iter(lambda: file.read(PIECE_BYTES), b""), root, limits, owner=owner)


def _plain(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes, unzipped when they are zipped, a bounded piece at a time."""
    rest = iter(pieces)
    first = next(rest, b"")
    while len(first) < 2 and (more := next(rest, b"")):
        first += more
    if first[:2] != b"\x1f\x8b":
        yield first
        yield from rest
        return
    opener = zlib.decompressobj(31)
    try:
        for piece in _chain(first, rest):
            packed = piece
            while packed and not opener.eof:
                yield opener.decompress(packed, PIECE_BYTES)
                packed = opener.unconsumed_tail
    except zlib.error as fault:
        raise Unsafe(f"the archive is damaged: {fault}") from None
    if not opener.eof:
        raise Unsafe("the archive ends in the middle")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Reader:
    """Takes bytes off a stream by number."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held: bytes = b""
        self._at = 0

    def some(self, most: int) -> bytes:
        """Up to so many bytes; none at the end."""
        while self._at == len(self._held):
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._held, self._at = piece, 0
        out = self._held[self._at : self._at + most]
        self._at += len(out)
        return out

    def exactly(self, count: int) -> bytes:
        """So many bytes."""
        parts: list[bytes] = []
        while count:
            part = self.some(count)
            if not part:
                raise Unsafe("the archive ends in the middle")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def skip_padding(self, size: int) -> None:
        """What fills the last block of a body."""
        self.exactly(-size % BLOCK)


class _Unpacking:
    def __init__(self, reader: _Reader, root: int, limits: Limits, owner: tuple[int, int] | None) -> None:
        self._reader = reader
        self._root = root
        self._limits = limits
        self._owner = owner
        self._entries = 0
        self._size = 0
        self._links: list[_Member] = []
        self._times: list[tuple[str, int]] = []

    def run(self) -> int:
        for member in self._members():
            self._entries += 1
            if self._entries > self._limits.entries:
                raise Unsafe(f"the archive holds more than {self._limits.entries} files")
            self._take(member)
        for link in self._links:  # at the end: nothing is ever written through one
            self._within(link.path, lambda name, fd, link=link: self._link(link, name, fd))
        for path, mtime in reversed(self._times):
            self._within(path, lambda name, fd, mtime=mtime: _set_time(name, fd, mtime))
        return self._size

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _members(self) -> Iterator[_Member]:
        said: dict[str, str] = {}
        extensions = 0
        while True:
            header = self._reader.exactly(BLOCK)
            if not header.strip(b"\0"):
                return
            _check_sum(header)
            kind, size = header[156:157], _number(header[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                extensions += 1
                if size > EXTENSION_BYTES_MAX or extensions > self._limits.entries * 4:
                    raise Unsafe("what the archive says of a file is too long")
                body = self._reader.exactly(size)
                self._reader.skip_padding(size)
                if kind != b"g":  # nothing that holds for all files is of use here
                    said |= _extension(kind, body)
                continue
            yield _member(header, said, size)
            said = {}

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, member: _Member) -> None:
        if member.kind in _FILE and not member.path.endswith("/"):
            self._size += member.size
            if self._size > self._limits.size:
                raise Unsafe(f"the archive holds more than {self._limits.size} bytes")
            self._within(member.path, lambda name, fd: self._file(member, name, fd))
        elif member.kind == _DIRECTORY or member.kind in _FILE:
            if not _steps(member.path, may_be_root=True):
                return  # the folder itself, as `tar -C folder .` packs it
            self._within(member.path, self._directory)
            self._times.append((member.path, member.mtime))
        elif member.kind == _LINK:
            if leads_outside("/".join(_steps(member.path)), member.target):
                raise Unsafe(f"{member.path} is a link that leads out of the folder")
            self._links.append(member)
        else:
            what = _KINDS.get(member.kind, "of a kind that is not known here")
            raise Unsafe(f"{member.path} is {what}; only files, directories and links within are unpacked")

    def _within(self, path: str, act: Callable[[str, int], None]) -> None:
        """Acts on a name in its directory, which is made when it is not there and is never reached by a link."""
        *parents, name = _steps(path)
        held = os.dup(self._root)
        try:
            for parent in parents:
                self._directory(parent, held)
                below = os.open(parent, DIRECTORY, dir_fd=held)
                os.close(held)
                held = below
            act(name, held)
        except OSError as fault:
            if fault.errno in _OURS:
                raise
            raise Unsafe(f"{path} cannot be made where something else is: {fault.strerror}") from None
        finally:
            os.close(held)

    def _directory(self, name: str, fd: int) -> None:
        try:
            os.mkdir(name, 0o755, dir_fd=fd)
        except FileExistsError:
            os.close(os.open(name, DIRECTORY, dir_fd=fd))
            return
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=fd, follow_symlinks=False)

    def _file(self, member: _Member, name: str, fd: int) -> None:
        out = os.open(name, _WRITE, 0o600, dir_fd=fd)
        with os.fdopen(out, "wb", buffering=0) as file:
            left = member.size
            while left:
                piece = self._reader.some(min(left, PIECE_BYTES))
                if not piece:
                    raise Unsafe("the archive ends in the middle")
                written = file.write(piece)
                while written < len(piece):
                    written += file.write(piece[written:])
                left -= len(piece)
            if self._owner is not None:
                os.fchown(out, *self._owner)
            os.fchmod(out, 0o755 if member.mode & 0o111 else 0o644)  # neither setuid nor anything else
            os.utime(out, (member.mtime, member.mtime))
        self._reader.skip_padding(member.size)

    def _link(self, link: _Member, name: str, fd: int) -> None:
        os.symlink(link.target, name, dir_fd=fd)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=fd, follow_symlinks=False)


_OURS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO,
        errno.EACCES, errno.EPERM, errno.EROFS,
    }
)  # fmt: skip
"""No room, a broken disk, or a folder that is not ours to write: not the archive's fault."""


def _set_time(name: str, fd: int, mtime: int) -> None:
    os.utime(name, (mtime, mtime), dir_fd=fd, follow_symlinks=False)


def _steps(path: str, *, may_be_root: bool = False) -> list[str]:
    """The names on the way to a path, if it may be unpacked."""
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if path.startswith("/") or ".." in steps or not (steps or may_be_root):
        raise Unsafe(f"{path[:100]!r} is not a path within the folder")
    if len(steps) > DEPTH_MAX or len(path.encode()) > PATH_BYTES_MAX:
        raise Unsafe(f"the path {path[:100]!r}… is too long")
    return steps


def _member(header: bytes, said: dict[str, str], size: int) -> _Member:
    path = _text(header[0:100])
    if header[257:262] == b"ustar" and header[345:500].strip(b"\0") and header[257:265] != b"ustar  \0":
        path = f"{_text(header[345:500])}/{path}"
    path = said.get("path", path)
    target = said.get("linkpath", _text(header[157:257]))
    if "size" in said:
        size = _decimal(said["size"])
    if any(key.startswith("GNU.sparse") for key in said):
        raise Unsafe(f"{path[:100]} is a sparse file; pack it without --sparse")
    if "\0" in path or "\0" in target:
        raise Unsafe("a name in the archive holds a NUL")
    mtime = min(max(_number(header[136:148]), 0), 2**33)
    return _Member(path, header[156:157], _number(header[100:108]) & 0o7777, size, mtime, target)


def _extension(kind: bytes, body: bytes) -> dict[str, str]:
    if kind == b"L":
        return {"path": _text(body)}
    if kind == b"K":
        return {"linkpath": _text(body)}
    found: dict[str, str] = {}
    while body:
        length, _, _ = body.partition(b" ")
        count = _decimal(length.decode("ascii", "replace"))
        if not len(length) + 1 < count <= len(body):
            raise Unsafe("what the archive says of a file is damaged")
        key, equals, value = body[len(length) + 1 : count].partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise Unsafe("what the archive says of a file is damaged")
        found[key.decode("utf-8", "replace")] = _utf8(value[:-1])
        body = body[count:]
    return found


def _check_sum(header: bytes) -> None:
    said = _number(header[148:156])
    if said != sum(header[:148]) + 8 * 32 + sum(header[156:]):
        raise Unsafe("this is not a tar archive, or it is damaged")


def _number(field: bytes) -> int:
    if field[:1] == b"\x80":  # base 256: what does not fit into octal digits
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if text and not all(48 <= digit < 56 for digit in text):
        raise Unsafe("a number in the archive is none")
    return int(text or b"0", 8)


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Unsafe("a number in the archive is none")
    return int(text)


def _text(field: bytes) -> str:
    return _utf8(field.split(b"\0", 1)[0])


def _utf8(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise Unsafe("a name in the archive is not UTF-8") from None
