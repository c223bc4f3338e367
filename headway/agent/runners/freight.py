"""What an attempt of a process brings along and leaves: script and bundle before it starts, artifacts when it is over.

It stands still for the time that takes, and for nothing else: an attempt whose script is here and that leaves nothing
never comes by.
"""

from __future__ import annotations

import asyncio
import functools
import os

import msgspec

from headway.agent.blobs import Blobs
from headway.agent.cache import Name
from headway.agent.plain import plain
from headway.agent.runners import artifacts, checkpoints
from headway.agent.runners.attempt import Attempt, ended, faulty, not_fetched, not_kept
from headway.agent.runners.disk import allowed
from headway.agent.transfer import TransferFault
from headway.files.packing import Changed
from headway.files.tree import Limits
from headway.files.unpacking import Unsafe, unpack_file
from headway.wire import Ending, Outcome

UNPACKED_FILES_MAX = 200_000


def is_here(blobs: Blobs, attempt: Attempt) -> bool:
    """Whether it can start at once; what it needs is lent to it then."""
    if attempt.words.bundle is not None or attempt.words.checkpoint is not None:
        return False
    for name in _wanted(attempt):
        if blobs.lend(name) is None:
            return False
        attempt.lent.append(name)
    return True


async def load(blobs: Blobs, attempt: Attempt) -> Ending | None:
    """Fetches what it needs, and unpacks its bundle into its directory; its ending, if that cannot be."""
    try:
        for name in _wanted(attempt):
            await blobs.borrow(name)
            attempt.lent.append(name)
        if attempt.words.bundle is not None:
            await _unpack(blobs, attempt, attempt.words.bundle)
        if attempt.words.checkpoint is not None:
            at = checkpoints.place(attempt.directory)
            await checkpoints.restore(blobs, attempt.assignment, at, attempt.user)
    except TransferFault as fault:
        return not_fetched(attempt, fault)
    except Unsafe as fault:
        what = f"its bundle or its checkpoint cannot be unpacked: {fault}"
        return ended(attempt, Outcome.FAILED, "bundle_invalid", what)
    except OSError as fault:
        message = f"the node could not unpack its bundle: {fault.strerror or fault}; free disk there"
        return ended(attempt, Outcome.LOST, "spawn_failed", message)
    except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
        return faulty(attempt, fault)
    return None


def start_in(attempt: Attempt) -> Ending | None:
    """Sees to it that the directory is there in which it starts; its ending, if it cannot be. Nothing in a bundle leads
    out of it."""
    said = attempt.words.workdir
    if said is None:
        return None
    path = f"{attempt.directory}/{said}"
    if attempt.words.bundle is None:
        at = attempt.directory
        for step in (step for step in said.split("/") if step not in ("", ".")):
            at = f"{at}/{step}"
            os.makedirs(at, 0o700, exist_ok=True)
            if attempt.user is not None:
                os.chown(at, attempt.user, attempt.user)
    if os.path.isdir(path):
        return None
    return ended(attempt, Outcome.FAILED, "workdir_missing", f"its bundle has no directory {said}; say another workdir")


def is_left(attempt: Attempt, ending: Ending) -> bool:
    """Whether there is anything to store before its end is told."""
    return ending.outcome == Outcome.YIELDED or artifacts.are_there(attempt.directory)


async def unload(blobs: Blobs, attempt: Attempt, ending: Ending) -> Ending:
    """Stores what it left; its ending, with that."""
    owner = attempt.owner
    if ending.outcome == Outcome.YIELDED:
        try:
            at = checkpoints.place(attempt.directory)
            ending = await checkpoints.added(ending, blobs, attempt.key, at, owner)
        except (TransferFault, Changed, checkpoints.TooLarge, OSError) as fault:
            what = plain(f"its checkpoint could not be stored: {fault}; it goes on from the one before")
            ending = msgspec.structs.replace(ending, outcome=Outcome.LOST, code="checkpoint_lost", message=what)
    if not artifacts.are_there(attempt.directory):
        return ending
    try:
        return await artifacts.added(ending, blobs, attempt.key, attempt.directory, owner)
    except (TransferFault, Changed, OSError) as fault:
        return not_kept(ending, str(fault))
    except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
        return faulty(attempt, fault)


def _wanted(attempt: Attempt) -> list[Name]:
    """The blobs that it needs."""
    tenant, words = attempt.assignment.tenant, attempt.words
    return [Name(tenant, digest) for digest in (words.script, words.bundle) if digest is not None]


async def _unpack(blobs: Blobs, attempt: Attempt, bundle: str) -> None:
    size, files = allowed(attempt.assignment.needs)
    limits = Limits(size, min(files, UNPACKED_FILES_MAX))
    archive = blobs.path(Name(attempt.assignment.tenant, bundle))
    owner = None if attempt.user is None else (attempt.user, attempt.user)
    unpacking = functools.partial(unpack_file, archive, attempt.directory, limits, owner=owner)
    attempt.unpacking = asyncio.get_running_loop().run_in_executor(None, unpacking)
    await asyncio.shield(attempt.unpacking)  # a thread cannot be cancelled: its directory waits for it
    artifacts.forget_result(attempt.directory)
