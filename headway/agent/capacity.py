"""What this machine has to offer, as integers, read once at start: what there is, less what it keeps for itself.

The promise: nothing is offered that the agent's own control group (v1 or v2, and every group above it) or its
affinity would not let an attempt use, and the default leaves the machine itself room to live.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from headway.agent.sandbox.cgroups import OWN, ROOT

MIB = 1024 * 1024
RESERVED_SHARE = 20
"""One part of so many of memory and disk is kept by default, within the bounds below."""
RESERVED_MEMORY = (128 * MIB, 2048 * MIB)
RESERVED_DISK = (512 * MIB, 10_240 * MIB)


def detect(data_dir: Path, root: Path = ROOT, own: Path = OWN) -> dict[str, int]:
    """cpu in milli of usable cores, memory in bytes (what control groups leave of both), disk in bytes free."""
    data_dir.mkdir(parents=True, exist_ok=True)
    return {"cpu": _cpu_milli(root, own), "memory": _memory(root, own), "disk": shutil.disk_usage(data_dir).free}


def cpus() -> int:
    """How many functions at a time keep this machine busy: its whole cores."""
    return max(1, _cpu_milli(ROOT, OWN) // 1000)


def reserved(found: Mapping[str, int], said: Mapping[str, int]) -> dict[str, int]:
    """What the machine keeps for itself: what was said, else a part of memory and disk that every system needs.

    cpu is kept by weight and not by number: all attempts together weigh as much as one process beside them."""
    return {
        "memory": _part(found.get("memory", 0), RESERVED_MEMORY),
        "disk": _part(found.get("disk", 0), RESERVED_DISK),
        **said,
    }


def offered(found: Mapping[str, int], at_most: Mapping[str, int], kept: Mapping[str, int]) -> dict[str, int]:
    """What is found, less what is kept, and no more than what was allowed."""
    left = {name: max(0, amount - kept.get(name, 0)) for name, amount in found.items()}
    return {name: min(amount, at_most.get(name, amount)) for name, amount in left.items()}


def _part(amount: int, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return min(max(amount // RESERVED_SHARE, least), most, amount // 2)


def _cpu_milli(root: Path, own: Path) -> int:
    """The affinity knows of cpusets; quotas have to be read, in every group above ours."""
    limits = [len(os.sched_getaffinity(0)) * 1000]
    for place in _groups_above("cpu", root, own):
        quota, period = [*_words(place / "cpu.max"), "", ""][:2]
        if not quota:
            quota, period = _first(place / "cpu.cfs_quota_us"), _first(place / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) * 1000 // int(period))
    return max(1, min(limits))


def _memory(root: Path, own: Path) -> int:
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for place in _groups_above("memory", root, own):
        for file in ("memory.max", "memory.limit_in_bytes"):
            text = _first(place / file)
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def _groups_above(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Our group of a controller and every one above it, up to what is mounted. In a container that may be the first:
    then the path names a place outside, and the mount is our group."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    mine = {name: path.strip("/") for _, names, path in lines for name in names.split(",")}
    for mount, path in (
        (root / controller, mine.get(controller, "")),
        (root if (root / "cgroup.controllers").exists() else root / "unified", mine.get("", "")),
    ):
        place = mount / path if (mount / path).is_dir() else mount
        while place != mount:
            yield place
            place = place.parent
        yield mount


def _first(path: Path) -> str:
    return (_words(path) or [""])[0]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
