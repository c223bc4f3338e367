"""What this machine has to offer, as integers, read once at start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CPU_LIMIT = "/sys/fs/cgroup/cpu.max"


def detect(data_dir: Path) -> dict[str, int]:
    """cpu in milli of usable cores, memory in bytes (what a cgroup leaves of it), disk in bytes free."""
    data_dir.mkdir(parents=True, exist_ok=True)
    return {"cpu": _cpu_milli(), "memory": _memory_bytes(), "disk": shutil.disk_usage(data_dir).free}


def _cpu_milli() -> int:
    cores = len(os.sched_getaffinity(0)) * 1000
    match _words(_CPU_LIMIT):
        case [quota, period] if quota.isdigit():
            return min(cores, int(quota) * 1000 // int(period))
        case _:
            return cores


def _memory_bytes() -> int:
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(words[0]) for words in map(_words, _MEMORY_LIMITS) if words and words[0].isdigit()]
    return min([here, *limits])


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:
        return []
