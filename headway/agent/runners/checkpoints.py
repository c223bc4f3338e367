"""What an attempt writes so that the next one need not begin anew: a directory that is there again where it goes on.

The directory is the task's, whatever is in it was put there by somebody we do not trust: nothing is followed out of it.
It is stored when the task leaves the word that it is complete (`.ready`, which is taken away when it is stored), and
when it leaves its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec

from headway.agent.blobs import Blobs
from headway.agent.cache import Name
from headway.files.packing import Packing
from headway.files.tree import DIRECTORY, Limits, Rules, survey
from headway.files.unpacking import unpack_file
from headway.wire import Assignment, Ending, Key

NAME = ".headway-checkpoint"
READY = ".ready"
CHECKPOINT_BYTES_MAX = 8 * 1024**3
CHECKPOINT_FILES_MAX = 200_000
_LIMITS = Limits(CHECKPOINT_BYTES_MAX, CHECKPOINT_FILES_MAX)


class TooLarge(Exception):
    """It is more than may be stored; the message says what."""


def place(directory: str) -> str:
    """Where the attempt that works in a directory writes its checkpoints."""
    return f"{directory}/{NAME}"


def make(path: str, user: int | None) -> None:
    """Makes the directory, unless it was brought along."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        if user is not None:
            os.chown(path, user, user)


async def restore(blobs: Blobs, assignment: Assignment, path: str, user: int | None) -> None:
    """Unpacks what the last attempt wrote. Raises TransferFault, Unsafe, OSError."""
    make(path, user)
    if assignment.checkpoint is None:
        return
    name = Name(assignment.tenant, assignment.checkpoint)
    archive = await blobs.borrow(name)
    try:
        await asyncio.to_thread(_unpack, archive, path, user)
    finally:
        blobs.give_back(name)


async def stored(blobs: Blobs, key: Key, path: str, owner: int) -> str:
    """Stores what is there; its digest. Raises TransferFault, packing.Changed, TooLarge, OSError."""
    rules = Rules(_LIMITS, owner=owner, ignored=_is_word)
    found = await asyncio.to_thread(survey, path, rules)
    if found.left_out:
        first = found.left_out[0]
        raise TooLarge(f"{first.path}: {first.why}; a checkpoint is stored whole or not at all")
    return (await blobs.store(key, Packing(path, found.entries).pieces)).digest


async def added(ending: Ending, blobs: Blobs, key: Key, path: str, owner: int) -> Ending:
    """The ending with what the next attempt begins from."""
    return msgspec.structs.replace(ending, checkpoint=await stored(blobs, key, path, owner))


def _is_word(path: str, _is_directory: bool) -> bool:
    return path == READY


def is_ready(path: str) -> bool:
    """Whether the task says that what is there is complete."""
    return os.path.lexists(f"{path}/{READY}")


def taken(path: str) -> None:
    """It is stored: the task may write the next one."""
    with contextlib.suppress(OSError):
        fd = os.open(path, DIRECTORY)
        try:
            os.unlink(READY, dir_fd=fd)
        finally:
            os.close(fd)


def _unpack(archive: Path, path: str, user: int | None) -> None:
    unpack_file(archive, path, _LIMITS, owner=None if user is None else (user, user))
