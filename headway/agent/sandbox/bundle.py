"""A task as an OCI runtime bundle: the `config.json` that runsc, runc and crun read.

It promises no less than the sandbox does: no capabilities, no new privileges, namespaces of its own, a user of its own
on the machine, programs and settings read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.agent.sandbox import view
from headway.agent.sandbox.airlock import open_files_max
from headway.agent.sandbox.identities import FIRST_USER
from headway.agent.sandbox.sandboxed import SHM_BYTES, TMP_BYTES

OTHER_USER = FIRST_USER - 1
"""Who root inside is on this machine, where the task is not root inside: the runtime's own helper, and no task."""
_SETS = ("bounding", "effective", "permitted", "inheritable", "ambient")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vessel:
    """What a bundle is made of."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    root: Path
    is_read_only: bool
    directory: str
    user: tuple[int, int]
    """User and group inside."""
    host_user: int
    """Who that is on this machine."""
    shown: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is shown read-only: inside, and where it is here."""
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    """What may be written: the same way round."""


def config(vessel: Vessel) -> bytes:
    """The bundle's config.json."""
    uid, gid = vessel.user
    return msgspec.json.encode(
        {
            "ociVersion": "1.0.2",
            "hostname": "headway",
            "root": {"path": str(vessel.root), "readonly": vessel.is_read_only},
            "process": {
                "terminal": False,
                "user": {"uid": uid, "gid": gid},
                "args": list(vessel.argv),
                "env": [f"{name}={value}" for name, value in vessel.environ.items()],
                "cwd": vessel.directory,
                "noNewPrivileges": True,
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": open_files_max(), "hard": open_files_max()}],
                "capabilities": {name: [] for name in _SETS},
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
                _memory("/dev", "mode=755", "size=65536k", "strictatime"),
                _memory("/dev/shm", "mode=1777", f"size={SHM_BYTES}", "noexec", "nodev"),
                _memory("/tmp", "mode=1777", f"size={TMP_BYTES}", "nodev"),
                *(_bound(inside, here, "ro") for inside, here in vessel.shown.items()),
                *(_bound(inside, here, "rw") for inside, here in vessel.written.items()),
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network", "user")],
                "uidMappings": _mapped(uid, vessel.host_user),
                "gidMappings": _mapped(gid, vessel.host_user),
            },
        }
    )


def shown() -> tuple[dict[str, str], dict[str, str]]:
    """This machine's programs: what is bound, by where it is shown, and what is linked."""
    words = list(view.shown())
    bound: dict[str, str] = {}
    linked: dict[str, str] = {}
    for option, source, target in zip(words[::3], words[1::3], words[2::3], strict=True):
        (linked if option == "--symlink" else bound)[target] = source
    return bound, linked


def _memory(inside: str, *options: str) -> dict[str, object]:
    return {"destination": inside, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}


def _bound(inside: str, here: str, how: str) -> dict[str, object]:
    options = ["rbind", how, "nosuid", "nodev"]
    return {"destination": inside, "type": "bind", "source": here, "options": options}


def _mapped(inside: int, outside: int) -> list[dict[str, int]]:
    """A runtime's helpers are root inside, so somebody has to be."""
    mine = {"containerID": inside, "hostID": outside, "size": 1}
    return [mine] if inside == 0 else [{"containerID": 0, "hostID": OTHER_USER, "size": 1}, mine]
