"""The profile `sandboxed`: a task in namespaces of its own, as a user of its own, with nothing of ours.

Everything that is the same for all tasks is made once, when the agent starts; what is left for each is a directory, a
user, a pipe and a list of options in memory. The promise is fail closed: `Sandbox.made` tries the walls with a real
program, and a machine on which they cannot be had gets the reason instead of a sandbox with holes.

bubblewrap is started with an environment of two numbers and a mark, for a task can read that of its first process. The
task's own comes over a descriptor, so that neither `ps` nor bubblewrap itself meets it: LD_PRELOAD is for the task.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from headway.agent.gpus import inside
from headway.agent.leftovers import adopt_orphans, kill_group
from headway.agent.runners.spawn import DEFAULT_PATH, LACKS, NotSpawned, not_started, spawn
from headway.agent.sandbox import airlock, bubblewrap, seccomp, view
from headway.agent.sandbox.grounds import grounds, room_of
from headway.agent.sandbox.groups import children_of
from headway.agent.sandbox.identities import Identities, Identity, NoIdentities
from headway.agent.sandbox.namespaces import INSIDE
from headway.agent.sandbox.syscalls import ARCHITECTURES
from headway.agent.sandbox.view import located
from headway.files.removing import remove
from headway.wire import Outcome

SCRIPT = "/run/headway/script"
AIRLOCK = "/run/headway/airlock"
PLACES = "/run/headway/places"
"""Where a slot is shown all workspaces while it is made (see slot.py)."""
MIB = 1024 * 1024
ROOT_BYTES = 16 * MIB
"""For links, empty directories and the script; read-only once it is made."""
TMP_BYTES = 64 * MIB
SHM_BYTES = 64 * MIB
PROBE_SECONDS = 10.0
STATUS_BYTES = 4096
SAID_MAX = 300
VARIABLES_MAX = 2500
"""bubblewrap takes 9,000 words."""

NAMESPACES = (
    "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--unshare-net", "--die-with-parent",
    "--new-session", "--hostname", "headway",
)  # fmt: skip


class _Told(msgspec.Struct, rename="kebab"):
    """What bubblewrap tells: first who its child is, at the end with which code the task ended, if it began."""

    child_pid: int = 0
    exit_code: int | None = None


_told = msgspec.json.Decoder(_Told)


@dataclass(frozen=True, slots=True)
class View:
    """What a task sees as its machine, and as whom: bubblewrap's options before and after those of one attempt."""

    before: list[str]
    after: list[str]
    user: tuple[int, int] | None = None
    """Its user and group inside; None: as in every sandbox."""
    lacks: str = LACKS
    """What is said of a program that is not there."""
    program: str | None = None
    """Another bubblewrap than the sandbox's."""
    directory: str = view.WORKSPACE
    """Where it starts unless it says where."""
    root: str | None = None
    """Where on the node its root is, if it is one of its own."""


@dataclass(slots=True)
class Cell:
    """What one attempt holds of the sandbox."""

    identity: Identity | None
    status: int = -1
    """Where bubblewrap tells how far it came."""
    gate: int = -1
    """Where bubblewrap waits to be told what to do."""
    words: bytes = b""
    """Its options."""
    first: int = 0
    """The process that is number 1 inside; when it is gone, so is everything."""
    has_run: bool = False
    program: str = ""
    view: View | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How warm slots are made (see slots.py)."""

    words: list[str]
    """bubblewrap and its options."""
    filter: str
    """The file with the list of system calls."""
    identities: Identities
    tmp_bytes: int
    shm_bytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """What has to be started for a task to run in its cell, and the descriptors that are closed when it is."""

    argv: list[str]
    environ: dict[str, str]
    fds: dict[int, int] = field(default_factory=dict[int, int])

    def close(self) -> None:
        """It was started."""
        for descriptor in self.fds.values():
            os.close(descriptor)


class Sandbox:
    """Starts tasks in cells. One for the whole agent."""

    def __init__(self, program: str, place: Path, identities: Identities | None, more: tuple[Path, ...]) -> None:
        self.place = place
        self._program = program
        self._identities = identities
        self._more = more
        self._filter = str(place / "seccomp.bpf")
        here = os.environ.get("PATH", "").split(":")
        self._path = ":".join(one for one in here if view.is_shown(one, more)) or DEFAULT_PATH
        etc = self._etc = view.settings(place)
        Path(self._filter).write_bytes(seccomp.program(os.uname().machine))
        self._landlock = airlock.landlock_version()
        self._airlocks = self._made_airlocks()
        before = [
            *NAMESPACES, "--uid", str(INSIDE), "--gid", str(INSIDE), "--cap-drop", "ALL",
            "--size", str(ROOT_BYTES), "--tmpfs", "/", *view.shown(more), "--ro-bind", str(etc), "/etc",
            "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm",
            "--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--dir", "/run", "--perms", "0755",
            "--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--dir", view.WORKSPACE,
        ]  # fmt: skip
        self._view = View(before, ["--remount-ro", "/dev", "--remount-ro", "/"])

    @classmethod
    def made(cls, data_dir: Path, more: tuple[Path, ...] = ()) -> Sandbox | str:
        """The sandbox of the agent that owns this directory, tried; or why there can be none here."""
        if os.uname().machine not in ARCHITECTURES:
            return f"its system calls are known for {', '.join(sorted(ARCHITECTURES))}, not for {os.uname().machine}"
        adopt_orphans()
        program = bubblewrap.find()
        if isinstance(program, str):
            return program
        try:
            place = grounds(data_dir)
            identities = Identities(room_of(data_dir)) if os.geteuid() == 0 else None
        except OSError as error:
            return f"its files cannot be made: {error}"
        sandbox = cls(program.path, place, identities, more)
        wrong = sandbox.tried()
        if not wrong:
            return sandbox
        sandbox.close()
        return wrong

    @property
    def etc(self) -> Path:
        """The settings that tasks see."""
        return self._etc

    @property
    def workspaces(self) -> Path:
        """The directory in which each task's is."""
        return self.place / "attempts"

    def slots(self, users: int) -> Plan | None:
        """What warm slots are made by, each for so many users one after the other; None where there are none."""
        if self._identities is None:
            return None
        lists = self.place / "users"
        lists.mkdir(mode=0o755, exist_ok=True)
        lists.chmod(0o755)
        view.make_users(lists, users)
        words = [self._program, *self._view.before]
        for name in ("passwd", "group"):
            words += ["--ro-bind", str(lists / name), f"/etc/{name}"]
        words += ["--bind", str(self.workspaces), PLACES, *self._view.after, "--chdir", "/"]
        return Plan(words, self._filter, self._identities, TMP_BYTES, SHM_BYTES)

    @property
    def has_users(self) -> bool:
        """Whether each task is a user of its own on this machine."""
        return self._identities is not None

    @property
    def made_by(self) -> str:
        """What makes the walls here."""
        landlock = f", Landlock {self._landlock}" if self._airlocks and self._landlock else ""
        return f"{self._program}{landlock}"

    @property
    def degraded(self) -> dict[str, str]:
        """What it cannot do here as well as elsewhere, and why."""
        found: dict[str, str] = {}
        if self._identities is None:
            found["users"] = (
                "the agent is not root: sandboxed tasks run as its own user, parted by namespaces, and in no warm slots"
            )
        if not self._airlocks:
            found["airlock"] = f"it is made for {airlock.MACHINE}: here, no Landlock and no bound on open files"
        elif self._landlock < airlock.LANDLOCK_LEAST:
            found["landlock"] = "this kernel has none, or too old a one: namespaces and permissions alone part files"
        return found

    def _made_airlocks(self) -> dict[bool, str]:
        """The airlocks for a root of the task's own (True) and for the node's."""
        if os.uname().machine != airlock.MACHINE:
            return {}
        found: dict[bool, str] = {}
        for has_root in (True, False):
            path = self.place / f"airlock-{'image' if has_root else 'node'}"
            path.write_bytes(airlock.program(self._landlock, has_root=has_root))
            found[has_root] = str(path)
        return found

    def environment(self) -> dict[str, str]:
        """What every task finds in its environment."""
        return {
            "PATH": self._path,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "HOME": view.WORKSPACE,
            "TMPDIR": "/tmp",
            "USER": view.USER,
        }

    def take(self) -> Cell:
        """A cell of a user that nothing else runs as. Raises OSError."""
        try:
            return Cell(self._identities.take() if self._identities is not None else None)
        except NoIdentities as none:
            raise OSError(str(none)) from none

    def give(self, cell: Cell) -> None:
        """Everything in it is dead."""
        _shut(cell)
        if cell.status >= 0:
            os.close(cell.status)
            cell.status = -1
        if cell.identity is not None and self._identities is not None:
            self._identities.give(cell.identity)
            cell.identity = None

    def launch(
        self, cell: Cell, argv: list[str], environ: dict[str, str], directory: str, artifacts: str, *,
        mark: dict[str, str], script: str | None = None, workdir: str | None = None, view: View | None = None,
        network: bool = False, tmp_bytes: int = TMP_BYTES, devices: Sequence[Path] = (),
    ) -> Launch | NotSpawned:  # fmt: skip
        """How to start a program with this environment, working in `directory`, or in what is there at `workdir`, and
        leaving what is to be kept in `artifacts`. `mark` is told to bubblewrap itself. Raises OSError."""
        cell.view = seen = view or self._view
        if network or devices or tmp_bytes != TMP_BYTES:
            cell.view = seen = _with(seen, network=network, tmp_bytes=tmp_bytes, devices=devices)
        cell.program = argv[0]
        path = located(argv[0], environ.get("PATH", DEFAULT_PATH), directory, seen.root, self._more)
        if path is None:
            return NotSpawned(Outcome.FAILED, f"program not found: {argv[0]!r} {seen.lacks}")
        try:
            spoken = _spoken(environ, mark)
        except ValueError as error:
            return NotSpawned(Outcome.FAILED, f"cannot be started: {error}")
        if cell.identity is not None:
            for one in (directory, artifacts):
                os.chown(one, cell.identity.user, cell.identity.user)
        launch = Launch([seen.program or self._program], mark)
        try:
            self._complete(launch, cell, seen, spoken, (directory, artifacts), script, workdir)
        except OSError:
            launch.close()
            raise
        launch.argv.extend(("--", AIRLOCK, path, *argv) if self._airlocks else ("--", *argv))
        return launch

    def _complete(
        self, launch: Launch, cell: Cell, seen: View, spoken: bytes, places: tuple[str, str], script: str | None,
        workdir: str | None,
    ) -> None:  # fmt: skip
        """Opens what bubblewrap is handed, and writes down its options."""
        fds = launch.fds
        cell.status, told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        gate, cell.gate = os.pipe2(os.O_CLOEXEC)
        fds |= {told: told, gate: gate}
        words = [*seen.before, "--json-status-fd", str(told)]
        words += ["--seccomp", str(_opened(self._filter, fds))]
        words += self._as_whom(cell, seen.user, fds)
        words += ["--bind", places[0], view.WORKSPACE, "--bind", places[1], view.ARTIFACTS]
        if self._airlocks:
            lock = self._airlocks[seen.root is not None]
            words += ["--perms", "0555", "--file", str(_opened(lock, fds)), AIRLOCK]
        if script is not None:
            words += ["--perms", "0555", "--file", str(_opened(script, fds)), SCRIPT]
        starts_in = seen.directory if workdir is None else f"{view.WORKSPACE}/{workdir}".rstrip("/")
        words += [*seen.after, "--chdir", starts_in]
        cell.words = b"".join(os.fsencode(word) + b"\0" for word in words)
        launch.argv.extend(("--args", str(_in_memory(spoken, fds)), "--args", str(gate)))

    def _as_whom(self, cell: Cell, user: tuple[int, int] | None, fds: dict[int, int]) -> list[str]:
        if cell.identity is None or self._identities is None:
            return ["--unshare-user"]
        namespace = os.dup(cell.identity.namespace)
        fds[namespace] = namespace
        words = ["--userns", str(namespace)]
        if not self._airlocks:
            words += ["--sync-fd", str(namespace)]  # which closes it in the task
        if user is not None and user != (INSIDE, INSIDE):
            within = os.dup(self._identities.as_another(cell.identity, user))
            fds[within] = within
            words += ["--userns2", str(within)]
        return words

    def release(self, cell: Cell) -> None:
        """bubblewrap may begin: it is where its limits are. Until it has read its options it has forked nobody; who
        hangs up without a word leaves it with a root that has nothing in it, and no task begins."""
        if cell.gate >= 0:
            with contextlib.suppress(BrokenPipeError):  # it is dead, and its status says why
                _write_all(cell.gate, cell.words)
        _shut(cell)

    def asks(self, pid: int) -> None:
        """Tells a task politely to end: everything in the session of its first process, bubblewrap's own except."""
        for init in children_of(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(init, signal.SIGTERM)

    def remains(self, cell: Cell) -> int:
        """bubblewrap has ended: kills the rest, and answers a descriptor that can be read when all of it is dead; -1
        when it is already. The kernel would do it, but not from bubblewrap's user to the task's."""
        _hear(cell)
        if not cell.first:
            return -1
        try:
            remains = os.pidfd_open(cell.first)
        except ProcessLookupError:
            return -1
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(remains, signal.SIGKILL)
        return remains

    def bury(self, cell: Cell) -> None:
        """Everything is dead; its first process became our child when bubblewrap ended."""
        if cell.first:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(cell.first, os.WNOHANG)

    def wrong(self, cell: Cell, status: int, said: bytes) -> NotSpawned | None:
        """Why a task did not begin although bubblewrap did; None when it ran. A task can say what bubblewrap says, but
        not where bubblewrap says that it ran."""
        lacks = cell.view.lacks if cell.view is not None else self._view.lacks
        match status, said:
            case airlock.NOT_EXECUTED_CODE, airlock.NOT_EXECUTED:
                return NotSpawned(Outcome.FAILED, f"{cell.program!r} {lacks}. Or {_NOT_EXECUTED}")
            case airlock.NOT_CLOSED_CODE, airlock.NOT_CLOSED:
                return NotSpawned(Outcome.FAILED, "its sandbox could not be closed; see `headway doctor` on the node")
            case _ if status < 0 or cell.has_run:
                return None
            case _:
                pass
        text = said.decode(errors="replace").strip()[:SAID_MAX]
        program, _, why = text.removeprefix("bwrap: execvp ").rpartition(": ")
        if program and text.startswith("bwrap: execvp "):
            return NotSpawned(Outcome.FAILED, not_started(program, why, lacks))
        what = f"the node could not make its sandbox: {text or f'exit {status}'}; see `headway doctor` there"
        return NotSpawned(Outcome.LOST, what)

    def tried(self, seen: Callable[[Cell], View] | None = None) -> str:
        """Runs a program in it; what was wrong, if anything."""
        directory = self.place / "trial"
        try:
            directory.mkdir(mode=0o700)
            cell = self.take()
        except OSError as error:
            return str(error)
        try:
            return self._tried(cell, str(directory), None if seen is None else seen(cell))
        except OSError as error:
            return str(error)
        finally:
            self.give(cell)
            shutil.rmtree(directory, ignore_errors=True)

    def _tried(self, cell: Cell, directory: str, seen: View | None) -> str:
        words = ["/bin/sh", "-c", ":"]
        launch = self.launch(cell, words, self.environment(), directory, directory, mark={}, view=seen)
        if isinstance(launch, NotSpawned):
            return launch.message
        heard, said = os.pipe2(os.O_CLOEXEC)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            pid = spawn(launch.argv, launch.environ, directory, {0: null, 1: said, 2: said, **launch.fds})
        finally:
            launch.close()
            os.close(said)
            os.close(null)
            self.release(cell)
        with os.fdopen(heard, "rb") as output:
            if isinstance(pid, NotSpawned):
                return pid.message
            watch = os.pidfd_open(pid)
            if not select.select([watch], [], [], PROBE_SECONDS)[0]:
                kill_group(pid)
            os.close(watch)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self._wait_for_rest(cell)
            text = output.read(SAID_MAX).decode(errors="replace").strip()
        return "" if status == 0 else f"a trial of it failed: {text or f'status {status}'}"

    def _wait_for_rest(self, cell: Cell) -> None:
        remains = self.remains(cell)
        if remains >= 0:
            select.select([remains], [], [], PROBE_SECONDS)
            os.close(remains)
        self.bury(cell)

    def close(self) -> None:
        """Gives everything back."""
        if self._identities is not None:
            self._identities.close()
        remove(self.place)


def _spoken(environ: dict[str, str], mark: dict[str, str]) -> bytes:
    """The task's environment as options. What comes from the task must not end a word: another would begin."""
    if len(environ) > VARIABLES_MAX:
        raise ValueError(f"more than {VARIABLES_MAX} variables in its environment; pass the data in a file")
    words = [word for name, value in environ.items() for word in ("--setenv", name, value)]
    words += [word for name in mark.keys() - environ.keys() for word in ("--unsetenv", name)]
    if any("\0" in word for word in words):
        raise ValueError("its environment has a NUL in it; remove it")
    return "".join(f"{word}\0" for word in words).encode()


def _shut(cell: Cell) -> None:
    gate, cell.gate = cell.gate, -1
    if gate >= 0:
        os.close(gate)


def _write_all(descriptor: int, body: bytes) -> None:
    while body:
        body = body[os.write(descriptor, body) :]


def _opened(path: str, fds: dict[int, int]) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fds[descriptor] = descriptor
    return descriptor


def _in_memory(body: bytes, fds: dict[int, int]) -> int:
    """A file of no directory, to be read from its beginning."""
    descriptor = os.memfd_create("options", os.MFD_CLOEXEC)
    fds[descriptor] = descriptor
    os.write(descriptor, body)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _hear(cell: Cell) -> None:
    """Takes in what bubblewrap told."""
    with contextlib.suppress(BlockingIOError, msgspec.DecodeError):
        for line in os.read(cell.status, STATUS_BYTES).splitlines():
            told = _told.decode(line)
            cell.first = told.child_pid or cell.first
            cell.has_run = cell.has_run or told.exit_code is not None


_NOT_EXECUTED = "it lacks `chmod +x`, or a first line such as #!/bin/sh, or what that line names"


def _with(seen: View, *, network: bool, tmp_bytes: int, devices: Sequence[Path]) -> View:
    """A view with the node's network, another /tmp, or devices that were lent."""
    before = [word for word in seen.before if not (network and word == "--unshare-net")]
    before[before.index("/tmp") - 2] = str(tmp_bytes)
    at = before.index("--dev") + 2
    before[at:at] = [word for path in devices for word in ("--dev-bind", str(path), inside(path))]
    return replace(seen, before=before)
