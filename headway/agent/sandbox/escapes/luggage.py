"""Attacks by what a task brings along and by what it leaves: archives that unpack elsewhere, and things to be collected
that are not what they seem. The node handles both with its own rights, so each is judged by what the node did.
"""

from __future__ import annotations

import glob
import io
import tarfile
from pathlib import Path

from headway.agent.sandbox.escapes.ground import Ground
from headway.core.checkpoints import LEFT_EXIT
from headway.wire import Ending, Outcome

OUT = "headway-escaped"
_STEPS = 6
"""How deep the node's own directories are; what tasks make may have no end."""


# ── brought along ───────────────────────────────────────────────────────────────────────────────────────────────────


async def a_bundle_with_paths_out_of_it(ground: Ground) -> str:
    """Brings an archive whose files would be unpacked elsewhere."""
    for path in (f"../{OUT}", f"../../../{OUT}", f"a/../../{OUT}", f"/var/tmp/{OUT}", f"./../{OUT}"):
        if why := await _unpacked(ground, _named(path)):
            return f"{path}: {why}"
    return ""


async def a_bundle_with_links_out_of_it(ground: Ground) -> str:
    """Brings an archive with a link to a place of the node, and a file behind it."""
    for target in (str(ground.place), "..", "../..", "/", "../artifacts"):
        link = tarfile.TarInfo("door")
        link.type, link.linkname = tarfile.SYMTYPE, target
        if why := await _unpacked(ground, link, _named(f"door/{OUT}")):
            return f"a link to {target}: {why}"
    return ""


async def a_bundle_with_hard_links_and_devices(ground: Ground) -> str:
    """Brings an archive with a second name for a file of the node, with devices and a pipe."""
    for kind in (tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        member = tarfile.TarInfo(OUT)
        member.type, member.linkname, member.devmajor, member.devminor = kind, str(ground.facts["secret_file"]), 1, 1
        if why := await _unpacked(ground, member):
            return why
    return ""


async def a_bundle_with_setuid_programs(ground: Ground) -> str:
    """Brings programs that would run as somebody else."""
    program = _named("program")
    program.mode = 0o6755
    ending = await ground.run(["/bin/ls", "-l", "program"], bundle=_archive(program))
    said = ground.logs.get(ending.task, b"").decode()
    return "" if said.startswith("-rwxr-xr-x") else f"it is unpacked as {said or ending.message}"


async def a_bundle_that_swells(ground: Ground) -> str:
    """Brings an archive of a few kilobytes that unpacks to more than its disk."""
    ending = await ground.run(["/bin/true"], bundle=_archive(_named("large", 64 << 20), packed=True), disk=1 << 20)
    return "" if ending.code == "bundle_invalid" else f"it ended with {ending.code or 'success'}"


# ── left ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def links_for_artifacts(ground: Ground) -> str:
    """Leaves links to files and directories of the node, for it to collect what they lead to."""
    secret = str(ground.facts["secret_file"])
    line = (
        f"cd $HEADWAY_ARTIFACTS; ln -s {secret} a; ln -s /etc/shadow b; ln -s / c; ln -s {ground.place} d; echo ok > e"
    )
    ending = await ground.run(["/bin/sh", "-c", line])
    return _taken(ground, ending, {"e"})


async def hard_links_for_artifacts(ground: Ground) -> str:
    """Leaves second names of files that are not its own."""
    line = "cd $HEADWAY_ARTIFACTS; for f in /etc/passwd /usr/bin/env /run/headway/* /proc/1/environ; do ln $f .; done; "
    ending = await ground.run(["/bin/sh", "-c", f"{line} echo ok > e; exit 0"])
    return _taken(ground, ending, {"e"})


async def pipes_and_sockets_for_artifacts(ground: Ground) -> str:
    """Leaves pipes, devices and files without rights, for the node to wait at or to stumble over."""
    line = (
        "cd $HEADWAY_ARTIFACTS; mkfifo pipe; mknod device c 1 1; mknod disk b 8 0; echo ok > e; mkdir shut; "
        "echo x > shut/x; chmod 0 shut; exit 0"
    )
    ending = await ground.run(["/bin/sh", "-c", line])
    return _taken(ground, ending, {"e", "shut/x"})


async def another_directory_for_artifacts(ground: Ground) -> str:
    """Puts a link to a directory of the node where its artifacts would be collected."""
    line = f"rmdir $HEADWAY_ARTIFACTS; mv $HEADWAY_ARTIFACTS away; ln -s {ground.place} $HEADWAY_ARTIFACTS; exit 0"
    ending = await ground.run(["/bin/sh", "-c", line])
    return _taken(ground, ending, set())


async def a_link_for_a_checkpoint(ground: Ground) -> str:
    """Puts a link to a directory of the node where its checkpoint would be stored, and leaves."""
    line = f"rmdir $HEADWAY_CHECKPOINT_DIR; ln -s {ground.place} $HEADWAY_CHECKPOINT_DIR; exit {LEFT_EXIT}"
    ending = await ground.run(["/bin/sh", "-c", line], checkpoint={})
    return _taken(ground, ending, set()) if ending.checkpoint is None else "it was stored"


# ── judged ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _named(path: str, size: int = 4) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.size = size
    return member


def _archive(*members: tarfile.TarInfo, packed: bool = False) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz" if packed else "w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return body.getvalue()


async def _unpacked(ground: Ground, *members: tarfile.TarInfo) -> str:
    """What the node did with an archive that it must refuse."""
    ending = await ground.run(["/bin/true"], bundle=_archive(*members))
    found = [one for steps in range(_STEPS) for one in glob.glob("*/" * steps + OUT, root_dir=ground.place)]
    found += [place for place in ("/", "/tmp", "/var", "/var/tmp") if Path(place, OUT).exists()]
    if found:
        return f"{found[0]} is there"
    return "" if ending.code == "bundle_invalid" else f"it ended with {ending.code or 'success'}"


def _taken(ground: Ground, ending: Ending, mine: set[str]) -> str:
    """What was collected beyond what may be."""
    secret = str(ground.facts["canary"]).encode()
    if any(secret in body or b"root:" in body for body in ground.keeper.kept.values()):
        return "files of the node were stored"
    taken = {file.path for file in ending.artifacts.manifest.files} if ending.artifacts is not None else set[str]()
    if taken - mine:
        return f"{sorted(taken - mine)} was stored"
    if mine and not taken:
        return f"nothing was stored, though it left {sorted(mine)}"
    return "" if ending.outcome in (Outcome.DONE, Outcome.LOST) else f"it ended with {ending.code}: {ending.message}"


LUGGAGE = (
    a_bundle_with_paths_out_of_it, a_bundle_with_links_out_of_it, a_bundle_with_hard_links_and_devices,
    a_bundle_with_setuid_programs, a_bundle_that_swells, links_for_artifacts, hard_links_for_artifacts,
    pipes_and_sockets_for_artifacts, another_directory_for_artifacts, a_link_for_a_checkpoint,
)  # fmt: skip
