"""One process per data directory: whoever holds the lock may start a database in it, others learn who does.

The lock is an flock, so it ends with its holder however that ends; the pid in the file is only for people.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

LOCK_NAME = "headway.lock"


@dataclass(frozen=True, slots=True)
class Held:
    """The lock is ours until `release()` or the end of this process."""

    path: Path
    descriptor: int

    def release(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Another holder has it; `pid` is None in the moment before the holder has written it."""

    path: Path
    pid: int | None


def lock_data_dir(path: Path) -> Held | HeldBy:
    """Make `path` ours alone (and make it at all, closed to other users, when it is not there yet)."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = HeldBy(path, _pid_in(descriptor))
        os.close(descriptor)
        return holder
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return Held(path, descriptor)


def _pid_in(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


def holder_of(path: Path) -> HeldBy | None:
    """Who holds the directory now; only looks, and makes nothing."""
    try:
        descriptor = os.open(path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return HeldBy(path, _pid_in(descriptor))
    finally:
        os.close(descriptor)
    return None
