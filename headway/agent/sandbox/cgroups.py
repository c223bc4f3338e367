"""Control groups, v1, v2 and the hybrids of both: limits, usage, freeze, and a kill that nothing escapes.

`Cgroups.found()` looks once at what this machine lets us do and makes a room of its own for this agent; `create` then
makes one `Group` per attempt. Whatever cannot be had is in `missing` with its reason: a limit is never dropped in
silence. A group is a directory in each hierarchy that carries something we use. In a hybrid the v2 hierarchy often
has no controllers; its freeze and kill are used all the same, and the limits are set in v1.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway.agent.sandbox.cgroup_files import Files, read, try_write, write

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
LIMITS = ("cpu", "memory", "pids")
PERIOD_US = 100_000
QUOTA_US_MIN = 1_000
SHARES = (2, 262_144)
WEIGHTS = (1, 10_000)
SIGKILL = 9
ROUNDS_MAX = 50
FREEZE_SECONDS = 2.0
_V1_FILES = {
    "cpu": "cpu.cfs_quota_us",
    "cpuacct": "cpuacct.usage",
    "memory": "memory.limit_in_bytes",
    "pids": "pids.max",
    "freezer": "freezer.state",
    "blkio": "cgroup.procs",
}


class CgroupFault(OSError):
    """The kernel refused something; the message says what and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an attempt may use. None: no limit of that kind."""

    cpu_milli: int | None = None
    """How much it may burn: 1000 is one core."""
    cpu_weight_milli: int | None = None
    """How much it gets when all want more than there is."""
    memory_bytes: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt used so far; None is not known here."""

    cpu_user: float | None = None
    cpu_system: float | None = None
    memory_peak: int | None = None
    oom_kills: int = 0
    pids_refused: int = 0
    io_read: int | None = None
    """Bytes from and to devices; v1 does not charge what is written back later."""
    io_written: int | None = None


@dataclass(slots=True)
class Group:
    """One attempt's control group. `places` says in which directory each controller (and `v2`) has it."""

    name: str
    places: Mapping[str, Path]
    is_v2: frozenset[str]
    """Which controllers are in the v2 hierarchy."""
    files: Files = field(init=False)
    _hierarchies: list[str] = field(init=False)
    """A controller of each."""

    def __post_init__(self) -> None:
        self.files = Files(self.places)
        self._hierarchies = list({place: controller for controller, place in self.places.items()}.values())

    # ── who is in it ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def joins(self) -> list[str]:
        """The files that a process writes its number (or 0: itself) to in order to be in it."""
        return [f"{self.places[one]}/cgroup.procs" for one in self._hierarchies]

    def add(self, pid: int) -> None:
        """Moves a process in. What it forked before stays where it is; what it forks from now on is in."""
        body = b"%d" % pid
        for one in self._hierarchies:
            self.files.write(one, "cgroup.procs", body)

    def pids(self) -> list[int]:
        """Every process in it, as our own process namespace numbers them."""
        found: set[int] = set()
        for path in self.joins:
            with contextlib.suppress(OSError):
                found |= {int(word) for word in read(path).split()}
        return sorted(found - {0})

    def whole(self) -> set[int]:
        """Every process that was moved in, or forked by one that had been, in all hierarchies: `add` moves into one
        after the other, and what is forked meanwhile is in those that came first. Who is in the last one is in all."""
        return {int(word) for word in read(self.joins[-1]).split()}

    # ── stop, go on, end ────────────────────────────────────────────────────────────────────────────────────

    @property
    def can_freeze(self) -> bool:
        """Whether the kernel can freeze it; if not, SIGSTOP has to do."""
        return "v2" in self.files or "freezer" in self.files

    def freeze(self) -> bool:
        """Stops every process of it where it stands; True when all of them stand. Their memory stays."""
        return self._freeze(b"1", b"FROZEN")

    def thaw(self) -> bool:
        """Lets them go on."""
        return self._freeze(b"0", b"THAWED")

    @property
    def is_frozen(self) -> bool:
        """Whether all of it stands still now."""
        if "v2" in self.files:
            return b"frozen 1" in self.files.read("v2", "cgroup.events")
        return "freezer" in self.files and self.files.read("freezer", "freezer.state").strip() == b"FROZEN"

    def kill(self) -> None:
        """SIGKILL to everything in it, however often it forks and whatever sessions it made; frozen or not."""
        if "v2" in self.files and self.files.try_write("v2", "cgroup.kill", b"1"):
            return
        for _ in range(ROUNDS_MAX):
            pids = self.pids()
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, SIGKILL)
            self.thaw()  # v1: what is frozen does not die before it is thawed

    def is_empty(self) -> bool:
        """Whether nobody is left in it. Who is in one hierarchy is in all, and v2 tells it for the least."""
        if not self._hierarchies:
            return True
        try:
            if "v2" in self.files:
                return b"populated 0" in self.files.read("v2", "cgroup.events")
            # Opened anew: what was read of it once, v1 says again for a second.
            return not set(read(self.joins[0]).split()) - {b"0"}
        except OSError:
            return True

    def wait_empty(self, seconds: float = FREEZE_SECONDS) -> bool:
        """Waits, blocking, for what was killed to be gone: a few milliseconds unless it hangs in the kernel."""
        give_up = time.monotonic() + seconds
        while not self.is_empty():
            if time.monotonic() > give_up:
                return False
            select.select([], [], [], 0.001)
        return True

    def remove(self) -> bool:
        """Removes it; False when somebody is still in it (a killed process takes its time): try again later."""
        gone = True
        self.files.close()
        for place in dict.fromkeys(self.places.values()):
            try:
                place.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                gone = False
        return gone

    # ── limits and usage ────────────────────────────────────────────────────────────────────────────────────

    def limit(self, limits: Limits) -> None:
        """Sets limits; what no controller is there for was reported by `Cgroups.missing` when the agent began."""
        for controller, file, text in _settings(limits, self.is_v2):
            if controller in self.files:
                self.files.write(controller, file, text)
        if limits.memory_bytes is not None and "memory" in self.places:
            self._forbid_swap(limits.memory_bytes)

    def renew(self, memory_bytes_max: int) -> bool:
        """Makes it as good as new for another attempt: empty, thawed, its peak at nothing. False when it cannot be
        (more than `memory_bytes_max` is still charged to it, or this kernel keeps the peak): make another one."""
        if not self.is_empty() or self.is_frozen:
            return False
        if "memory" not in self.files:
            return True
        if "memory" in self.is_v2:
            return False
        charged = int(self.files.read("memory", "memory.usage_in_bytes"))
        return charged <= memory_bytes_max and self.files.try_write("memory", "memory.max_usage_in_bytes", b"0")

    def usage(self) -> Usage:
        """What it used."""
        user, system = self._cpu()
        return Usage(user, system, self._memory_peak(), self._oom_kills(), self._pids_refused(), *self._io())

    def _freeze(self, v2: bytes, v1: bytes) -> bool:
        if not self.can_freeze:
            return False
        wanted = v2 == b"1"
        if "v2" in self.files:
            self.files.write("v2", "cgroup.freeze", v2)
        else:
            self.files.write("freezer", "freezer.state", v1)
        give_up = time.monotonic() + FREEZE_SECONDS
        while self.is_frozen is not wanted:  # a few microseconds, unless a process is in an uninterruptible wait
            if time.monotonic() > give_up:
                return False
            select.select([], [], [], 0.0005)
        return True

    def _forbid_swap(self, memory: int) -> None:
        if "memory" in self.is_v2:
            self.files.try_write("memory", "memory.swap.max", b"0")
            self.files.try_write("memory", "memory.oom.group", b"1")
        else:
            self.files.try_write("memory", "memory.memsw.limit_in_bytes", str(memory).encode())

    def _cpu(self) -> tuple[float | None, float | None]:
        if "v2" in self.files and (found := self.files.pairs("v2", "cpu.stat")) and "user_usec" in found:
            return found["user_usec"] / 1e6, found["system_usec"] / 1e6
        if "cpuacct" not in self.files:
            return None, None
        ticks = os.sysconf("SC_CLK_TCK")
        found = self.files.pairs("cpuacct", "cpuacct.stat")
        return found.get("user", 0) / ticks, found.get("system", 0) / ticks

    def _memory_peak(self) -> int | None:
        file = "memory.peak" if "memory" in self.is_v2 else "memory.max_usage_in_bytes"
        if "memory" in self.files:
            with contextlib.suppress(OSError, ValueError):  # memory.peak: since Linux 5.19
                return int(self.files.read("memory", file))
        return None

    def _oom_kills(self) -> int:
        if "memory" not in self.files:
            return 0
        file = "memory.events" if "memory" in self.is_v2 else "memory.oom_control"
        return self.files.pairs("memory", file).get("oom_kill", 0)

    def _io(self) -> tuple[int | None, int | None]:
        """Bytes read and written, summed over all devices."""
        for controller, file, taken, given in (
            ("io", "io.stat", "rbytes=", "wbytes="),
            ("blkio", "blkio.throttle.io_service_bytes", "Read ", "Write "),
        ):
            if controller in self.files:
                text = self.files.read(controller, file).decode()
                return _sum_after(taken, text), _sum_after(given, text)
        return None, None

    def _pids_refused(self) -> int:
        return self.files.pairs("pids", "pids.events").get("max", 0) if "pids" in self.files else 0


@dataclass(slots=True)
class Cgroups:
    """The agent's room: a directory in every hierarchy it may use, with one group per attempt in it."""

    kind: str
    """`v2`, `v1`, `hybrid` or `none`."""
    parents: dict[str, Path]
    is_v2: frozenset[str]
    missing: dict[str, str]
    """What of cpu, memory, pids, freeze and kill cannot be had, and why."""

    @classmethod
    def found(cls, room: str, root: Path = ROOT, own: Path = OWN) -> Cgroups:
        """What there is; makes the directory `room` in every hierarchy that may be used. Never raises."""
        kind = kind_of(root)
        if kind == "none":
            why = f"no control groups are mounted at {root}"
            return cls(kind, {}, frozenset(), dict.fromkeys((*LIMITS, "freeze", "kill"), why))
        parents: dict[str, Path] = {}
        missing: dict[str, str] = {}
        is_v2: set[str] = set()
        for controller, place, is_second in _places(kind, root, own):
            if controller == "cpuacct" and "v2" in parents and (parents["v2"] / "cpu.stat").exists():
                continue  # which counts the same, and better; each hierarchy costs every attempt its move
            why = _make_room(place, room, controller, is_second)
            if why:
                missing[controller] = why
            else:
                parents[controller] = place / room
                is_v2 |= {controller} if is_second else set()
        return cls(kind, parents, frozenset(is_v2), _what_is_missing(parents, missing, kind))

    def create(self, name: str, limits: Limits) -> Group:
        """A group of its own for one attempt. Raises CgroupFault when the kernel refuses what it offered before."""
        places = {controller: parent / name for controller, parent in self.parents.items()}
        for place in dict.fromkeys(places.values()):
            try:
                place.mkdir()
            except FileExistsError:
                pass
            except OSError as error:
                raise CgroupFault(error.errno, f"cannot make {place}: {error.strerror}") from error
        group = Group(name, places, self.is_v2)
        group.limit(limits)
        return group

    @property
    def weight(self) -> int:
        """How much of the cpu all groups together get when everybody wants it: as much as so many processes."""
        if "cpu" not in self.parents:
            return 1
        file, each = ("cpu.weight", 100) if "cpu" in self.is_v2 else ("cpu.shares", 1024)
        return max(1, int(read(f"{self.parents['cpu']}/{file}")) // each)

    def weigh(self, weight: int) -> None:
        """Changes that."""
        if "cpu" in self.parents:
            file, each = ("cpu.weight", 100) if "cpu" in self.is_v2 else ("cpu.shares", 1024)
            write(f"{self.parents['cpu']}/{file}", b"%d" % (weight * each))

    def left(self) -> Iterator[Group]:
        """The groups that are there: at its start, an agent ends what its last incarnation left."""
        there = [parent for parent in self.parents.values() if parent.is_dir()]
        names = {one.name for parent in there for one in parent.iterdir() if one.is_dir()}
        for name in sorted(names):
            places = {controller: parent / name for controller, parent in self.parents.items()}
            yield Group(name, {c: place for c, place in places.items() if place.is_dir()}, self.is_v2)

    def close(self) -> None:
        """Kills and removes everything in the room, and the room."""
        for group in self.left():
            group.kill()
            group.wait_empty()
            group.remove()
        for parent in dict.fromkeys(self.parents.values()):
            with contextlib.suppress(OSError):
                parent.rmdir()


def kind_of(root: Path = ROOT) -> str:
    """How control groups are mounted here."""
    if (root / "cgroup.controllers").exists():
        return "v2"
    first = any((root / name).is_dir() for name in LIMITS)
    if (root / "unified" / "cgroup.controllers").exists():
        return "hybrid" if first else "v2"
    return "v1" if first else "none"


def _places(kind: str, root: Path, own: Path) -> Iterator[tuple[str, Path, bool]]:
    """For each controller: where our own process is in its hierarchy, and whether that one is v2."""
    lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    mine = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    second = root if (root / "cgroup.controllers").exists() else root / "unified"
    offered: set[str] = set()
    if kind in ("v2", "hybrid"):
        place = _within(second, mine.get("", ""))
        offered = set(_words(place / "cgroup.controllers"))
        yield "v2", place, True
        for controller in (*LIMITS, "io"):
            if controller in offered:
                yield controller, place, True
    if kind in ("v1", "hybrid"):
        for controller in _V1_FILES:
            if controller not in offered and (root / controller).is_dir():
                if controller == "freezer" and kind == "hybrid":
                    continue
                yield controller, _within(root / controller, mine.get(controller, "")), False


def _make_room(place: Path, room: str, controller: str, is_v2: bool) -> str:
    """Makes the agent's directory, and says why it cannot."""
    try:
        if is_v2 and controller != "v2":
            _enable(place, controller)
        (place / room).mkdir(exist_ok=True)
        if is_v2 and controller != "v2":
            _enable(place / room, controller)
        probe = "cgroup.procs" if is_v2 else _V1_FILES[controller]
        if not os.access(place / room / probe, os.W_OK):
            return f"{place / room / probe} cannot be written"
    except OSError as error:
        return f"{place}: {error.strerror or error}; give the agent a group of its own (systemd: Delegate=yes)"
    return ""


def _enable(place: Path, controller: str) -> None:
    """Hands a controller down. A group that has processes must not, unless it is the root: they move into a leaf."""
    control = place / "cgroup.subtree_control"
    if controller in _words(control):
        return
    try:
        write(str(control), f"+{controller}".encode())
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        leaf = place / "headway-agent"
        leaf.mkdir(exist_ok=True)
        for pid in _words(place / "cgroup.procs"):
            try_write(str(leaf / "cgroup.procs"), pid.encode())
        write(str(control), f"+{controller}".encode())


def _what_is_missing(parents: Mapping[str, Path], missing: Mapping[str, str], kind: str) -> dict[str, str]:
    found = {
        controller: missing.get(controller, f"this machine ({kind}) has no {controller} controller")
        for controller in LIMITS
        if controller not in parents
    }
    second = parents.get("v2")
    if second is None and "freezer" not in parents:
        found["freeze"] = missing.get("v2", missing.get("freezer", "no freezer"))
    if second is None and not parents:
        found["kill"] = missing.get("v2", "no group of its own")
    return found


def _settings(limits: Limits, is_v2: frozenset[str]) -> Iterator[tuple[str, str, bytes]]:
    """Controller, file and text for each limit."""
    if limits.cpu_milli is not None:
        quota = max(QUOTA_US_MIN, limits.cpu_milli * PERIOD_US // 1000)
        if "cpu" in is_v2:
            yield "cpu", "cpu.max", f"{quota} {PERIOD_US}".encode()
        else:
            yield "cpu", "cpu.cfs_quota_us", str(quota).encode()
    if limits.cpu_weight_milli is not None:
        if "cpu" in is_v2:
            yield "cpu", "cpu.weight", str(_between(WEIGHTS, limits.cpu_weight_milli // 10)).encode()
        else:
            yield "cpu", "cpu.shares", str(_between(SHARES, limits.cpu_weight_milli * 1024 // 1000)).encode()
    if limits.memory_bytes is not None:
        yield (
            "memory",
            "memory.max" if "memory" in is_v2 else "memory.limit_in_bytes",
            str(limits.memory_bytes).encode(),
        )
    if limits.pids is not None:
        yield "pids", "pids.max", str(limits.pids).encode()


def _between(bounds: tuple[int, int], value: int) -> int:
    return max(bounds[0], min(bounds[1], value))


def _within(mount: Path, path: str) -> Path:
    """In a container the path may be the host's, and the mount itself is our group."""
    return mount / path if (mount / path).is_dir() else mount


def _sum_after(word: str, text: str) -> int:
    """The sum of all numbers behind a word."""
    return sum(int(rest.split(None, 1)[0]) for rest in text.split(word)[1:])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
