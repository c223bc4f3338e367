"""How an attempt is started under its profile: what is executed, in which environment, behind which walls."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headway.agent.leftovers import MARKER
from headway.agent.runners import scripts
from headway.agent.runners.attempt import Attempt
from headway.agent.runners.checkpoints import place
from headway.agent.runners.directories import Directories, artifacts_of
from headway.agent.runners.lending import Lending
from headway.agent.runners.output import OUTPUT
from headway.agent.runners.spawn import DEFAULT_PATH, NotSpawned, Pid, spawn
from headway.agent.sandbox.cgroups import Usage
from headway.agent.sandbox.containers import Containers
from headway.agent.sandbox.engines import Engine, EngineCell
from headway.agent.sandbox.groups import children_of
from headway.agent.sandbox.hostile import Hostile, HostileCell
from headway.agent.sandbox.sandboxed import SCRIPT, TMP_BYTES, Cell, Sandbox
from headway.agent.sandbox.slots import Job, Slots, Word
from headway.agent.sandbox.view import ARTIFACTS, WORKSPACE
from headway.core.context import idempotency_key
from headway.core.profiles import CONTAINER, HOSTILE, SANDBOXED, TRUSTED
from headway.wire import Outcome


@dataclass(frozen=True, slots=True)
class Walls:
    """What this node can shut tasks in with."""

    sandbox: Sandbox | None = None
    containers: Containers | None = None
    hostile: Hostile | None = None
    engine: Engine | None = None
    """Instead of our own containers."""

    @property
    def profiles(self) -> tuple[str, ...]:
        """How closed in it can run processes."""
        there = {SANDBOXED: self.sandbox, CONTAINER: self.engine or self.containers, HOSTILE: self.hostile}
        return (TRUSTED, *(profile for profile, walls in there.items() if walls is not None))


NO_WALLS = Walls()


class Starting:
    """Starts attempts, in a sandbox those that have to be."""

    def __init__(
        self,
        *,
        marker: str,
        directories: Directories,
        lending: Lending,
        walls: Walls,
        slots: Slots | None,
        clock: Callable[[], float],
    ) -> None:
        self._marker = marker
        self._directories: dict[str, Directories] = {TRUSTED: directories}
        sandbox = walls.sandbox
        if sandbox is not None:
            closed = Directories(sandbox.workspaces, mode=0o711)
            self._directories |= {SANDBOXED: closed, CONTAINER: closed, HOSTILE: closed}
        self._lending = lending
        self._sandbox = sandbox
        self._containers = walls.containers
        self._hostile = walls.hostile
        self._engine = walls.engine
        self._slots = slots
        self._clock = clock
        self._environ = {
            "PATH": os.environ.get("PATH", DEFAULT_PATH),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }

    @property
    def roots(self) -> list[str]:
        """In which directories attempts work."""
        return sorted({directories.root for directories in self._directories.values()})

    def argv(self, attempt: Attempt, script: Path) -> list[str]:
        """What to execute of a script that is in this file."""
        attempt.script = str(script)
        shown_as = attempt.script if attempt.assignment.profile == TRUSTED else SCRIPT
        return [*scripts.argv(script, shown_as), *attempt.words.args]

    def command(self, attempt: Attempt) -> list[str]:
        """What to execute when there is no script: the command, or what its image says."""
        if attempt.root is None or self._containers is None:
            return attempt.words.command or []
        return self._containers.argv(attempt.root, attempt.words.command)

    def prepare(self, attempt: Attempt) -> None:
        """Gives it directories, and a user to own them. Raises OSError."""
        attempt.directory = self._directories[attempt.assignment.profile].take()
        if attempt.assignment.profile == CONTAINER and self._engine is not None:
            attempt.cell = self._engine.take()
        elif attempt.assignment.profile in (SANDBOXED, CONTAINER) and self._sandbox is not None:
            attempt.cell = self._sandbox.take()
        if attempt.assignment.profile == HOSTILE and self._hostile is not None:
            attempt.cell = self._hostile.take()

    def spawn(self, attempt: Attempt, argv: list[str], fds: dict[int, int]) -> Pid | NotSpawned:
        """Starts it with these descriptors. Raises OSError."""
        match attempt.assignment.profile, self._sandbox:
            case profile, _ if profile == TRUSTED:
                left = artifacts_of(attempt.directory)
                mine = {**self._variables(attempt, attempt.directory, left), MARKER: self._marker}
                private = {"HOME": attempt.directory, "TMPDIR": attempt.directory}
                environ = {**self._environ, **private, **attempt.words.env, **mine}
                return spawn(argv, environ, f"{attempt.directory}/{attempt.words.workdir or '.'}", fds)
            case profile, _ if attempt.words.network and (
                profile == HOSTILE or (self._engine and profile == CONTAINER)
            ):
                return NotSpawned(
                    Outcome.FAILED, f"there is no network for {profile} tasks on this node; do without it"
                )
            case profile, _ if profile == HOSTILE and attempt.gpus:
                return NotSpawned(Outcome.FAILED, "there are no GPUs for hostile tasks: take another profile")
            case profile, Sandbox() as sandbox if profile == CONTAINER and self._engine is not None:
                return self._spawn_in_engine(sandbox, self._engine, attempt, argv, fds)
            case _ if not argv:
                return NotSpawned(Outcome.FAILED, "there is nothing to run: the image names no program; give a command")
            case profile, Sandbox() as sandbox if profile in (SANDBOXED, CONTAINER):
                return self._spawn_sandboxed(sandbox, attempt, argv, fds)
            case profile, Sandbox() as sandbox if profile == HOSTILE and self._hostile is not None:
                return self._spawn_hostile(sandbox, self._hostile, attempt, argv, fds)
            case profile, _:
                raise AssertionError(f"the executor took an attempt that has to be {profile}")

    def _spawn_sandboxed(
        self, sandbox: Sandbox, attempt: Attempt, argv: list[str], fds: dict[int, int]
    ) -> Pid | NotSpawned:
        cell = attempt.cell
        assert cell is not None, "it was prepared"
        environ, view = sandbox.environment(), None
        if attempt.root is not None and self._containers is not None:
            environ = self._containers.environment(attempt.root)
            view = self._containers.view(attempt.root, cell, _layer(attempt), attempt.devices)
            attempt.layers = self._containers.layers(_layer(attempt))
        mine = self._variables(attempt, WORKSPACE, ARTIFACTS)
        launch = sandbox.launch(
            cell,
            argv,
            {**environ, **attempt.words.env, **mine},
            attempt.directory,
            artifacts_of(attempt.directory),
            mark=self._mark(mine),
            script=attempt.script,
            workdir=attempt.words.workdir,
            view=view,
            network=attempt.words.network,
            tmp_bytes=attempt.words.tmp or TMP_BYTES,
            devices=attempt.devices if view is None else (),
        )
        if isinstance(launch, NotSpawned):
            return launch
        try:
            return spawn(launch.argv, launch.environ, "/", {**fds, **launch.fds})
        finally:
            launch.close()

    def _spawn_hostile(
        self, sandbox: Sandbox, hostile: Hostile, attempt: Attempt, argv: list[str], fds: dict[int, int]
    ) -> Pid | NotSpawned:
        cell, root = attempt.cell, attempt.root
        assert isinstance(cell, HostileCell), "it was prepared"
        environ = sandbox.environment()
        if root is not None and self._containers is not None:
            environ = self._containers.environment(root)
        mine = self._variables(attempt, WORKSPACE, ARTIFACTS)
        launch = hostile.launch(
            cell,
            argv,
            {**environ, **attempt.words.env, **mine},
            (attempt.directory, artifacts_of(attempt.directory)),
            mark=self._mark(mine),
            script=attempt.script,
            workdir=attempt.words.workdir,
            root=root,
        )
        return launch if isinstance(launch, NotSpawned) else spawn(launch.argv, launch.environ, "/", fds)

    def _spawn_in_engine(
        self, sandbox: Sandbox, engine: Engine, attempt: Attempt, argv: list[str], fds: dict[int, int]
    ) -> Pid | NotSpawned:
        cell = attempt.cell
        assert isinstance(cell, EngineCell), "it was prepared"
        assert attempt.words.image is not None, "what has no image is not admitted as a container"
        mine = self._variables(attempt, WORKSPACE, ARTIFACTS)
        launch = engine.launch(
            cell,
            attempt.words.image,
            (argv or None, attempt.script),
            {"HOME": WORKSPACE, "TMPDIR": sandbox.environment()["TMPDIR"], **attempt.words.env, **mine},
            (attempt.directory, artifacts_of(attempt.directory)),
            mark=self._mark(mine),
            needs=attempt.assignment.needs,
            devices=attempt.devices,
            workdir=attempt.words.workdir,
        )
        if isinstance(launch, NotSpawned):
            return launch
        try:
            return spawn(launch.argv, launch.environ, "/", {**fds, **launch.fds})
        finally:
            launch.close()

    def starved(self, attempt: Attempt, usage: Usage | None) -> bool:
        """Whether it was killed for its memory."""
        if isinstance(attempt.cell, EngineCell) and self._engine is not None:
            return self._engine.is_out_of_memory(attempt.cell)
        return usage is not None and usage.oom_kills > 0

    def _mark(self, mine: dict[str, str]) -> dict[str, str]:
        """What is told to the first process of a sandbox, for it to be found by."""
        return {MARKER: self._marker, **{name: mine[name] for name in ("HEADWAY_TASK_ID", "HEADWAY_ATTEMPT")}}

    def runs_warm(self, attempt: Attempt, argv: list[str], output: int, hear: Callable[[Word], None]) -> bool:
        """Starts it in a warm slot, if it may and one is there; `hear` is told how it goes. What a bundle brought is
        another user's already."""
        words = attempt.words
        if attempt.assignment.profile != SANDBOXED or words.fresh or words.bundle is not None or words.workdir:
            return False
        if words.network or words.tmp is not None or attempt.devices:
            return False
        if words.checkpoint is not None or words.cap_warning is not None:  # these are long, and may move
            return False
        if self._slots is None or self._sandbox is None or attempt.held is None:
            return False
        slot = self._slots.take(attempt.assignment.tenant)
        if slot is None:
            return False
        mine = self._variables(attempt, WORKSPACE, ARTIFACTS)
        script = None
        if attempt.script is not None and words.script is not None:
            script = (words.script, attempt.script)
        job = Job(
            argv,
            {**self._sandbox.environment(), **words.env, **mine},
            os.path.basename(os.path.dirname(attempt.directory)),
            output,
            attempt.held.group.joins,
            script,
        )
        user = slot.user
        for one in (attempt.directory, artifacts_of(attempt.directory)):
            os.chown(one, user, user)
        if not self._slots.run(slot, job, hear):
            return False
        attempt.slot, attempt.warm_user = slot, user
        cell, attempt.cell = attempt.cell, None
        assert isinstance(cell, Cell), "it was prepared"
        self._sandbox.give(cell)
        return True

    def release(self, attempt: Attempt) -> None:
        """Its limits hold: what waits for them may begin."""
        if attempt.cell is not None and self._sandbox is not None:
            self._sandbox.release(attempt.cell)

    def ask_to_end(self, attempt: Attempt) -> None:
        """SIGTERM to everything that is in its process group."""
        if attempt.slot is not None:
            attempt.slot.pass_on(signal.SIGTERM)
            return
        if isinstance(attempt.cell, HostileCell) and self._hostile is not None:
            self._hostile.asks(attempt.cell)
            return
        if isinstance(attempt.cell, EngineCell):  # its process passes it on
            os.kill(attempt.pid, signal.SIGTERM)
            return
        if attempt.cell is not None and self._sandbox is not None:
            self._sandbox.asks(attempt.pid)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(attempt.pid, signal.SIGTERM)

    def tell(self, attempt: Attempt, number: signal.Signals) -> None:
        """A signal to its first process, and to no other."""
        if isinstance(attempt.cell, HostileCell) and self._hostile is not None:
            self._hostile.tells(attempt.cell, number)
            return
        pids = [attempt.pid]  # of an engine's container, the process that passes it on
        if attempt.cell is not None and self._sandbox is not None and not isinstance(attempt.cell, EngineCell):
            pids = [first for init in children_of(attempt.pid) for first in children_of(init)[:1]]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def wrong(self, attempt: Attempt, status: int) -> NotSpawned | None:
        """Why it never began although it was spawned; None when it did."""
        if attempt.cell is None or self._sandbox is None:
            return None
        if isinstance(attempt.cell, HostileCell):
            return None if self._hostile is None else self._hostile.wrong(attempt.cell, status)
        if isinstance(attempt.cell, EngineCell):
            return None if self._engine is None else self._engine.wrong(attempt.cell, status)
        return self._sandbox.wrong(attempt.cell, status, attempt.log.so_far())

    def remains(self, attempt: Attempt) -> int:
        """Its process is dead: a descriptor to watch while others of it are not; -1 when all are."""
        if attempt.cell is None or self._sandbox is None or isinstance(attempt.cell, HostileCell | EngineCell):
            return -1
        return self._sandbox.remains(attempt.cell)

    def end(self, attempt: Attempt) -> None:
        """Its process is dead: kills what else there is, without waiting."""
        remains = self.remains(attempt)
        if remains >= 0:
            os.close(remains)

    def finish(self, attempt: Attempt) -> None:
        """Everything of it is dead: its directory goes, and its user may be the next one's."""
        cell, attempt.cell = attempt.cell, None
        if isinstance(cell, HostileCell):
            assert self._hostile is not None, "it made the cell"
            self._hostile.give(cell)
        elif isinstance(cell, EngineCell):
            assert self._engine is not None, "it made the cell"
            self._engine.give(cell)
        elif cell is not None and self._sandbox is not None:
            self._sandbox.bury(cell)
            self._sandbox.give(cell)
        if attempt.root is not None and attempt.assignment.profile == CONTAINER and self._containers is not None:
            self._containers.finish(_layer(attempt))
        if attempt.directory:
            self._directories[attempt.assignment.profile].give(attempt.directory)

    def _variables(self, attempt: Attempt, directory: str, artifacts: str) -> dict[str, str]:
        assignment = attempt.assignment
        left = assignment.cap_ms / 1000 - attempt.ran(self._clock())
        deadline = datetime.now(UTC) + timedelta(seconds=left)
        return {
            "HEADWAY_TASK_ID": str(assignment.task),
            "HEADWAY_ATTEMPT": str(assignment.attempt),
            "HEADWAY_IDEMPOTENCY_KEY": idempotency_key(assignment.tenant, assignment.task),
            "HEADWAY_DEADLINE": deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "HEADWAY_OUTPUT": f"{directory}/{OUTPUT}",
            "HEADWAY_ARTIFACTS": artifacts,
            "HEADWAY_TMP": directory,
            **({"HEADWAY_CHECKPOINT_DIR": place(directory)} if attempt.words.checkpoint is not None else {}),
            **self._lending.variables(attempt),
        }


def _layer(attempt: Attempt) -> str:
    """A name that no other attempt here has."""
    key = attempt.key
    return f"{key.tenant}-{key.task}-{key.attempt}"
