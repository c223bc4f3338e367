"""Removes what anybody made: a folder with all there is in it, however deep, wide or shut it is.

The promise: nothing is followed out of it, and neither depth nor the length of paths is a way to stay. Directories that
are found within directories are first moved up, so nothing is ever looked for deeper than two steps down.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from itertools import count

from headway.files.tree import entered

NAME = ".headway-removed-"


def remove(path: str | os.PathLike[str]) -> None:
    """Removes a folder, if it is there; what cannot be removed stays. Nobody may write into it meanwhile."""
    top = entered(os.fspath(path), None, to_change=True)
    if top >= 0:
        try:
            _empty(top)
        finally:
            os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _empty(top: int) -> None:
    numbers = count()
    before: set[str] | None = None
    while (names := set(os.listdir(top))) and names != before:
        before = names
        for name in names:
            if not _unlinked(name, top):
                _undone(name, top, numbers)


def _undone(name: str, top: int, numbers: Iterator[int]) -> None:
    """Removes a directory, and moves those in it up."""
    fd = entered(name, top, to_change=True)
    if fd >= 0:
        try:
            for below in os.listdir(fd):
                if not _unlinked(below, fd):
                    _move_up(below, fd, top, numbers)
        finally:
            os.close(fd)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)


def _move_up(name: str, fd: int, top: int, numbers: Iterator[int]) -> None:
    """A directory whose owner has shut it cannot be moved by them: entering it opens it."""
    shut = entered(name, fd, to_change=True)
    if shut >= 0:
        os.close(shut)
    for number in numbers:
        try:
            os.rename(name, f"{NAME}{number}", src_dir_fd=fd, dst_dir_fd=top)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # of this name there was one
                continue
        return


def _unlinked(name: str, fd: int) -> bool:
    """Whether it was no directory; then it is gone, if it can be."""
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        return False
    except OSError:
        return True
    return True
