"""The profile `container` by an engine that the operator runs: podman or Docker, over its socket.

The engine's own walls, with what can be asked of it: no capabilities, no new privileges, no network, a user of this
machine that owns nothing, limits of memory, cpu and processes. The promise is the agent's: what carries its mark is
removed when the attempt is over, when the agent starts again, and its processes are killed by whoever kills for the
agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from headway.agent.engine_process import NOT_STARTED, ORDER, TOLD, Failed, Order, Told, ask, remove
from headway.agent.gpus import inside
from headway.agent.images.fetch import Registries
from headway.agent.runners.spawn import NotSpawned
from headway.agent.sandbox import view
from headway.agent.sandbox.groups import PIDS_MAX
from headway.agent.sandbox.sandboxed import SCRIPT, SHM_BYTES, TMP_BYTES, Cell, Launch, Sandbox
from headway.core.images import Reference, reference
from headway.wire import Outcome

LABEL = "headway.agent"
FILES_MAX = 1024
ASK_SECONDS = 5.0


@dataclass(slots=True)
class EngineCell(Cell):
    """What one attempt holds: a user, the container's name, and where its process tells what went wrong."""

    name: str = ""
    told: int = -1


class Engine:
    """Starts containers of an engine. One for the whole agent, beside its sandbox, whose users it shares."""

    def __init__(self, sandbox: Sandbox, path: str, registries: Registries) -> None:
        self._sandbox = sandbox
        self._path = path
        self._registries = registries
        self._scripts = sandbox.place / "scripts"
        self._scripts.mkdir(mode=0o711, exist_ok=True)
        self._owner = sandbox.place.name if sandbox.place.name != "sandboxes" else str(sandbox.place)

    @classmethod
    def made(cls, sandbox: Sandbox, path: str, registries: Registries) -> Engine | str:
        """The engine behind this socket, asked; what an earlier agent of ours left there is removed. Or why not."""
        if not sandbox.has_users:
            return "an engine's tasks need users of their own, and only an agent that is root has them"
        engine = cls(sandbox, path, registries)
        try:
            ask(path, "GET", "/version", seconds=ASK_SECONDS)
            said = quote(msgspec.json.encode({"label": [f"{LABEL}={engine._owner}"]}))
            left: list[dict[str, str]] = ask(path, "GET", f"/containers/json?all=1&filters={said}", seconds=ASK_SECONDS)
            for one in left or []:
                remove(path, one["Id"])
        except (OSError, Failed, http.client.HTTPException, ValueError, KeyError) as error:
            return f"no engine answers at {path}: {error}"
        return engine

    def take(self) -> EngineCell:
        """A cell of a user that nothing else runs as. Raises OSError."""
        return EngineCell(self._sandbox.take().identity, name=f"headway-{secrets.token_hex(8)}")

    def launch(
        self, cell: EngineCell, image: str, words: tuple[list[str] | None, str | None], environ: dict[str, str],
        places: tuple[str, str], *, mark: dict[str, str], needs: Mapping[str, int], workdir: str | None = None,
        devices: Sequence[Path] = (),
    ) -> Launch | NotSpawned:  # fmt: skip
        """How to start an image with this command or script. Raises OSError."""
        assert cell.identity is not None, "there are users"
        wanted = reference(image)
        if not isinstance(wanted, Reference):
            return NotSpawned(Outcome.FAILED, f"image {image}: {wanted.message}")
        for place in places:
            os.chown(place, cell.identity.user, cell.identity.user)
        command, script = words
        if script is not None:  # the agent's own copy is nobody else's to read
            shown = self._scripts / cell.name
            shutil.copyfile(script, shown)
            shown.chmod(0o555)
            script = str(shown)
        binds = [f"{places[0]}:{view.WORKSPACE}", f"{places[1]}:{view.ARTIFACTS}"]
        body: dict[str, object] = {
            "Image": image,
            "User": f"{cell.identity.user}:{cell.identity.user}",
            # The mark is how the processes of a container are found and killed without its engine.
            "Env": [f"{name}={value}" for name, value in ({**environ, **mark}).items()],
            "Labels": {LABEL: self._owner},
            "HostConfig": _limits(needs, devices) | {"Binds": binds + ([f"{script}:{SCRIPT}:ro"] if script else [])},
        }
        if script is not None:
            body |= {"Entrypoint": command or [SCRIPT], "Cmd": []}
        elif command is not None:
            body["Cmd"] = command
        if workdir is not None:
            body["WorkingDir"] = f"{view.WORKSPACE}/{workdir}".rstrip("/")
        host = {wanted.registry, f"http://{wanted.registry}"}
        may_pull = bool(host & set(self._registries.allowed))
        return self._launched(cell, Order(self._path, cell.name, str(wanted), may_pull, body), mark)

    def wrong(self, cell: EngineCell, status: int) -> NotSpawned | None:
        """Why a task did not begin; None when it ran."""
        told = self._told(cell)
        if status != NOT_STARTED or not told.wrong:
            return None
        outcome = Outcome.FAILED if told.is_tasks_fault else Outcome.LOST
        return NotSpawned(outcome, f"the engine says: {told.wrong}")

    def is_out_of_memory(self, cell: EngineCell) -> bool:
        """Whether the engine killed it for its memory."""
        return self._told(cell).is_out_of_memory

    def give(self, cell: EngineCell) -> None:
        """Its process is dead: the container goes, if it is still there."""
        if cell.told >= 0:
            os.close(cell.told)
            cell.told = -1
        (self._scripts / cell.name).unlink(missing_ok=True)
        asyncio.get_running_loop().run_in_executor(None, self._remove, cell.name)
        self._sandbox.give(cell)

    def _launched(self, cell: EngineCell, order: Order, mark: dict[str, str]) -> Launch:
        said = os.memfd_create("order", os.MFD_CLOEXEC)
        os.write(said, msgspec.json.encode(order))
        os.lseek(said, 0, os.SEEK_SET)
        cell.told = os.memfd_create("told", os.MFD_CLOEXEC)
        words = [sys.executable, "-I", "-m", "headway.agent.engine_process"]
        return Launch(words, mark, {ORDER: said, TOLD: os.dup(cell.told)})

    def _told(self, cell: EngineCell) -> Told:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(os.pread(cell.told, 65536, 0), type=Told)
        return Told()

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, Failed, http.client.HTTPException):
            remove(self._path, name)


def _limits(needs: Mapping[str, int], devices: Sequence[Path]) -> dict[str, object]:
    found: dict[str, object] = {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": needs.get("pids", PIDS_MAX),
        "ShmSize": SHM_BYTES,
        "Tmpfs": {"/tmp": f"rw,nosuid,nodev,size={TMP_BYTES}"},
        "Ulimits": [{"Name": "nofile", "Soft": FILES_MAX, "Hard": FILES_MAX},
                    {"Name": "nproc", "Soft": PIDS_MAX, "Hard": PIDS_MAX}],
    }  # fmt: skip
    if devices:
        found["Devices"] = [
            {"PathOnHost": str(path), "PathInContainer": inside(path), "CgroupPermissions": "rw"} for path in devices
        ]
    if memory := needs.get("memory"):
        found |= {"Memory": memory, "MemorySwap": memory}
    if cpu := needs.get("cpu"):
        found["CpuShares"] = max(2, cpu * 1024 // 1000)
    return found
