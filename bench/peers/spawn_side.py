"""The bare system call: `python -m bench.peers.spawn_side COUNT AT_ONCE` prints processes a second."""

from __future__ import annotations

import os
import sys
import time


def main(count: int, at_once: int) -> None:
    """Spawns and reaps, never more than `at_once` at a time."""
    began = time.perf_counter()
    running = 0
    for _ in range(count):
        if running == at_once:
            os.wait()
            running -= 1
        os.posix_spawn("/bin/true", ["/bin/true"], {})
        running += 1
    for _ in range(running):
        os.wait()
    print(count / (time.perf_counter() - began))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
