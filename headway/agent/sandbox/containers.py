"""The profile `container`: the same walls as `sandboxed`, and an image's root instead of this machine's programs.

The root itself is never written: with a bubblewrap that knows overlays (0.11) what a task changes goes into a directory
of the attempt's own and is gone with it; with an older one the root is read-only. A task is one user on this machine
whatever the image says, and inside it has the number that the image names. So nothing can be given to other users
inside, files of the image can be replaced but not written into, and nobody becomes another user.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from headway.agent.gpus import inside
from headway.agent.images.store import Root
from headway.agent.runners.spawn import DEFAULT_PATH
from headway.agent.sandbox import bubblewrap, view
from headway.agent.sandbox.namespaces import INSIDE
from headway.agent.sandbox.sandboxed import NAMESPACES, ROOT_BYTES, SHM_BYTES, TMP_BYTES, Cell, Sandbox, View
from headway.files.removing import remove

LACKS = "is not in the image; name one that has it, or another program"


class Containers:
    """Shows attempts the roots of images. One for the whole agent, beside its sandbox."""

    def __init__(self, sandbox: Sandbox, program: str | None) -> None:
        self._sandbox = sandbox
        self._program = program
        self._layers = sandbox.place / "layers"
        self._layers.mkdir(mode=0o711)
        self._layers.chmod(0o711)
        self._etc = sandbox.place / "container-etc"
        self._etc.mkdir(mode=0o755)
        self._etc.chmod(0o755)
        for name, text in (("hosts", "127.0.0.1 localhost\n::1 localhost\n"), ("hostname", "headway\n")):
            (self._etc / name).write_text(text)
            (self._etc / name).chmod(0o644)

    @classmethod
    def made(cls, sandbox: Sandbox) -> Containers | str:
        """The containers of this sandbox, tried; or why there can be none here. Without overlays roots are read-only:
        see `degraded`."""
        newer = bubblewrap.find(bubblewrap.OVERLAYS)
        containers = cls(sandbox, newer.path if not isinstance(newer, str) else None)
        wrong = containers._tried()
        if wrong and containers._program is not None:
            containers._program = None
            wrong = containers._tried()
        return wrong or containers

    @property
    def degraded(self) -> str:
        """What is less than it could be."""
        if self._program is not None:
            return ""
        return "roots of images are read-only: bubblewrap 0.11 and a kernel that lets users mount overlays are needed"

    def environment(self, root: Root) -> dict[str, str]:
        """What a task finds in its environment: what the image says, over what every task needs."""
        said = dict(word.split("=", 1) for word in root.note.run.env or [] if "=" in word)
        user = root.note.furnished.user or view.USER
        base = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", "HOME": view.WORKSPACE, "TMPDIR": "/tmp", "USER": user}
        return base | said

    def argv(self, root: Root, command: list[str] | None) -> list[str]:
        """What is executed: the image's entrypoint, and the command or else the image's own. Empty: there is none."""
        run = root.note.run
        return [*(run.entrypoint or []), *(command if command is not None else run.cmd or [])]

    def view(self, root: Root, cell: Cell, name: str, devices: list[Path]) -> View:
        """How one attempt sees an image. `name` tells it from every other. Raises OSError."""
        furnished = root.note.furnished
        return self._view(root.path, cell, name, furnished.open, (furnished.uid, furnished.gid), furnished.directory,
                          devices)  # fmt: skip

    def layers(self, name: str) -> list[str]:
        """Where on the node one attempt writes what it changes in its root."""
        return [str(self._layers / name / "upper")] if self._program is not None else []

    def finish(self, name: str) -> None:
        """The attempt is over: what it changed goes, in a thread because it may be much."""
        asyncio.get_running_loop().run_in_executor(None, self._remove, name)

    def _remove(self, name: str) -> None:
        place = self._layers / name
        remove(place)

    def _view(
        self, root: Path, cell: Cell, name: str, open_directories: list[str], user: tuple[int, int], directory: str,
        devices: list[Path], more: Sequence[str] = (),
    ) -> View:  # fmt: skip
        shown = ["--ro-bind", str(root), "/"]
        if self._program is not None:
            upper, work = self._layer(cell, name, open_directories)
            shown = ["--overlay-src", str(root), "--overlay", upper, work, "/"]
        lent = [word for path in devices for word in ("--dev-bind", str(path), inside(path))]
        hosts = [
            word for file in ("hosts", "hostname") for word in ("--ro-bind", str(self._etc / file), f"/etc/{file}")
        ]
        # With a namespace of its own it is who it is in sandboxes until bubblewrap leaves it in that of the image.
        uid, gid = user if cell.identity is None else (INSIDE, INSIDE)
        before = [
            *NAMESPACES, "--uid", str(uid), "--gid", str(gid), "--cap-drop", "ALL", *shown, *more, *hosts,
            "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm",
            *lent,
            "--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp",
            "--size", str(ROOT_BYTES), "--tmpfs", "/run",
        ]  # fmt: skip
        return View(
            before, ["--remount-ro", "/dev"], user, LACKS, self._program, directory or view.WORKSPACE, str(root)
        )  # fmt: skip

    def _layer(self, cell: Cell, name: str, open_directories: list[str]) -> tuple[str, str]:
        """The directories for what one attempt changes, with those of the root in it that take new files."""
        place = self._layers / name
        place.mkdir(mode=0o711)
        place.chmod(0o711)
        upper, work = f"{place}/upper", f"{place}/work"
        made = [upper, work, *(f"{upper}/{name}" for name in open_directories if name)]
        for path in made:
            os.mkdir(path, 0o755)
            if cell.identity is not None:
                os.chown(path, cell.identity.user, cell.identity.user)
        return upper, work

    def _tried(self) -> str:
        """Runs this machine's shell in a root like an image's; what was wrong, if anything."""
        root = self._sandbox.place / "trial-root"
        try:
            programs = _a_root(root)
            return self._sandbox.tried(
                lambda cell: self._view(root, cell, "trial", ["", "var"], (0, 0), "", [], programs)
            )
        except OSError as error:
            return str(error)
        finally:
            shutil.rmtree(root, ignore_errors=True)
            self._remove("trial")


def _a_root(root: Path) -> list[str]:
    """Makes a root with places for this machine's programs; answers the options that show them there."""
    for name in ("proc", "dev", "tmp", "run", "workspace", "etc", "var"):
        (root / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in ("hosts", "hostname"):
        (root / "etc" / name).touch()
    words = list(view.shown())
    binds: list[str] = []
    for option, source, target in zip(words[::3], words[1::3], words[2::3], strict=True):
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if option == "--symlink":
            place.symlink_to(source)
        else:
            place.mkdir(exist_ok=True)
            binds += [option, source, target]
    root.chmod(0o755)
    return binds
