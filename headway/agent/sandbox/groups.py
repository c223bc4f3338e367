"""The control groups of a node's attempts: each gets one that is fresh, and none ends before its group is empty.

Making and removing one costs 0.4 ms, so a group in which little happened serves the next attempt of the same size, with
its files kept open; what it counted before is taken off. Where the machine gives no groups, or not every limit,
attempts run all the same: `degraded` says what they are not held to, and the agent tells it to whoever asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from headway.agent.sandbox.cgroups import CgroupFault, Cgroups, Group, Limits, Usage
from headway.agent.sandbox.forks import Forks
from headway.core.resources import Vector

PIDS_MAX = 4096
"""Processes and threads of one attempt, unless its resources say another number of `pids`."""
POOL_MAX = 64
OUTWEIGHING = 64
"""As many ordinary processes."""
KEPT_SHARE, KEPT_EACH = 4, 16
"""Groups keep their files open until they have a fourth of all that the agent may open; each has so many."""
CHARGED_BYTES_MAX = 2 * 1024 * 1024
"""A group that more memory than this is still charged to is not used again."""
CPU_MILLI_MIN = 10
MEMORY_BYTES_MIN = 4 * 1024 * 1024
"""No program starts in less."""

_log = structlog.get_logger("headway.agent.groups")


@dataclass(slots=True)
class Held:
    """The group of one attempt, and what it had counted before the attempt began."""

    group: Group
    before: Usage
    limits: Limits


class Groups:
    """Lends groups to attempts. A number in the pool was emptied by a kill, and seen empty."""

    def __init__(self, cgroups: Cgroups, *, has_quota: bool = False) -> None:
        self._cgroups = cgroups
        self._has_quota = has_quota
        self._made = 0
        self._pool: dict[Limits, list[Held]] = {}
        self._pooled = 0
        self._dying: list[Group] = []
        self._kept: dict[int, Group] = {}
        self._kept_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // KEPT_SHARE // KEPT_EACH
        self._forks = Forks()
        left = list(cgroups.left())
        for group in left:  # of an agent of this node that was killed
            group.kill()
            group.wait_empty()
        self._dying += left
        self.sweep()
        for what, why in cgroups.missing.items():
            _log.warning("attempts are not held to a limit on this node", limit=what, why=why)

    @classmethod
    def of(cls, data_dir: Path, *, has_quota: bool = False) -> Groups:
        """The groups of the agent that owns this directory."""
        room = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
        return cls(Cgroups.found(f"headway-{room}"), has_quota=has_quota)

    @property
    def degraded(self) -> Mapping[str, str]:
        """What of cpu, memory, pids, freeze and kill this node cannot do by control groups, and why."""
        return self._cgroups.missing

    def take(self, needs: Vector) -> Held | None:
        """A fresh group with the limits of `needs`; None where the machine gives none."""
        if not self._cgroups.parents:
            return None
        limits = self._limits(needs)
        if pool := self._pool.get(limits):
            self._pooled -= 1
            return pool.pop()
        self._made += 1
        try:
            group = self._cgroups.create(str(self._made), limits)
        except CgroupFault as fault:
            raise OSError(fault.errno, f"{fault}; free control groups there") from fault
        return Held(group, group.usage(), limits)

    def apart(self, name: str) -> Group | None:
        """A group without limits for processes of ours that are no attempt; None where the machine gives none."""
        return self._cgroups.create(name, Limits()) if self._cgroups.parents else None

    def join(self, held: Held, pid: int, adopted: Callable[[], set[int]] = set) -> None:
        """Moves a process in that has just been started. On a busy machine it may have forked by now, and even be dead:
        who lost its parent by then is one of those `adopted` since."""
        self._add(held, pid)
        if self._forks.last_was(pid):
            return
        self._gather(held, pid)
        known = {pid}
        while strays := adopted() - known:
            for stray in strays:
                self._add(held, stray)
                self._gather(held, stray)
            known |= strays

    def give(self, held: Held) -> Usage:
        """Kills what is left in it and says what the attempt used."""
        group = held.group
        if not group.is_empty():
            group.kill()
        used = group.usage()
        if self._pooled < POOL_MAX and used.oom_kills == held.before.oom_kills and group.renew(CHARGED_BYTES_MAX):
            self._keep(group)
            self._pool.setdefault(held.limits, []).append(Held(group, used, held.limits))
            self._pooled += 1
        else:
            self._kept.pop(id(group), None)
            if not group.remove():
                self._dying.append(group)
        return _since(held.before, used)

    @contextlib.contextmanager
    def outweighing(self) -> Generator[None]:
        """While it lasts, attempts get nearly all of the cpu when they want it; among themselves nothing changes."""
        before = self._cgroups.weight
        self._cgroups.weigh(OUTWEIGHING)
        try:
            yield
        finally:
            self._cgroups.weigh(before)

    def sweep(self) -> None:
        """Removes the groups whose killed processes have gone by now."""
        for group in self._dying:
            if not group.is_empty():
                group.kill()
        self._dying = [group for group in self._dying if not group.remove()]

    def close(self) -> None:
        """Kills and removes everything."""
        for group in self._kept.values():
            group.files.close()
        self._kept.clear()
        self._forks.close()
        self._cgroups.close()

    def _keep(self, group: Group) -> None:
        if len(self._kept) < self._kept_max and id(group) not in self._kept:
            group.files.keep()
            self._kept[id(group)] = group

    def _add(self, held: Held, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it is dead already
            held.group.add(pid)

    def _gather(self, held: Held, pid: int) -> None:
        """The descendants of a process, as far as they are not in: what a process of the group forks is in it."""
        if children := children_of(pid):
            inside = held.group.whole()
            for child in children:
                if child not in inside:
                    self._add(held, child)
                    self._gather(held, child)

    def _limits(self, needs: Vector) -> Limits:
        cpu, memory = needs.get("cpu"), needs.get("memory")
        return Limits(
            cpu_milli=max(cpu, CPU_MILLI_MIN) if cpu is not None and self._has_quota else None,
            cpu_weight_milli=max(cpu, CPU_MILLI_MIN) if cpu is not None else None,
            memory_bytes=max(memory, MEMORY_BYTES_MIN) if memory else None,
            pids=needs.get("pids", PIDS_MAX),
        )


def summed(usage: Usage | None, rusage: resource.struct_rusage | None) -> dict[str, float]:
    """What an attempt used, by its group where that counted it, else by what its first process was charged.

    The kernel starts a spawned program's peak at its parent's size, so a peak of `rusage` that is not above our own
    says nothing and is left out."""
    found: dict[str, float] = {}
    if rusage is not None:
        found = {
            "cpu_user": rusage.ru_utime,
            "cpu_system": rusage.ru_stime,
            "io_read": rusage.ru_inblock * 512.0,
            "io_written": rusage.ru_oublock * 512.0,
        }
        if rusage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
            found["memory_peak"] = rusage.ru_maxrss * 1024.0
    if usage is not None:
        if usage.cpu_user is not None and usage.cpu_system is not None:
            found |= {"cpu_user": usage.cpu_user, "cpu_system": usage.cpu_system}
        if usage.memory_peak is not None:
            found["memory_peak"] = float(usage.memory_peak)
        # Of what is read, the group knows more (all its processes); of what is written, in v1 the processes (each is
        # charged with the pages it made dirty). Neither counts what the other does not see, so the larger is nearer.
        if usage.io_read is not None and usage.io_written is not None:
            found["io_read"] = max(found.get("io_read", 0.0), float(usage.io_read))
            found["io_written"] = max(found.get("io_written", 0.0), float(usage.io_written))
    return found


def _since(before: Usage, now: Usage) -> Usage:
    return Usage(
        _less(now.cpu_user, before.cpu_user),
        _less(now.cpu_system, before.cpu_system),
        now.memory_peak,
        now.oom_kills - before.oom_kills,
        now.pids_refused - before.pids_refused,
        _less_bytes(now.io_read, before.io_read),
        _less_bytes(now.io_written, before.io_written),
    )


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None else max(0.0, now - (before or 0.0))


def _less_bytes(now: int | None, before: int | None) -> int | None:
    return None if now is None else max(0, now - (before or 0))


def children_of(pid: int) -> list[int]:
    """The processes that a process started and that are still its own."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # gone, or a kernel without it
        return []
