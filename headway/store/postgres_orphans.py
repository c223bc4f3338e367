"""What a killed PostgreSQL, or a killed supervisor, leaves behind in a cluster, and how it is ended.

Only the holder of the data directory's lock may call this: whoever works in the cluster counts as an orphan.
"""

import asyncio
import os
import signal
from pathlib import Path

POLL_SECONDS = 0.01
EVICT_SECONDS = 10.0


async def evict(cluster: Path) -> None:
    """Return when nobody works in the cluster any more.

    The backends of a killed postmaster go by themselves in a moment; an orphaned postmaster is told to.
    """
    note = cluster / "postmaster.pid"
    if not note.exists():
        return
    clock = asyncio.get_running_loop().time
    began = clock()
    while orphans := _processes_in(cluster):
        late = clock() - began > EVICT_SECONDS
        for pid in orphans if late else orphans & {_first_number(note)}:
            _signal(pid, signal.SIGKILL if late else signal.SIGQUIT)
        await asyncio.sleep(POLL_SECONDS)
    if _belongs_to_a_stranger(_first_number(note), cluster):
        note.unlink(missing_ok=True)


def _processes_in(cluster: Path) -> set[int]:
    """Every process of PostgreSQL works in its cluster's directory, and nobody else has a reason to."""
    return {int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _works_in(entry, cluster)}


def _works_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").samefile(directory) and os.readlink(process / "exe").endswith("/postgres")
    except OSError:  # ended meanwhile, or another user's
        return False


def _belongs_to_a_stranger(pid: int, cluster: Path) -> bool:
    """The pid lives but is not PostgreSQL here: it was used again, as in every restarted container.
    PostgreSQL itself cannot tell, and would refuse to start for ever."""
    process = Path("/proc") / str(pid)
    try:
        return pid > 0 and not (process / "cwd").samefile(cluster)
    except OSError:
        return False


def _first_number(note: Path) -> int:
    try:
        return int(note.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return 0


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
