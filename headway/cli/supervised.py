"""A command under the supervisor of `headway dev`: `python -m headway.cli.supervised PARENT_PID COMMAND [OPTION ...]`.

The promise: it never outlives the supervisor, also when that is killed -9. It imports what it will need while
the database still starts, then waits on stdin for its environment (one line of JSON; a secret in `argv` would
show in `ps`) and becomes `headway COMMAND`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
_NEEDED = {  # 0.4 s of imports each, while the database needs as long to start
    "server": ("headway.app.server", "headway.cli.server"),
    "agent": ("headway.app", "headway.agent.agent", "headway.cli.agent"),
}


def main(parent: int, arguments: list[str]) -> None:
    """Prepares, waits for the word, and runs the command."""
    die_with(parent)
    # structlog loads rich wherever it finds it: 5 MB and 0.1 s of each process, for tracebacks in colour.
    sys.modules.setdefault("rich", None)  # pyright: ignore[reportArgumentType]
    for module in _NEEDED[arguments[0]]:
        importlib.import_module(module)
    from headway.cli import main as command_line

    line = sys.stdin.readline()
    if not line:
        sys.exit("the supervisor ended before this process was needed")
    os.environ.update(json.loads(line))
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    command_line(arguments)


def die_with(parent: int) -> None:
    """Has the kernel kill this process when `parent` ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:  # it was quicker
        sys.exit("the supervisor is gone")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
