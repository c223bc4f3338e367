"""A program of its own that makes user namespaces: each knows one user, 1000, who is nobody outside.

`python -I -S namespaces.py FIRST COUNT` as root, with a socket as its standard input, over which it sends one
descriptor a byte. In each, 1000 stands for FIRST, FIRST + 1 … on this machine, and no further namespace of users can
be made. A program of its own, because only a process that forks can make one, and the agent is too large to fork.

`… namespaces.py within USER GROUP` makes one namespace in another one, its descriptor 3, in which USER and GROUP stand
for the 1000 of that: images name users of their own.
"""

from __future__ import annotations

import array
import ctypes
import os
import socket
import sys

CLONE_NEWUSER = 0x10000000
INSIDE = 1000
OUTER = 3
PR_SET_DUMPABLE = 4
MANY = "10000"
LIMIT = "/proc/sys/user/max_user_namespaces"


def main() -> None:
    """Makes as many as were asked for."""
    with socket.socket(fileno=0) as out:
        if sys.argv[1] == "within":
            send(out, make_within(OUTER, int(sys.argv[2]), int(sys.argv[3])))
            return
        first, count = int(sys.argv[1]), int(sys.argv[2])
        for user in range(first, first + count):
            send(out, make(user))


def send(out: socket.socket, namespace: int) -> None:
    """Hands a descriptor over."""
    out.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [namespace]))])
    os.close(namespace)


def make_within(outer: int, user: int, group: int) -> int:
    """A descriptor of a new one in `outer`, which lets none be made but for this moment."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(outer, CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "the namespace of the task's user cannot be entered")
    write(LIMIT, MANY)
    try:
        return make(INSIDE, user, group, INSIDE)
    finally:
        write(LIMIT, "0")


def make(user: int, inside: int = INSIDE, group: int = INSIDE, maker: int | None = None) -> int:
    """A descriptor of a new one; it lasts as long as somebody holds it. `maker`: as whom it is made."""
    ready_read, ready = os.pipe()
    leave_read, leave = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(leave)
        if maker is not None:
            os.setresgid(maker, maker, maker)
            os.setresuid(maker, maker, maker)
        enter(ready)
        os.read(leave_read, 1)
        os._exit(0)
    os.close(ready)
    try:
        if not os.read(ready_read, 1):
            raise OSError("no user namespace could be made")
        write(f"/proc/{child}/setgroups", "deny")
        write(f"/proc/{child}/gid_map", f"{group} {user} 1")
        write(f"/proc/{child}/uid_map", f"{inside} {user} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for end in (ready_read, leave_read, leave):
            os.close(end)
        os.waitpid(child, 0)


def enter(ready: int) -> None:
    """In the child: goes into a new one, and closes the door to the next."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        os._exit(1)
    libc.prctl(PR_SET_DUMPABLE, 1)  # whoever became another user may not be looked at otherwise
    write(LIMIT, "0")
    os.write(ready, b".")


def write(path: str, text: str) -> None:
    """What the kernel is told by a file."""
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
