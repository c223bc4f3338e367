"""Where the workspaces of sandboxed tasks are: a directory that the tasks' users can reach and nobody can list.

Beside the agent's other files where every directory above lets others pass. A home of mode 0700 does not, and it is
not ours to open; then under /var/lib/headway, with a note of whose it is, so that what a removed data directory leaves
there is cleared away by the next agent.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from headway.files.removing import remove

ELSEWHERE = Path("/var/lib/headway/sandboxes")
NOTE = "data-directory"


def room_of(data_dir: Path) -> str:
    """A name for the data directory."""
    return hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]


def grounds(data_dir: Path, elsewhere: Path = ELSEWHERE) -> Path:
    """The directory for the sandboxes of the agent that owns this data directory, empty. Raises OSError."""
    place = _placed(data_dir.resolve(), "sandboxes", elsewhere)
    remove(place)
    return _made(place, data_dir)


def shelf(data_dir: Path, elsewhere: Path = ELSEWHERE) -> Path:
    """The directory for what all tasks of this agent may see, images, with what is there already. Raises OSError."""
    return _made(_placed(data_dir.resolve(), "images", elsewhere.with_name("images")), data_dir)


def _placed(data_dir: Path, name: str, elsewhere: Path) -> Path:
    if os.geteuid() != 0 or _lets_others_pass(data_dir.parent):
        if os.geteuid() == 0:
            data_dir.chmod(0o711)
        return data_dir / name
    elsewhere.mkdir(mode=0o711, parents=True, exist_ok=True)
    _clear_away(elsewhere)
    return elsewhere / room_of(data_dir)


def _made(place: Path, data_dir: Path) -> Path:
    place.mkdir(mode=0o711, exist_ok=True)
    place.chmod(0o711)
    note = place / NOTE
    note.touch(mode=0o600)
    note.write_text(str(data_dir.resolve()))
    return place


def _lets_others_pass(directory: Path) -> bool:
    return all(one.stat().st_mode & stat.S_IXOTH for one in (directory, *directory.parents))


def _clear_away(elsewhere: Path) -> None:
    """Removes what belongs to data directories that are gone."""
    for place in elsewhere.iterdir():
        try:
            owner = Path((place / NOTE).read_text())
        except OSError:
            continue
        if not owner.exists():
            remove(place)
