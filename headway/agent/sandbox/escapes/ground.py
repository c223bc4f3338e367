"""Where attacks are tried: the executor of an agent without a leader, and around it what an attacker would like.

Nothing is stood in for: attempts go through the same runner, control groups and sandbox as on a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.agent.agent import clock
from headway.agent.blobs import Blobs
from headway.agent.cache import Cache
from headway.agent.executor import Executor, Offer
from headway.agent.leftovers import mark
from headway.agent.outbox import Outbox
from headway.agent.runners.starting import Walls
from headway.agent.sandbox import syscalls
from headway.agent.sandbox.groups import Groups
from headway.agent.sandbox.sandboxed import SHM_BYTES, TMP_BYTES, Sandbox
from headway.wire import Assignment, Ended, Ending, Key, Logs, Outcome

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
    is_fresh: bool = False
    """Whether each attack has a sandbox of its own, and no warm slot."""
    logs: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _ended: dict[int, asyncio.Future[Ending]] = field(default_factory=dict[int, "asyncio.Future[Ending]"])
    _given: dict[int, Assignment] = field(default_factory=dict[int, Assignment])
    _number: int = 0

    async def run(
        self, argv: list[str], *, env: dict[str, str] | None = None, cap_ms: int = 20_000, grace_ms: int = 200,
        **needs: int,
    ) -> Ending:  # fmt: skip
        """Runs a command in a sandbox, to its end."""
        number = self.start(argv, env=env, cap_ms=cap_ms, grace_ms=grace_ms, **needs)
        return await self.ending(number)

    def start(
        self, argv: list[str], *, env: dict[str, str] | None = None, cap_ms: int = 20_000, grace_ms: int = 200,
        **needs: int,
    ) -> int:  # fmt: skip
        """Begins a command in a sandbox."""
        self._number += 1
        spec = msgspec.json.encode({"command": argv, "env": env or {}, "fresh": self.is_fresh}).decode()
        self._ended[self._number] = asyncio.get_running_loop().create_future()
        wanted = {"cpu": 100, "memory": 256 * 1024 * 1024} | needs
        given = Assignment(1, self._number, 1, "command", wanted, cap_ms, grace_ms, spec, profile="sandboxed")
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
        facts = json.dumps(self.facts)
        return await self.run([PYTHON, "-I", "-S", "-c", PROGRAM.read_text(), name, facts])

    def kill(self, number: int) -> None:
        """Stops a command."""
        self.executor.kill([Key(1, number, 1)])

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


@asynccontextmanager
async def a_ground() -> AsyncGenerator[Ground]:
    """A ground in a directory of its own; raises NoGround where there is no sandbox to be tried."""
    if not Path(PYTHON).exists():
        raise NoGround(f"the attacks are written in Python, and there is no {PYTHON} to be seen in a sandbox")
    place = Path(tempfile.mkdtemp(prefix="headway-escapes-"))
    try:
        sandbox = Sandbox.made(place)
        if isinstance(sandbox, str):
            raise NoGround(sandbox)
        with contextlib.closing(sandbox), _bait(place) as bait:
            async with _ground(place, sandbox, bait) as ground:
                yield ground
    finally:
        shutil.rmtree(place, ignore_errors=True)


@asynccontextmanager
async def _ground(place: Path, sandbox: Sandbox, bait: dict[str, object]) -> AsyncGenerator[Ground]:
    outbox, groups = Outbox(), Groups.of(place)
    executor = Executor(
        Offer(kinds=frozenset({"command"}), capacity=ROOM, app=None, workers=0),
        data_dir=place,
        marker=mark(secrets.token_hex(8), secrets.token_hex(8)),
        outbox=outbox,
        blobs=Blobs(Cache(place / "blobs"), "http://127.0.0.1:0", outbox),
        groups=groups,
        walls=Walls(sandbox, None, None),
        clock=clock,
    )
    facts = bait | {
        "agent": os.getpid(),
        "workspaces": [str(sandbox.place / "attempts"), str(place), str(sandbox.place)],
        "tmpfs_max": max(TMP_BYTES, SHM_BYTES),
        "calls": _calls(),
    }
    ground = Ground(executor, outbox, sandbox, groups, facts)
    hearing = asyncio.create_task(ground.hear())
    try:
        yield ground
    finally:
        await executor.stop()
        executor.close()
        hearing.cancel()


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
