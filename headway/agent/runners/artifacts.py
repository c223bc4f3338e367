"""What an attempt leaves in $HEADWAY_ARTIFACTS, collected when all of it is dead and stored before its end is told.

The directory is the task's: whatever is in it was put there by somebody we do not trust. Nothing is followed out of it
(headway/files/tree.py), and what cannot be taken is listed with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

import msgspec

from headway.agent.blobs import Blobs
from headway.agent.plain import plain
from headway.agent.runners.directories import artifacts_of
from headway.agent.runners.output import OUTPUT
from headway.files.packing import Packing
from headway.files.tree import DIRECTORY, Entry, Limits, Rules, Survey, survey
from headway.files.tree import LeftOut as Left
from headway.wire import ArtifactFile, Artifacts, Ending, Key, LeftOut, Manifest

ARTIFACTS_BYTES_MAX = 4 * 1024**3
ARTIFACTS_MAX = 10_000
"""Files and directories of one attempt."""
MANIFEST_BYTES_MAX = 2 * 1024 * 1024
_ENTRY_BYTES = 32
_RULES = Rules(Limits(ARTIFACTS_BYTES_MAX, ARTIFACTS_MAX), links=False)


def are_there(directory: str) -> bool:
    """Whether there is anything to collect. A directory that the task took away or replaced holds nothing."""
    try:
        fd = os.open(artifacts_of(directory), DIRECTORY)
    except OSError:
        return False
    try:
        return bool(os.listdir(fd))
    finally:
        os.close(fd)


def forget_result(directory: str) -> None:
    """A result is what the task writes, not what it brought along."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}/{OUTPUT}")


async def added(ending: Ending, blobs: Blobs, key: Key, directory: str, owner: int) -> Ending:
    """The ending with what is there, stored; raises TransferFault, packing.Changed, OSError."""
    return msgspec.structs.replace(ending, artifacts=await _collected(blobs, key, directory, owner))


async def _collected(blobs: Blobs, key: Key, directory: str, owner: int) -> Artifacts:
    root = artifacts_of(directory)
    found = await asyncio.to_thread(survey, root, _RULES._replace(owner=owner))
    taken = _within_manifest(found)
    packing = Packing(root, taken.entries, keeps_times=True)
    files = [ArtifactFile(entry.path, entry.size, at) for entry, at in packing.offsets()]
    said = await blobs.store(key, packing.pieces)
    left_out = [LeftOut(plain(one.path), one.why) for one in taken.left_out]
    return Artifacts(said.digest, said.size, Manifest(files, left_out, taken.left_out_count))


def _within_manifest(found: Survey) -> Survey:
    """As many as their list may hold."""
    entries = list(_first(found.entries))
    more = len(found.entries) - len(entries)
    if not more:
        return found
    first = found.entries[len(entries)].path
    why = f"with it, the list of files would be longer than {MANIFEST_BYTES_MAX} bytes"
    return Survey(entries, [*found.left_out, Left(first, why)], found.left_out_count + more)


def _first(entries: list[Entry]) -> Iterator[Entry]:
    size = 0
    for entry in entries:
        size += len(entry.path.encode()) + _ENTRY_BYTES
        if size > MANIFEST_BYTES_MAX:
            return
        yield entry
