"""What a sandboxed task sees of this machine: its programs and libraries, and the few settings they need.

The promise: nothing that only some may read, no home, no /etc/shadow, no /sys, no socket of a service. The settings are
copied once, when the agent starts, and shown read-only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headway.agent.sandbox.namespaces import INSIDE

_SHOWN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_SETTINGS = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
    "host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime",
    "lsb-release", "magic", "magic.mime", "mime.types", "networks", "nsswitch.conf", "os-release", "perl", "pki",
    "profile", "profile.d", "protocols", "python3", "python3.11", "python3.12", "python3.13", "python3.14", "rpc",
    "services", "ssl", "terminfo", "timezone", "xml",
)  # fmt: skip
_FILE_BYTES_MAX = 4 * 1024 * 1024
USER = "task"
WORKSPACE = "/workspace"
ARTIFACTS = "/run/headway/artifacts"


def settings(place: Path, host: Path = Path("/etc")) -> Path:
    """The /etc that tasks see: made once for all agents of a user, anew when this machine's has changed. In memory
    where there is such a place, for that takes 20 ms and a disk 300; else in `place`."""
    runtime = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) if runtime and os.access(runtime, os.W_OK | os.X_OK) else place
    watched = (*_SETTINGS, "resolv.conf")
    changed = [(name, (host / name).lstat().st_mtime_ns) for name in watched if os.path.lexists(host / name)]
    etc = base / f"headway-etc-{hashlib.sha256(repr(changed).encode()).hexdigest()[:16]}"
    if not (etc.is_dir() and etc.stat().st_uid == os.geteuid()):
        half = Path(tempfile.mkdtemp(prefix="headway-etc-", dir=base))
        _make_settings(half, host)
        try:
            half.rename(etc)
        except OSError:  # another agent was first
            shutil.rmtree(half, ignore_errors=True)
    return etc


def _make_settings(etc: Path, host: Path) -> None:
    """Of this machine's, what everybody may read."""
    etc.chmod(0o755)
    for name in _SETTINGS:
        _copy(host / name, etc / name)
    make_users(etc, 1)
    _write(etc / "hosts", "127.0.0.1 localhost\n::1 localhost\n")
    _write(etc / "hostname", "headway\n")
    if (host / "resolv.conf").is_file():  # often a link to what tasks do not see
        _write(etc / "resolv.conf", (host / "resolv.conf").read_text())


def make_users(directory: Path, count: int) -> None:
    """The lists of users that tasks see: all of `count` users are called the same, for one task is one of them."""
    numbers = range(INSIDE, INSIDE + count)
    users = "".join(f"{USER}:x:{number}:{number}::{WORKSPACE}:/bin/sh\n" for number in numbers)
    _write(directory / "passwd", f"{users}nobody:x:65534:65534::/:/bin/false\n")
    _write(directory / "group", "".join(f"{USER}:x:{number}:\n" for number in numbers) + "nogroup:x:65534:\n")


def shown(more: tuple[Path, ...] = ()) -> Iterator[str]:
    """The options that show programs and libraries where they are on this machine."""
    for path in _SHOWN:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in more:
        yield from ("--ro-bind", str(path), str(path))


def is_shown(path: str, more: tuple[Path, ...] = ()) -> bool:
    """Whether a task sees this file or directory."""
    return any(path == top or path.startswith(f"{top}/") for top in (*_SHOWN, *map(str, more)))


def located(program: str, path: str, directory: str, root: str | None, more: tuple[Path, ...]) -> str | None:
    """Where the task will find a program that it called by its name; None where it will not."""
    if "/" in program:
        return program
    for place in path.split(":"):
        if place == WORKSPACE or place.startswith(f"{WORKSPACE}/"):
            seen = directory + place[len(WORKSPACE) :]
        elif root is not None:
            seen = root + place
        elif is_shown(place, more):
            seen = place
        else:
            continue
        if os.path.lexists(f"{seen}/{program}") and not os.path.isdir(f"{seen}/{program}"):
            return f"{place}/{program}"
    return None


def _copy(source: Path, target: Path) -> None:
    try:
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.is_dir():
            _copy_directory(source, target)
        elif source.is_file() and _is_for_all(source) and source.stat().st_size <= _FILE_BYTES_MAX:
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.stat().st_mode & stat.S_IXOTH else 0o644)
    except OSError:  # not ours to read, or gone meanwhile: it is not shown
        target.unlink(missing_ok=True)


def _copy_directory(source: Path, target: Path) -> None:
    if not source.stat().st_mode & stat.S_IXOTH:
        return
    target.mkdir(mode=0o755)
    target.chmod(0o755)
    for entry in source.iterdir():
        _copy(entry, target / entry.name)


def _is_for_all(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IROTH)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)
