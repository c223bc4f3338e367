"""The agent: what starts first, what stops last.

The promise of the order: leftovers of an earlier agent of this node die before the first Hello; a stop hands
back what never began, stops what runs, reports it while the session still stands, and leaves no process
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import structlog

from headway.agent import gpus
from headway.agent.blobs import Blobs
from headway.agent.cache import CACHE_BYTES_MAX, Cache
from headway.agent.capacity import detect, offered, reserved
from headway.agent.executor import Executor, Offer
from headway.agent.images.store import Images, ImageSettings
from headway.agent.leftovers import Guardian, kill_leftovers, mark, owner_of
from headway.agent.outbox import Outbox
from headway.agent.ports import FIRST, LAST, Ports
from headway.agent.runners.starting import Walls
from headway.agent.sandbox.containers import Containers
from headway.agent.sandbox.engines import Engine
from headway.agent.sandbox.grounds import shelf
from headway.agent.sandbox.groups import Groups
from headway.agent.sandbox.hostile import Hostile
from headway.agent.sandbox.sandboxed import Sandbox
from headway.agent.session import REFUSALS, Identity, Session

BACKOFF_SECONDS = (0.1, 5.0)
BOOT_SECONDS = 10.0
"""How long the first Hello waits for the app's functions; without them the session begins anew when they
come."""
STOP_SECONDS = 10.0
FLUSH_SECONDS = 2.0

_log = structlog.get_logger("headway.agent")


def clock() -> float:
    """Seconds that go on while the machine sleeps: a lease does, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class CannotRun(Exception):
    """The agent cannot begin; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent has to be told."""

    url: str
    key: str
    node: str
    data_dir: Path
    kinds: frozenset[str]
    app: str | None = None
    workers: int = 0
    worker_memory: int | None = None
    """Bytes for each of them; None: an equal share of the node's."""
    capacity: dict[str, int] | None = None
    """Instead of what the machine is found to have."""
    at_most: dict[str, int] = field(default_factory=dict[str, int])
    """No more than this of what it is found to have."""
    reserve: dict[str, int] = field(default_factory=dict[str, int])
    """What it keeps for itself of that, where another amount than by default."""
    resources: dict[str, int] = field(default_factory=dict[str, int])
    """Beside that: gpu, licences, anything that is counted."""
    gpus: tuple[str, ...] | None = None
    """Their ids; None: as they are found."""
    gpu_devices: dict[str, tuple[Path, ...]] = field(default_factory=dict[str, tuple[Path, ...]])
    """The device files of ids, where they are not found by number."""
    ports: tuple[int, int] = (FIRST, LAST)
    """The first and the last port number that tasks may be given."""
    engine: str | None = None
    """The socket of a podman or Docker engine that is to run images, instead of ourselves."""
    images: ImageSettings = field(default_factory=ImageSettings)
    labels: dict[str, str] = field(default_factory=dict[str, str])
    cache_bytes: int = CACHE_BYTES_MAX
    """How much of what tasks need is kept here, beyond what is in use."""
    has_sandbox: bool = True
    """Whether it makes a sandbox at all; without, it runs trusted tasks only."""
    shown: tuple[Path, ...] = ()
    """Directories that sandboxed tasks see besides the machine's programs, read-only."""
    warm_slots: int | None = None
    """How many sandboxes are at most kept prepared; None: as many as its cores and memory allow."""
    has_cpu_quota: bool = False
    """Whether a task gets no more cpu than it asked for even while there is more."""


class Agent:
    """Runs until it is cancelled; then stops what it runs, in order."""

    def __init__(self, settings: AgentSettings, clock: Callable[[], float] = clock) -> None:
        self._settings = settings
        self._clock = clock
        self.incarnation = secrets.token_hex(8)

    async def run(self) -> None:
        """Connects, and reconnects for ever. The data directory belongs to one agent at a time."""
        self._settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _owned(self._settings.data_dir):
            await self._run_alone()

    async def _run_alone(self) -> None:
        settings = self._settings
        owner = owner_of(settings.node, settings.data_dir)
        killed = kill_leftovers(owner, self.incarnation)
        if killed:
            _log.warning("killed what an earlier agent of this node left behind", processes=killed)
        guardian = Guardian(owner, self.incarnation)
        try:
            await self._serve(mark(owner, self.incarnation), guardian)
        finally:
            await asyncio.to_thread(guardian.close)

    async def _serve(self, marker: str, guardian: Guardian) -> None:
        settings = self._settings
        capacity = self._capacity()
        outbox = Outbox()
        sandbox = self._sandbox()
        groups = Groups.of(settings.data_dir, has_quota=settings.has_cpu_quota)
        degraded = dict(groups.degraded)
        if isinstance(sandbox, str):
            degraded["sandboxed"] = sandbox
        elif sandbox is not None:
            degraded |= sandbox.degraded
        containers = self._containers(sandbox, degraded)
        hostile = self._hostile(sandbox, degraded)
        engine = self._engine(sandbox)
        images = Images(shelf(settings.data_dir), settings.images, self._clock) if containers is not None else None
        executor = Executor(
            Offer(
                kinds=settings.kinds,
                capacity=capacity,
                app=settings.app,
                workers=settings.workers,
                worker_memory=settings.worker_memory,
                ports=Ports(*settings.ports),
                gpus=gpus.Gpus(self._gpu_ids(), settings.gpu_devices),
                warm_slots=settings.warm_slots,
            ),
            data_dir=settings.data_dir,
            marker=marker,
            outbox=outbox,
            blobs=Blobs(Cache(settings.data_dir / "blobs", settings.cache_bytes), settings.url, outbox),
            groups=groups,
            walls=Walls(sandbox if isinstance(sandbox, Sandbox) else None, containers, hostile, engine),
            images=images,
            clock=self._clock,
        )
        try:
            if executor.has_functions:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BOOT_SECONDS):
                        await executor.functions_changed.wait()
            session = Session(self._identity(capacity, degraded), executor, outbox, guardian.tell, self._clock)
            await self._live(session, executor, outbox)
        finally:
            executor.close()
            if images is not None:
                await images.close()
            if isinstance(sandbox, Sandbox):
                sandbox.close()

    async def _live(self, session: Session, executor: Executor, outbox: Outbox) -> None:
        """Until cancelled; the session goes on while the executor stops, so that the leader hears of it."""
        tasks = {asyncio.create_task(_connect(session)), asyncio.create_task(session.watch_lease())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for broken in done:  # neither returns: this raises
                broken.result()
        finally:
            await _stop(session, executor, outbox)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _capacity(self) -> dict[str, int]:
        settings = self._settings
        if settings.capacity is None:
            found = detect(settings.data_dir)
            kept = reserved(found, settings.reserve)
            found = offered(found, settings.at_most, kept)
            _log.info("what this node offers", offered=found, kept_for_itself=kept)
        else:
            found = dict(settings.capacity)
        found.update(settings.resources)
        if settings.kinds - {"function"}:
            first, last = settings.ports
            found["ports"] = last - first + 1
            if ids := self._gpu_ids():
                found["gpu"] = len(ids)
        if settings.app is not None:
            found["workers"] = settings.workers
        return found

    def _gpu_ids(self) -> list[str]:
        """The ids that were said, else those found, else as many numbers as were said to be there."""
        settings = self._settings
        if settings.gpus is not None:
            return list(settings.gpus)
        said = (settings.capacity or {}) | settings.resources
        if "gpu" in said:
            found = gpus.detect()
            return found[: said["gpu"]] if len(found) >= said["gpu"] else [str(n) for n in range(said["gpu"])]
        return gpus.detect() if settings.capacity is None else []

    def _sandbox(self) -> Sandbox | str | None:
        """The sandbox for processes, or why there is none; None where there are no processes to run."""
        settings = self._settings
        if not settings.kinds - {"function"} or not settings.has_sandbox:
            return None
        sandbox = Sandbox.made(settings.data_dir, settings.shown)
        if isinstance(sandbox, str):
            _log.warning("this node runs no sandboxed tasks", why=sandbox)
        else:
            for what, why in sandbox.degraded.items():
                _log.warning("the sandbox is weaker here than it could be", lacks=what, why=why)
        return sandbox

    def _containers(self, sandbox: Sandbox | str | None, degraded: dict[str, str]) -> Containers | None:
        """How images are run, and what of it is less than it could be; None where they cannot be."""
        if not isinstance(sandbox, Sandbox):
            return None
        containers = Containers.made(sandbox)
        if isinstance(containers, str):
            _log.warning("this node runs no images", why=containers)
            degraded["container"] = containers
            return None
        if containers.degraded:
            degraded["container"] = containers.degraded
        return containers

    def _engine(self, sandbox: Sandbox | str | None) -> Engine | None:
        """The engine that the operator prefers. One that is asked for and is not there is no reason to do without."""
        path = self._settings.engine
        if path is None or sandbox is None:
            return None
        engine = sandbox if isinstance(sandbox, str) else Engine.made(sandbox, path, self._settings.images.registries)
        if isinstance(engine, str):
            raise CannotRun(f"{engine}; start it, or leave out --container-engine")
        return engine

    def _hostile(self, sandbox: Sandbox | str | None, degraded: dict[str, str]) -> Hostile | None:
        """gVisor, where it works."""
        if not isinstance(sandbox, Sandbox):
            return None
        hostile = Hostile.made(sandbox)
        if isinstance(hostile, str):
            degraded["hostile"] = hostile
            if not hostile.startswith("there is no runsc"):
                _log.warning("this node runs no hostile tasks", why=hostile)
            return None
        return hostile

    def _identity(self, capacity: dict[str, int], degraded: dict[str, str]) -> Identity:
        settings = self._settings
        return Identity(
            url=settings.url,
            key=settings.key,
            node=settings.node,
            incarnation=self.incarnation,
            home=_home(settings.data_dir),
            capacity=capacity,
            labels=dict(settings.labels),
            kinds=sorted(settings.kinds),
            degraded=degraded,
        )


def _home(data_dir: Path) -> str:
    """A mark made once per data directory, and the boot of the machine it is used on."""
    mark = data_dir / "home"
    if not mark.exists():
        mark.write_text(secrets.token_hex(8))
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{mark.read_text().strip()}@{boot.read_text().strip() if boot.exists() else 'unknown'}"


async def _connect(session: Session) -> NoReturn:
    """One session after another. Many agents lose the same server at once, so they wait for different times."""
    least, most = BACKOFF_SECONDS
    backoff = least
    while True:
        greeted = session.greeted
        try:
            await session.run_once()
        except REFUSALS as error:
            _log.warning("no session with the leader; will try again", why=str(error) or type(error).__name__)
        backoff = least if session.greeted > greeted else min(backoff * 2, most)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))


async def _stop(session: Session, executor: Executor, outbox: Outbox) -> None:
    """Stops what runs and tells the leader, both within a bounded time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await executor.stop()
    if not session.is_on:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_SECONDS):
            await outbox.settled()


@contextlib.contextmanager
def _owned(data_dir: Path) -> Generator[None]:
    """Holds the directory's lock; the kernel gives it back however the agent ends."""
    lock = os.open(data_dir / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another agent uses {data_dir}; stop it, or give this one a data directory of its own"
            raise CannotRun(message) from None
        yield
    finally:
        os.close(lock)
