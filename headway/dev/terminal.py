"""Whether the terminal is still there.

SIGHUP tells the leader of a session, mostly a shell, which tells its jobs. In `ssh -t host make run` the leader is
make, which tells nobody and waits for us: without a look of our own everything would go on, unseen, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Callable


def when_closed(descriptor: int, tell: Callable[[], None]) -> None:
    """Has the running loop call `tell` once the terminal behind a descriptor is closed, if we are in its foreground:
    who was put into the background, or into a session of its own, is to stay."""
    try:
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            return
    except OSError:  # no terminal, or not ours
        return
    loop = asyncio.get_running_loop()
    looks = select.poll()
    looks.register(descriptor, 0)  # to hang up is always told, and nothing that is typed

    def wait() -> None:
        looks.poll()
        with contextlib.suppress(RuntimeError):  # it is over anyway
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=wait, name="terminal", daemon=True).start()
