"""Whom PostgreSQL runs as: never root, and never somebody for whom more than our directory must be opened.

An ordinary user stays who it is. Root first tries a user namespace, in which PostgreSQL sees `nobody` and the
files stay root's; where that is forbidden, an unprivileged user who gets our directory, and nothing above it.
"""

import asyncio
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.store.postgres_binaries import Binaries, PostgresUnavailable

LAUNCHER = Path(__file__).with_name("postgres_launcher.py")
UNPRIVILEGED_USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom PostgreSQL runs as (in the launcher's words), and who owns its files as seen from here."""

    argument: str
    uid: int
    gid: int


async def choose_identity(data_dir: Path, binaries: Binaries) -> Identity:
    """Ourselves, unless we are root: then a namespace in which we are not, else an unprivileged user."""
    if os.geteuid() != 0:
        return Identity("self", os.geteuid(), os.getegid())
    candidates = [Identity("namespace", 0, 0), *unprivileged_users()]
    refusals: list[str] = []
    for identity in candidates:
        # Others may pass through our directory when the server is another user; they still cannot list it.
        data_dir.chmod(0o700 if identity.uid == 0 else 0o711)
        refusal = await cannot_run(identity, data_dir, binaries)
        if refusal is None:
            return identity
        refusals.append(refusal)
    data_dir.chmod(0o700)
    raise PostgresUnavailable(
        "PostgreSQL refuses to run as root, and no other identity works here:\n  "
        + "\n  ".join(refusals)
        + "\nRun Headway as an ordinary user, allow user namespaces, or choose a data directory (and an "
        "installation) that the user `nobody` can reach, for example under /var/lib."
    )


def unprivileged_users() -> Iterator[Identity]:
    for name in UNPRIVILEGED_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        yield Identity(f"{user.pw_uid}:{user.pw_gid}", user.pw_uid, user.pw_gid)


async def cannot_run(identity: Identity, data_dir: Path, binaries: Binaries) -> str | None:
    """Why this identity cannot run PostgreSQL in the directory, or None when it can: found by trying."""
    process = await asyncio.create_subprocess_exec(
        *command(identity, data_dir, binaries, "postgres"),
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    _, said = await process.communicate()
    return None if process.returncode == 0 else said.decode(errors="replace").strip()


def cannot_take(identity: str) -> str | None:
    """Why the launcher cannot run a program under this identity that dies with us, or None when it can."""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", LAUNCHER, str(os.getpid()), identity, "/", "/bin/true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if ran.returncode == 0 else ran.stderr.strip()


def command(identity: Identity, directory: Path, binaries: Binaries, program: str) -> Iterator[str]:
    yield from (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), identity.argument)
    yield from (str(directory), str(binaries.bin_dir / program))


def environment() -> dict[str, str]:
    """Nothing of ours: no PG* variable steers the server, no secret leaks into it, messages are English."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def give(path: Path, identity: Identity) -> None:
    """Make `path` and all in it the identity's. Only root needs to and can; links are not followed."""
    if os.geteuid() != 0 or path.stat().st_uid == identity.uid:
        return
    for inner in path.rglob("*"):
        os.chown(inner, identity.uid, identity.gid, follow_symlinks=False)
    os.chown(path, identity.uid, identity.gid)  # last: while its owner is the old one, we are not done
