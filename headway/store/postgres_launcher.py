"""Becomes a PostgreSQL program that is never root and does not outlive its parent.

Run as a script by `embedded.py`, so it imports nothing but the standard library:

    postgres_launcher.py PARENT_PID IDENTITY DIRECTORY PROGRAM [ARGUMENT ...]

IDENTITY is `self`, `namespace` (PostgreSQL sees `nobody`, its files stay root's) or `UID:GID`.
A script and no `preexec_fn`, because Python code between fork and exec can deadlock where there are threads.
"""

import ctypes
import os
import signal
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
UNPRIVILEGED_ID = 65534


def main(parent: str, identity: str, directory: str, program: str, *arguments: str) -> None:
    become(identity)
    os.chdir(directory)
    die_with_parent(int(parent))
    os.execv(program, [program, *arguments])


def become(identity: str) -> None:
    """Take on the identity for good, with no group of the old one left."""
    if identity == "namespace":
        enter_namespace(os.geteuid(), os.getegid())
    elif identity != "self":
        uid, gid = map(int, identity.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def enter_namespace(uid: int, gid: int) -> None:
    """A user namespace whose only user is `uid` outside and unprivileged inside."""
    check(ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{UNPRIVILEGED_ID} {uid} 1"),
        ("gid_map", f"{UNPRIVILEGED_ID} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def die_with_parent(parent: int) -> None:
    """SIGQUIT, PostgreSQL's crash-safe immediate stop, comes when the parent ends. Set after the change of
    identity, which would clear it."""
    check(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT))
    if os.getppid() != parent:
        sys.exit("the parent ended before PostgreSQL began")


def check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"cannot run {sys.argv[4]} as {sys.argv[2]} in {sys.argv[3]}: {error}")
