"""Whether anything was forked since a process was: nearly always nothing was, and then it has no children to look for.

The last word of /proc/loadavg is the number that the kernel gave out last in our namespace of processes. A machine on
which it says something else is asked in other ways, which cost ten times as much.
"""

from __future__ import annotations

import os

FILE = "/proc/loadavg"
READ_BYTES = 256


class Forks:
    """The kernel's count of them."""

    def __init__(self, file: str = FILE) -> None:
        self._file = os.open(file, os.O_RDONLY | os.O_CLOEXEC) if os.path.exists(file) else -1

    def last_was(self, pid: int) -> bool:
        """Whether a process was the last that was made on this machine, so that it has made none."""
        return self._file >= 0 and os.pread(self._file, READ_BYTES, 0).split()[-1:] == [b"%d" % pid]

    def close(self) -> None:
        """Asks no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
