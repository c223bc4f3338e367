"""What the kernel knows of processes: families, memory, processor time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
MB = 1e6


def family(pid: int) -> list[int]:
    """A process and everything below it."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for thread in (PROC / str(parent) / "task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def words(pid: int) -> list[str]:
    """The command line of a process; empty when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
    except OSError:
        return []


def pss_mb(pids: list[int]) -> float:
    """Memory of all of them, what they share counted once."""
    return sum(_field(pid, "smaps_rollup", "Pss:") for pid in pids) / 1000


def rss_mb(pid: int) -> float:
    """Resident memory of one."""
    return _field(pid, "status", "VmRSS:") / 1000


def peak_rss_mb(pid: int) -> float:
    """The most resident memory one ever had."""
    return _field(pid, "status", "VmHWM:") / 1000


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of all of them, and of those of their children that have ended."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            fields = (PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
            total += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return total / TICKS


def machine_cpu_seconds() -> float:
    """Processor time of everybody, the kernel and other guests of the host included; all but idle and waiting."""
    fields = (PROC / "stat").read_text().partition("\n")[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / TICKS


def _field(pid: int, file: str, name: str) -> float:
    """A number of kibibytes as kilobytes."""
    with suppress(OSError):
        for line in (PROC / str(pid) / file).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1.024
    return 0.0
