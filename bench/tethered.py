"""Runs a program that ends when the bench does: `python -m bench.tethered PARENT_PID PROGRAM [ARGUMENT ...]`.

The promise: no process outlives a bench that was killed -9. SIGTERM and not SIGKILL, so that what it runs can stop its
own children in order.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, words: list[str]) -> None:
    """Ties itself to its parent and becomes the program."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        sys.exit("the bench ended before this began")
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
