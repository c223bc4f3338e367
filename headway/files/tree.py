"""What is in a folder, looked at without following anything that leads out of it.

The promise: every step goes from a directory that is held open to a name in it, and no link is followed, so whoever
owns the folder can put what they like into it, and change it meanwhile: nothing outside of it is opened, no pipe or
device is waited for. What is not taken is listed with its reason.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

DEPTH_MAX = 64
PATH_BYTES_MAX = 1024
LEFT_OUT_MAX = 100
"""How many of those that are left out are named."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Limits(NamedTuple):
    """How much a folder may hold: its bytes, and its files, links and directories."""

    size: int
    entries: int


class Entry(NamedTuple):
    """A file, a directory or a link of a folder; its path begins there and has slashes."""

    path: str
    kind: Literal["file", "directory", "link"]
    size: int = 0
    is_program: bool = False
    mtime: int = 0
    target: str = ""
    identity: tuple[int, int] = (0, 0)
    """Device and inode of a file when it was looked at."""


class LeftOut(NamedTuple):
    """What was not taken, and why."""

    path: str
    why: str


class Survey(NamedTuple):
    """What a folder holds, by path, and what of it was not taken; of the latter the first, and how many in all."""

    entries: list[Entry]
    left_out: list[LeftOut]
    left_out_count: int


class Rules(NamedTuple):
    """What is taken of a folder."""

    limits: Limits
    links: bool = True
    """Whether links are taken that lead to somewhere in the folder; all others never are."""
    owner: int | None = None
    """Whose files may have further names elsewhere; None: anybody's. A stranger's file with a second name may be one
    that the owner of the folder could not have read."""
    ignored: Callable[[str, bool], bool] = lambda path, is_directory: False
    """Whether a path is passed over, with everything below it when it is a directory."""


def survey(root: Path | str, rules: Rules) -> Survey:
    """Looks a folder through."""
    looking = _Looking(rules)
    fd = os.open(root, DIRECTORY)
    try:
        looking.look(fd, "", 0)
    finally:
        os.close(fd)
    return Survey(looking.entries, looking.left_out, looking.left_out_count)


def opened(root: int, path: str, flags: int) -> int:
    """Opens what is at a path below an open directory, through directories only."""
    *parents, name = path.split("/")
    held = os.dup(root)
    try:
        for parent in parents:
            below = os.open(parent, DIRECTORY, dir_fd=held)
            os.close(held)
            held = below
        return os.open(name, flags, dir_fd=held)
    finally:
        os.close(held)


def entered(path: str, within: int | None, *, to_change: bool = False) -> int:
    """Opens a directory, also one that its owner, who is our own user, has shut: then it is open from now on. -1 when
    it is none or gone."""
    try:
        fd = os.open(path, DIRECTORY, dir_fd=within)
        if not to_change or os.geteuid() == 0 or os.fstat(fd).st_mode & stat.S_IRWXU == stat.S_IRWXU:
            return fd
        os.close(fd)
    except PermissionError:
        pass
    except OSError:
        return -1
    with contextlib.suppress(OSError):
        shut = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
        try:
            os.chmod(f"/proc/self/fd/{shut}", 0o700)
            return os.open(path, DIRECTORY, dir_fd=within)
        finally:
            os.close(shut)
    return -1


def leads_outside(path: str, target: str) -> bool:
    """Whether a link at a path leads out of its folder, whatever else is there."""
    if target.startswith("/") or not target:
        return True
    # Each step up is counted before what follows: `a/../../b` may go another way than it reads when `a` is a link.
    depth = path.count("/")
    for step in target.split("/"):
        depth += -1 if step == ".." else 0 if step in ("", ".") else 1
        if depth < 0:
            return True
    return ".." in target.split("/") and not _ups_first(target)


def _ups_first(target: str) -> bool:
    """Whether all its `..` come before any name: then no link on the way can bend it."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    names = [number for number, step in enumerate(steps) if step != ".."]
    return not names or all(step != ".." for step in steps[names[0] :])


class _Looking:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._room = rules.limits.size
        self.entries: list[Entry] = []
        self.left_out: list[LeftOut] = []
        self.left_out_count = 0

    def look(self, fd: int, prefix: str, depth: int) -> None:
        """Takes in what is in an open directory, in the order of names."""
        for name, path in self._named(fd, prefix):
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError as fault:
                self._leave(path, f"it cannot be looked at: {fault.strerror}")
                continue
            is_directory = stat.S_ISDIR(found.st_mode)
            if self._rules.ignored(path, is_directory):
                continue
            if len(self.entries) >= self._rules.limits.entries:
                self._leave(path, f"there are more than {self._rules.limits.entries} files")
            elif is_directory:
                self._enter(fd, name, path, depth)
            elif stat.S_ISREG(found.st_mode):
                self._take_file(path, found)
            elif stat.S_ISLNK(found.st_mode):
                self._take_link(fd, name, path)
            else:
                self._leave(path, "it is neither a file nor a directory")

    def _named(self, fd: int, prefix: str) -> Iterator[tuple[str, str]]:
        for name in sorted(os.listdir(fd)):
            path = prefix + name
            try:
                size = len(path.encode())
            except UnicodeEncodeError:
                self._leave(path.encode(errors="surrogateescape").decode(errors="replace"), "its name is not UTF-8")
                continue
            if size > PATH_BYTES_MAX:
                self._leave(path[:100] + "…", f"its path is longer than {PATH_BYTES_MAX} bytes")
            else:
                yield name, path

    def _enter(self, fd: int, name: str, path: str, depth: int) -> None:
        if depth == DEPTH_MAX:
            self._leave(path, f"it is deeper than {DEPTH_MAX} directories")
            return
        try:
            below = os.open(name, DIRECTORY, dir_fd=fd)
        except OSError as fault:
            self._leave(path, f"it cannot be opened: {fault.strerror}")
            return
        try:
            self.entries.append(Entry(path, "directory", mtime=int(os.fstat(below).st_mtime)))
            self.look(below, path + "/", depth + 1)
        finally:
            os.close(below)

    def _take_file(self, path: str, found: os.stat_result) -> None:
        if found.st_nlink > 1 and self._rules.owner not in (None, found.st_uid):
            self._leave(path, "it is a hard link to a file of somebody else")
        elif found.st_size > self._room:
            self._leave(path, f"with it, there would be more than {self._rules.limits.size} bytes")
        else:
            self._room -= found.st_size
            identity = (found.st_dev, found.st_ino)
            is_program = bool(found.st_mode & 0o111)
            self.entries.append(Entry(path, "file", found.st_size, is_program, int(found.st_mtime), identity=identity))

    def _take_link(self, fd: int, name: str, path: str) -> None:
        try:
            target = os.readlink(name, dir_fd=fd)
            target.encode()
        except (OSError, UnicodeEncodeError):
            self._leave(path, "it is a link that cannot be read")
            return
        if not self._rules.links:
            self._leave(path, "it is a symbolic link, and those are not followed")
        elif leads_outside(path, target) or len(target) > PATH_BYTES_MAX:
            self._leave(path, f"it is a link that leads out of the folder: {posixpath.normpath(target)[:100]}")
        else:
            self.entries.append(Entry(path, "link", target=target))

    def _leave(self, path: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < LEFT_OUT_MAX:
            self.left_out.append(LeftOut(path, why))
