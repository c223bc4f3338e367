"""A directory as a root: names are followed in it as a process would that is shut in there, and never lead out.

The promise: whatever the names and the symbolic links in it say, nothing outside of it is opened, made or removed.
Links are read here and never followed by the kernel; `..` above the root stays at the root; a name with `..` in it
that an archive brings is refused by whoever reads archives. It holds while nobody else changes the tree: an image is
unpacked in a directory of its own, closed to others.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

DEPTH_MAX = 200
"""How deep a directory may be, by whatever way one gets there."""
LINKS_MAX = 40
"""As the kernel: more symbolic links than this in one name are a loop."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LedAstray(OSError):
    """A name leads nowhere: through a loop of links, or through something that is no directory."""


class Inside:
    """A tree, open. One parent directory is remembered, for archives go through theirs in order."""

    def __init__(self, root: str) -> None:
        self._root = os.open(root, _DIRECTORY)
        self._last: tuple[tuple[str, ...], int] | None = None

    def close(self) -> None:
        """Lets go of it."""
        self.forget()
        os.close(self._root)

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parent(self, parts: Sequence[str], *, make: bool = False) -> int:
        """A descriptor of the directory that the last of `parts` is in; it stays ours. `make`: what is missing."""
        above = tuple(parts[:-1])
        if self._last is None or self._last[0] != above:
            self.forget()
            self._last = (above, self._walk(above, make=make))
        return self._last[1]

    def forget(self) -> None:
        """Something was removed: what was remembered may be gone."""
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def remove(self, parts: Sequence[str]) -> None:
        """Removes what a name means, with all that is in it; a link itself and not what it means."""
        parent = self.parent(parts)
        _remove(parent, parts[-1])
        self.forget()

    def read(self, name: str, bytes_max: int) -> bytes:
        """The start of a file, links followed inside; raises OSError when it is none."""
        parts = name.split("/")
        for _ in range(LINKS_MAX):
            parent = self._walk(parts[:-1], make=False)
            try:
                if not stat.S_ISLNK(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                    return _start_of(parent, parts[-1], bytes_max)
                target = os.readlink(parts[-1], dir_fd=parent).split("/")
            finally:
                os.close(parent)
            parts = target if target[0] == "" else [*parts[:-1], *target]
        raise LedAstray(f"{name} leads through too many links")

    def _walk(self, parts: Sequence[str], *, make: bool) -> int:
        """The directory that `parts` name, opened. A stack of open directories is what `..` goes back on."""
        left, links = list(reversed(parts)), 0
        stack = [os.dup(self._root)]
        try:
            while left:
                part = left.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    if len(stack) > 1:
                        os.close(stack.pop())
                    continue
                opened = _opened(stack[-1], part, make=make)
                if opened is not None:
                    stack.append(opened)
                    if len(stack) > DEPTH_MAX:
                        raise LedAstray(f"a directory is deeper than {DEPTH_MAX}")
                    continue
                links += 1
                if links > LINKS_MAX:
                    raise LedAstray(f"{'/'.join(parts)} leads through too many links")
                target = os.readlink(part, dir_fd=stack[-1])
                if target.startswith("/"):
                    while len(stack) > 1:
                        os.close(stack.pop())
                left += reversed(target.split("/"))
            return stack.pop()
        finally:
            for fd in stack:
                os.close(fd)


def _opened(parent: int, name: str, *, make: bool) -> int | None:
    """A directory in an open one; None when the name is a symbolic link."""
    for may_make in (make, False):
        try:
            return os.open(name, _DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            if not may_make:
                raise
            os.mkdir(name, 0o755, dir_fd=parent)
            os.chmod(name, 0o755, dir_fd=parent)
        except OSError:
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                return None
            raise LedAstray(f"{name} is no directory") from None
    raise AssertionError("what was made is there")


def _start_of(parent: int, name: str, bytes_max: int) -> bytes:
    found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    with os.fdopen(found, "rb") as file:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise LedAstray(f"{name} is no file")
        return file.read(bytes_max)


def _remove(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError:  # a directory: EISDIR or EPERM
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            for entry in os.listdir(fd):
                _remove(fd, entry)
        finally:
            os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=parent)
