"""The profile `hostile`: gVisor between the task and the kernel.

runsc gives the task a kernel of its own, in Go, that asks the real one for little. Its sandbox runs as nobody, the
helper that opens files as the task's own user. The promise is fail closed: `Hostile.made` runs a program in it, on each
platform in turn, and a node on which none works does not announce the profile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headway.agent.images.store import Root
from headway.agent.runners.spawn import NotSpawned
from headway.agent.sandbox import bundle, view
from headway.agent.sandbox.namespaces import INSIDE
from headway.agent.sandbox.sandboxed import SCRIPT, Cell, Launch, Sandbox
from headway.wire import Outcome

VARIABLE = "HEADWAY_RUNSC"
PLATFORM = "HEADWAY_RUNSC_PLATFORM"
PLATFORMS = ("systrap", "ptrace")
"""The newer one first; kvm only when it is asked for: where the machine is virtual itself it may hang."""
PROBE_SECONDS = 15.0
KILL_SECONDS = 5.0
SAID_MAX = 300
FAILED_STATUS = 128
_FATAL = "FATAL ERROR: "


@dataclass(slots=True)
class HostileCell(Cell):
    """What one attempt holds: a user, and a bundle."""

    bundle: str = ""
    name: str = ""
    """On the whole machine: gVisor has a socket of this name."""


class Hostile:
    """Starts tasks in gVisor. One for the whole agent, beside its sandbox, whose users it shares."""

    def __init__(self, sandbox: Sandbox, program: str, platform: str) -> None:
        self._sandbox = sandbox
        self._program = program
        self._platform = platform
        self._bundles = sandbox.place / "bundles"
        self._bundles.mkdir(mode=0o711, exist_ok=True)
        self._bundles.chmod(0o711)
        self._skeleton = sandbox.place / "skeleton"
        self._shown, linked = bundle.shown()
        self._make_skeleton(linked)
        self._made = 0

    @classmethod
    def made(cls, sandbox: Sandbox) -> Hostile | str:
        """The gVisor of this machine, tried; or why there is none."""
        program = os.environ.get(VARIABLE) or shutil.which("runsc")
        if program is None:
            return "there is no runsc: install gVisor"
        if not sandbox.has_users:
            return "runsc needs an agent that is root"
        named = os.environ.get(PLATFORM)
        wrong = ""
        for platform in (named,) if named else PLATFORMS:
            hostile = cls(sandbox, program, platform)
            wrong = hostile._tried()
            if not wrong:
                return hostile
        return wrong

    def take(self) -> HostileCell:
        """A cell of a user that nothing else runs as. Raises OSError."""
        self._made += 1
        place = self._bundles / str(self._made)
        for path in (place, place / "state", place / "script"):
            path.mkdir(mode=0o711)
            path.chmod(0o711)
        return HostileCell(self._sandbox.take().identity, bundle=str(place), name=f"headway-{secrets.token_hex(8)}")

    def launch(
        self, cell: HostileCell, argv: list[str], environ: dict[str, str], places: tuple[str, str], *,
        mark: dict[str, str], script: str | None = None, workdir: str | None = None, root: Root | None = None,
    ) -> Launch | NotSpawned:  # fmt: skip
        """How to start a program with this environment, in this machine's view or in an image, with these directories
        to work in and to leave things in. Raises OSError."""
        assert cell.identity is not None, "there are users"
        words = [*argv, *environ, *environ.values()]
        if any("\0" in word for word in words):
            return NotSpawned(Outcome.FAILED, "cannot be started: there is a NUL in it; remove it")
        for place in places:
            os.chown(place, cell.identity.user, cell.identity.user)
        self._show(cell, script)
        furnished = None if root is None else root.note.furnished
        begins = furnished.directory if furnished is not None and workdir is None else ""
        vessel = bundle.Vessel(
            argv=argv,
            environ=environ,
            root=self._skeleton if root is None else root.path,
            is_read_only=root is None,
            directory=begins or f"{view.WORKSPACE}/{workdir or ''}".rstrip("/"),
            user=(INSIDE, INSIDE) if furnished is None else (furnished.uid, furnished.gid),
            host_user=cell.identity.user,
            shown={**(self._shown | {"/etc": str(self._sandbox.etc)} if root is None else {}),
                   "/run/headway": f"{cell.bundle}/script"},
            written={view.WORKSPACE: places[0], view.ARTIFACTS: places[1]},
        )  # fmt: skip
        Path(cell.bundle, "config.json").write_bytes(bundle.config(vessel))
        return Launch([*self._words(cell), "run", "-bundle", cell.bundle, cell.name], mark)

    def asks(self, cell: HostileCell) -> None:
        """Tells a task politely to end; in a thread, for it is a program that has to be run."""
        asyncio.get_running_loop().run_in_executor(None, self._kill, self._words(cell), cell.name)

    def tells(self, cell: HostileCell, number: signal.Signals) -> None:
        """A signal to its first process; in a thread, too."""
        name = number.name.removeprefix("SIG")
        asyncio.get_running_loop().run_in_executor(None, self._kill, self._words(cell), cell.name, name)

    def wrong(self, cell: HostileCell, status: int) -> NotSpawned | None:
        """Why a task did not begin although runsc did; None when it ran. The log is not the task's to write."""
        if status != FAILED_STATUS:
            return None
        said = ""
        with contextlib.suppress(OSError):
            _, _, said = Path(cell.bundle, "log").read_text(errors="replace").rpartition(_FATAL)
        said = said.strip()[-SAID_MAX:]
        if not said:
            return None
        if "failed to load " in said or "error finding executable" in said:
            return NotSpawned(Outcome.FAILED, f"program not found: {said.rpartition(': starting sandbox: ')[2]}")
        return NotSpawned(Outcome.LOST, f"the node could not make its sandbox: {said}; see `headway doctor` there")

    def give(self, cell: HostileCell) -> None:
        """Everything in it is dead."""
        self._sandbox.give(cell)
        shutil.rmtree(cell.bundle, ignore_errors=True)

    def _words(self, cell: HostileCell) -> list[str]:
        return [
            self._program, "--root", f"{cell.bundle}/state", "--platform", self._platform, "--network", "none",
            "--ignore-cgroups", "--overlay2=root:memory", "--log", f"{cell.bundle}/log",
        ]  # fmt: skip

    def _kill(self, words: list[str], name: str, number: str = "TERM") -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            words = [*words, "kill", name, number]
            subprocess.run(words, env={}, capture_output=True, timeout=KILL_SECONDS, check=False)

    def _show(self, cell: HostileCell, script: str | None) -> None:
        """The directory that is shown as /run/headway: the script, if there is one."""
        place = Path(cell.bundle, "script")
        (place / Path(view.ARTIFACTS).name).mkdir(mode=0o755)
        if script is not None:
            shown = place / Path(SCRIPT).name
            shutil.copyfile(script, shown)
            shown.chmod(0o555)

    def _make_skeleton(self, linked: dict[str, str]) -> None:
        """An empty root with places for what is shown in it."""
        shutil.rmtree(self._skeleton, ignore_errors=True)
        names = [*self._shown, "/etc", "/proc", "/dev", "/tmp", "/run/headway", "/var", view.WORKSPACE]
        for name in names:
            (self._skeleton / name.lstrip("/")).mkdir(mode=0o755, parents=True, exist_ok=True)
        for name, target in linked.items():
            (self._skeleton / name.lstrip("/")).symlink_to(target)
        (self._skeleton / "var/tmp").symlink_to("/tmp")
        for directory in (self._skeleton, *(path for path in self._skeleton.rglob("*") if not path.is_symlink())):
            directory.chmod(0o755)

    def _tried(self) -> str:
        """Runs a program in it; what was wrong, if anything."""
        place = self._sandbox.place / "trial-hostile"
        cell = None
        try:
            for name in ("work", "left"):
                (place / name).mkdir(mode=0o700, parents=True)
            place.chmod(0o711)
            cell = self.take()
            places = (str(place / "work"), str(place / "left"))
            launch = self.launch(cell, ["/bin/sh", "-c", ":"], self._sandbox.environment(), places, mark={})
            if isinstance(launch, NotSpawned):
                return launch.message
            done = subprocess.run(
                launch.argv, env=launch.environ, capture_output=True, timeout=PROBE_SECONDS, check=False,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"a trial of runsc on {self._platform} did not end"
        except OSError as error:
            return str(error)
        finally:
            if cell is not None:
                self.give(cell)
            shutil.rmtree(place, ignore_errors=True)
        said = (done.stderr + done.stdout).decode(errors="replace").strip()[-SAID_MAX:]
        return "" if done.returncode == 0 else f"a trial of runsc on {self._platform} failed: {said or done.returncode}"
