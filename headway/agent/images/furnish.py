"""Makes an unpacked root ready to be run in: places to mount on, the directory and the user that the image names.

The promise: what is mounted on is a real directory or file of the root and no link to anything; all of it is done
inside of the root, whatever the image has there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import msgspec

from headway.agent.images.inside import Inside
from headway.agent.images.layout import Run
from headway.agent.images.unpack import BadImage

MOUNTED = ("proc", "dev", "sys", "tmp", "run", "run/headway", "workspace")
WRITTEN = ("etc/hosts", "etc/hostname", "etc/resolv.conf")
"""Files that a runtime puts its own over."""
FIXED = frozenset({"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "boot", *MOUNTED})
"""What nobody installs into at run time; directories elsewhere take new files."""
DIRECTORIES_MAX = 200
ACCOUNTS_BYTES_MAX = 1024 * 1024
ID_MAX = 2**31 - 1


class Furnished(msgspec.Struct, frozen=True):
    """How a root is run in."""

    uid: int
    gid: int
    user: str
    """What it is called there; empty when it has no name."""
    directory: str
    """Where programs begin; empty: in the workspace."""
    open: list[str]
    """Directories that take new files, each behind the one it is in."""


def furnish(root: str, run: Run) -> Furnished:
    """Makes a root ready. Raises BadImage."""
    try:
        with Inside(root) as inside:
            for name in MOUNTED:
                _directory(inside, name)
            for name in WRITTEN:
                _file(inside, name)
            directory = _working_directory(inside, run.working_dir or "")
            uid, gid, user = _user(inside, run.user or "")
    except OSError as error:
        raise BadImage(f"its root cannot be made ready: {error}") from error
    return Furnished(uid, gid, user, directory, _open(root, directory))


def _directory(inside: Inside, name: str) -> None:
    parts = name.split("/")
    parent = inside.parent(parts, make=True)
    mode = _mode(parent, parts[-1])
    if mode is not None and not stat.S_ISDIR(mode):
        inside.remove(parts)
        parent = inside.parent(parts, make=True)
        mode = None
    if mode is None:
        os.mkdir(parts[-1], 0o755, dir_fd=parent)
        os.chmod(parts[-1], 0o755, dir_fd=parent)


def _file(inside: Inside, name: str) -> None:
    parts = name.split("/")
    parent = inside.parent(parts, make=True)
    mode = _mode(parent, parts[-1])
    if mode is not None and stat.S_ISREG(mode):
        return
    inside.remove(parts)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(parts[-1], flags, 0o644, dir_fd=inside.parent(parts, make=True)))


def _working_directory(inside: Inside, said: str) -> str:
    """The image's own, made if it is not there, as every runtime does."""
    parts = [part for part in said.split("/") if part not in ("", ".")]
    if not parts:
        return ""
    if ".." in parts:
        raise BadImage(f"its working directory {said!r} leads up")
    inside.parent([*parts, ""], make=True)
    return "/" + "/".join(parts)


def _user(inside: Inside, said: str) -> tuple[int, int, str]:
    """User, group and name of `name`, `uid`, `uid:gid` or `name:group`, as the image's own files say."""
    wanted, _, group = said.partition(":")
    wanted = wanted or "0"
    entry = next((e for e in _accounts(inside, "etc/passwd") if wanted in (e[0], e[2])), None)
    if entry is None and not wanted.isdecimal():
        raise BadImage(f"its user {wanted!r} is not in its /etc/passwd")
    uid = int(entry[2]) if entry is not None else int(wanted)
    gid = int(entry[3]) if entry is not None and entry[3].isdecimal() else uid
    if group:
        found = next((e for e in _accounts(inside, "etc/group") if group in (e[0], e[2])), None)
        if found is None and not group.isdecimal():
            raise BadImage(f"its group {group!r} is not in its /etc/group")
        gid = int(found[2]) if found is not None else int(group)
    if not (0 <= uid <= ID_MAX and 0 <= gid <= ID_MAX):
        raise BadImage(f"its user {said!r} has no possible number")
    return uid, gid, entry[0] if entry is not None else ""


def _accounts(inside: Inside, name: str) -> Iterator[list[str]]:
    try:
        text = inside.read(name, ACCOUNTS_BYTES_MAX).decode(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        entry = line.split(":")
        if len(entry) > 3 and entry[2].isdecimal():
            yield entry


def _open(root: str, directory: str) -> list[str]:
    """The directories that take new files: the first two levels without what is fixed, and the working directory."""
    found = {"": None}
    for top in sorted(os.scandir(root), key=lambda entry: entry.name):
        if top.name in FIXED or not top.is_dir(follow_symlinks=False):
            continue
        found[top.name] = None
        below = sorted(entry.name for entry in os.scandir(top.path) if entry.is_dir(follow_symlinks=False))
        found |= {f"{top.name}/{name}": None for name in below}
    names = list(found)[:DIRECTORIES_MAX]
    parts = directory.strip("/").split("/") if directory else []
    ways = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    # A way that leads through a link has no directory of that name: an overlay of one would hide the link.
    straight = [way for way in ways if not any(os.path.islink(f"{root}/{up}") for up in ways if way.startswith(up))]
    return list(dict.fromkeys([*names, *straight]))


def _mode(parent: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
