"""Where attacks are tried: the executor of an agent without a leader, and around it what an attacker would like.

Nothing is stood in for: attempts go through the same runner, control groups and sandbox as on a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway import wire
from headway.agent.agent import clock
from headway.agent.blobs import Blobs
from headway.agent.cache import Cache
from headway.agent.executor import Executor, Offer
from headway.agent.images.store import Images, ImageSettings
from headway.agent.leftovers import mark
from headway.agent.outbox import Outbox
from headway.agent.runners.starting import Walls
from headway.agent.sandbox import syscalls
from headway.agent.sandbox.containers import Containers
from headway.agent.sandbox.escapes.keeper import Keeper
from headway.agent.sandbox.grounds import shelf
from headway.agent.sandbox.groups import Groups
from headway.agent.sandbox.hostile import Hostile
from headway.agent.sandbox.sandboxed import SHM_BYTES, TMP_BYTES, Sandbox
from headway.core.profiles import CONTAINER, HOSTILE, SANDBOXED
from headway.files.removing import remove
from headway.wire import Assignment, Blob, Ended, Ending, Fetch, Granted, Key, Logs, Outcome

PYTHON = "/usr/bin/python3"
PROGRAM = Path(__file__).with_name("program.py")
ATTEMPTS_MAX = 3
ROOM = {"cpu": 64_000, "memory": 1 << 50, "disk": 1 << 50, "pids": 1 << 30}
"""More than is asked for at once: the attacks do little, and wait for nobody."""
_IPC_CREAT, _IPC_RMID = 0o1000, 0
_WITHOUT_A_NAME = {"clone3": 435, "io_uring_setup": 425}
"""In no list of the filter, with the same number everywhere."""


class NoGround(Exception):
    """Why nothing can be tried here."""


@dataclass
class Ground:
    """Runs attempts and remembers what became of them."""

    executor: Executor
    outbox: Outbox
    sandbox: Sandbox
    groups: Groups
    facts: dict[str, object]
    place: Path
    keeper: Keeper
    profile: str = SANDBOXED
    image: str | None = None
    is_fresh: bool = False
    """Whether each attack has a sandbox of its own, and no warm slot."""
    logs: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _ended: dict[int, asyncio.Future[Ending]] = field(default_factory=dict[int, "asyncio.Future[Ending]"])
    _given: dict[int, Assignment] = field(default_factory=dict[int, Assignment])
    _bundles: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _number: int = 0

    async def run(
        self, argv: list[str], *, env: dict[str, str] | None = None, cap_ms: int = 20_000, grace_ms: int = 200,
        bundle: bytes | None = None, checkpoint: dict[str, str] | None = None, **needs: int,
    ) -> Ending:  # fmt: skip
        """Runs a command in a sandbox, to its end."""
        number = self.start(
            argv, env=env, cap_ms=cap_ms, grace_ms=grace_ms, bundle=bundle, checkpoint=checkpoint, **needs
        )
        return await self.ending(number)

    def start(
        self, argv: list[str], *, env: dict[str, str] | None = None, cap_ms: int = 20_000, grace_ms: int = 200,
        bundle: bytes | None = None, checkpoint: dict[str, str] | None = None, **needs: int,
    ) -> int:  # fmt: skip
        """Begins a command in a sandbox."""
        self._number += 1
        terms: dict[str, object] = {"command": argv, "env": env or {}, "fresh": self.is_fresh, "image": self.image}
        if bundle is not None:
            digest = f"sha256:{hashlib.sha256(bundle).hexdigest()}"
            self._bundles[digest] = bundle
            terms["bundle"] = digest
        if checkpoint is not None:
            terms["checkpoint"] = checkpoint
        spec = msgspec.json.encode(terms).decode()
        self._ended[self._number] = asyncio.get_running_loop().create_future()
        wanted = {"cpu": 100, "memory": 256 * 1024 * 1024} | needs
        given = Assignment(1, self._number, 1, "command", wanted, cap_ms, grace_ms, spec, profile=self.profile)
        self._given[self._number] = given
        self.executor.dispatch([given])
        return self._number

    async def ending(self, number: int) -> Ending:
        """How it ended. What the node lost is begun again, as by any leader."""
        ending = await self._ended[number]
        for attempt in range(2, ATTEMPTS_MAX + 1):
            if ending.outcome != Outcome.LOST:
                break
            self._ended[number] = asyncio.get_running_loop().create_future()
            self.logs.pop(number, None)
            self.executor.dispatch([msgspec.structs.replace(self._given[number], attempt=attempt)])
            ending = await self._ended[number]
        return ending

    async def attack(self, name: str) -> Ending:
        """Tries one of the attacks of the program."""
        facts = json.dumps(self.facts | {"image": self.image})
        return await self.run([PYTHON, "-I", "-S", "-c", PROGRAM.read_text(), name, facts])

    def kill(self, number: int) -> None:
        """Stops a command."""
        self.executor.kill([Key(1, number, 1)])

    def let(self, number: int, *, run: bool) -> None:
        """Has a command stand still, or go on."""
        (self.executor.go_on if run else self.executor.stand)([Key(1, number, 1)])

    async def hear(self) -> None:
        """Takes what the executor reports, for ever."""
        while True:
            await self.outbox.wait()
            for frame in self.outbox.frames():
                if isinstance(frame, Logs):
                    for chunk in frame.chunks:
                        self.logs[chunk.task] = self.logs.get(chunk.task, b"") + chunk.body
                elif isinstance(frame, Ended):
                    self.outbox.acknowledged(frame.sequence)
                    for ending in frame.endings:
                        self._ended[ending.task].set_result(ending)
                elif isinstance(frame, Fetch):
                    self.executor.blob(Blob(frame.tenant, frame.digest, self._bundles.get(frame.digest)))
                elif isinstance(frame, wire.Offer):
                    where = f"/{frame.digest}"
                    said = (frame.tenant, frame.digest, frame.size, where, frame.task, frame.attempt)
                    self.executor.blob(Granted("PUT", *said))


@asynccontextmanager
async def a_ground(
    profile: str = SANDBOXED, shelf_of: Path | None = None, image: str | None = None
) -> AsyncGenerator[Ground]:
    """A ground in a directory of its own; raises NoGround where there is no such sandbox to be tried. For `container`,
    an image that has Python, in a directory of images."""
    if not Path(PYTHON).exists():
        raise NoGround(f"the attacks are written in Python, and there is no {PYTHON} to be seen in a sandbox")
    place = Path(tempfile.mkdtemp(prefix="headway-escapes-"))
    try:
        sandbox = Sandbox.made(place)
        if isinstance(sandbox, str):
            raise NoGround(sandbox)
        keeper = Keeper()
        with contextlib.closing(sandbox), _bait(place) as bait, keeper.serving():
            walls = _walls(profile, sandbox)
            async with _ground(place, walls, bait, keeper, shelf_of) as ground:
                ground.profile, ground.image = profile, image
                yield ground
    finally:
        remove(place)


@asynccontextmanager
async def _ground(
    place: Path, walls: Walls, bait: dict[str, object], keeper: Keeper, shelf_of: Path | None
) -> AsyncGenerator[Ground]:
    sandbox = walls.sandbox
    assert sandbox is not None, "there is no ground without"
    outbox, groups = Outbox(), Groups.of(place)
    images = None
    if shelf_of is not None:
        images = Images(shelf(place), ImageSettings(directories=(shelf_of,)), clock)
    executor = Executor(
        Offer(kinds=frozenset({"command"}), capacity=ROOM, app=None, workers=0),
        data_dir=place,
        marker=mark(secrets.token_hex(8), secrets.token_hex(8)),
        outbox=outbox,
        blobs=Blobs(Cache(place / "blobs"), keeper.url, outbox),
        groups=groups,
        walls=walls,
        images=images,
        clock=clock,
    )
    facts = bait | {
        "agent": os.getpid(),
        "workspaces": [str(sandbox.place / "attempts"), str(place), str(sandbox.place)],
        "tmpfs_max": max(TMP_BYTES, SHM_BYTES),
        "calls": _calls(),
    }
    ground = Ground(executor, outbox, sandbox, groups, facts, place, keeper)
    hearing = asyncio.create_task(ground.hear())
    try:
        yield ground
    finally:
        await executor.stop()
        executor.close()
        hearing.cancel()
        if images is not None:
            await images.close()


def _walls(profile: str, sandbox: Sandbox) -> Walls:
    """What a profile is enforced by. Raises NoGround."""
    containers = Containers.made(sandbox) if profile == CONTAINER else None
    hostile = Hostile.made(sandbox) if profile == HOSTILE else None
    for made in (containers, hostile):
        if isinstance(made, str):
            raise NoGround(made)
    return Walls(sandbox, containers, hostile)  # pyright: ignore[reportArgumentType]


@contextmanager
def _bait(place: Path) -> Generator[dict[str, object]]:
    """What an attacker would like to find: a secret in the environment and in a file, sockets that answer, memory."""
    canary, name = secrets.token_hex(16), secrets.token_hex(8)
    secret = place / "secret"
    secret.write_text(canary)
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(1 << 30) + 1
    segment = int(libc.shmget(key, 4096, _IPC_CREAT | 0o666))
    os.environ["HEADWAY_CANARY"] = canary
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for address in (str(place / "socket"), f"\0{name}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        (place / "socket").chmod(0o777)
        try:
            yield {
                "canary": canary, "secret_file": str(secret), "socket": str(place / "socket"), "abstract": name,
                "port": port, "shm_key": key,
            }  # fmt: skip
        finally:
            del os.environ["HEADWAY_CANARY"]
            libc.shmctl(segment, _IPC_RMID, 0)


def _calls() -> dict[str, int]:
    machine = os.uname().machine
    return syscalls.allowed(machine) | syscalls.judged(machine) | syscalls.refused(machine) | _WITHOUT_A_NAME
