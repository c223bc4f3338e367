"""A server put together: gateway and leader (or standby) of the default pool in one process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import socket
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import structlog
import uvicorn
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from headway.app import CannotStart, ServerSettings
from headway.app.readings import readings
from headway.core.lifecycle import State
from headway.core.queue import LineKey, ReadyTask
from headway.files.signing import Signer
from headway.gateway.accounts import AccountsApi
from headway.gateway.admission import Admission
from headway.gateway.api import Api, task_id
from headway.gateway.artifacts import ArtifactsApi
from headway.gateway.auth import Authenticator, keep_bootstrap_keys
from headway.gateway.blobs import BlobsApi
from headway.gateway.connection import BoundedHttp
from headway.gateway.events import EventsApi
from headway.gateway.following import Following, LogsApi
from headway.gateway.insight import Insight
from headway.gateway.issuing import Issuing
from headway.gateway.known_nodes import KnownNodes
from headway.gateway.nodes import NodesApi
from headway.gateway.problems import Problem
from headway.gateway.routes import application
from headway.gateway.steering import SteeringApi
from headway.gateway.submitting import Submitting
from headway.gateway.waiting import Waiting
from headway.monitor.metrics import exposition
from headway.scheduler.files import Files
from headway.scheduler.leader import Leader
from headway.scheduler.policies import Policies
from headway.scheduler.sessions import serve_agent
from headway.store.accounts import AccountStore
from headway.store.artifacts import ArtifactStore
from headway.store.blobs import BlobStore, collect_for_ever
from headway.store.cluster import ClusterStore
from headway.store.database import GONE, Database
from headway.store.events import EventStore
from headway.store.listen import listen_for_ready
from headway.store.migrate import MigrationFault, keep_slices, migrate
from headway.store.nodes import NodeStore
from headway.store.outlook import OutlookStore
from headway.store.queue import QueueStore
from headway.store.rows import NewTask, Template
from headway.store.shelf import Shelf, ShelfFault, open_shelf
from headway.store.steering import SteeringStore
from headway.store.tasks import TaskStore
from headway.wire import FRAME_BYTES_MAX

POOL = 1
POOL_NAME = "default"
TENANT = 1
DATABASE_SECONDS = 60.0
"""How long a start waits for the database before it gives up."""
ASKING_SECONDS = 10.0
"""How long a statement may take that a client asks something with."""
DRAIN_SECONDS = 2
READY_SECONDS = 2
_log = structlog.get_logger("headway")


async def serve(settings: ServerSettings) -> None:
    """A server: gateway and leader (or standby) of the default pool."""
    collect_rarely()
    listener = _listen(settings.host, settings.port)
    port = listener.getsockname()[1]
    await _migrate_when_there(settings.database_url)
    async with _databases(settings.database_url) as databases:
        await _Server(settings, databases, port, listener).run()


def collect_rarely() -> None:
    """Batches of thousands of rows look like garbage in the making to the collector: by default it spent a fifth of a
    bulk submission looking through them. What is loaded by now stays for ever."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server(
            (host, port), backlog=1024, family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as fault:
        raise CannotStart(
            f"cannot listen on {host}:{port}: {fault.strerror}. Choose another --port (0: any)."
        ) from None
    listener.setblocking(False)
    return listener


async def _migrate_when_there(url: str) -> None:
    """Brings the database to this program's schema; waits for one that is still starting."""
    give_up_at = time.monotonic() + DATABASE_SECONDS
    while True:
        try:
            applied = await migrate(url)
            if applied:
                _log.info("migrated", applied=applied)
            return
        except MigrationFault as fault:
            raise CannotStart(str(fault)) from None
        except GONE as fault:
            if time.monotonic() > give_up_at:
                raise CannotStart(f"the database did not answer for {DATABASE_SECONDS:g} s: {fault}") from None
            await asyncio.sleep(0.02)
        except asyncpg.PostgresError as fault:
            raise CannotStart(
                f"the database refused: {fault}. Check HEADWAY_DATABASE_URL and the user's rights."
            ) from None


class _Databases(NamedTuple):
    """Connections by what they are for: no list of a client holds up a submission, and neither holds up the leader."""

    scheduling: Database
    submitting: Database
    asking: Database


@contextlib.asynccontextmanager
async def _databases(url: str) -> AsyncGenerator[_Databases]:
    async with contextlib.AsyncExitStack() as stack:
        scheduling = await Database.open(url, size=4)
        stack.push_async_callback(scheduling.close)
        submitting = await Database.open(url, size=3, answer_seconds=ASKING_SECONDS)
        stack.push_async_callback(submitting.close)
        asking = await Database.open(
            url, size=3, statement_seconds=ASKING_SECONDS, answer_seconds=ASKING_SECONDS + READY_SECONDS
        )
        stack.push_async_callback(asking.close)
        yield _Databases(scheduling, submitting, asking)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signal handling: the composition root decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Server:
    def __init__(self, settings: ServerSettings, databases: _Databases, port: int, listener: socket.socket) -> None:
        self._settings = settings
        self._port = port
        self._listener = listener
        name = settings.name or f"{socket.gethostname()}:{port}#{_boot_id()}"
        self._waiting = Waiting(TaskStore(databases.asking, POOL))
        shelf = _shelf(settings.blobs)
        self._blobs = BlobStore(databases.submitting, POOL, shelf)
        self._signer: Signer | None = None
        self._following = Following(lambda: self._leader.epoch > 0)
        self._leader = self._leading(name, databases, shelf)
        self._insight = Insight(self._leader.insight, OutlookStore(databases.asking, POOL))
        self._issuing = Issuing(ClusterStore(databases.scheduling, POOL), f"{name}/{os.getpid()}")
        self._cluster = ClusterStore(databases.submitting, POOL)
        self._tasks = TaskStore(databases.submitting, POOL)
        self._submitting = Submitting(self._tasks, self._accepted)
        self._accepted_tasks = 0
        self._announce = asyncio.Event()
        self._authenticator = Authenticator(self._cluster)
        self._admission = Admission(
            AccountStore(databases.submitting, POOL),
            self._tasks,
            self._blobs,
            self._issuing,
            KnownNodes(self._cluster),
            self._insight,
        )
        self._accounts_api = AccountsApi(
            accounts=AccountStore(databases.asking, POOL),
            authenticator=self._authenticator,
            changed=self._policy_changed,
        )
        self._api = Api(
            cluster=ClusterStore(databases.asking, POOL),
            tasks=TaskStore(databases.asking, POOL),
            queue=QueueStore(databases.submitting, POOL),
            blobs=self._blobs,
            authenticator=self._authenticator,
            admission=self._admission,
            submitting=self._submitting,
            waiting=self._waiting,
            stopper=self._leader,
            insight=self._insight,
            events=EventStore(databases.asking, POOL),
            pool_name=POOL_NAME,
        )
        self._make_steering_apis(databases)
        self._make_file_apis(databases, shelf)

    def _make_file_apis(self, databases: _Databases, shelf: Shelf) -> None:
        self._blobs_api = BlobsApi(
            blobs=BlobStore(databases.asking, POOL, shelf),
            authenticator=self._authenticator,
            signer=self._signs,
            quota_of=self._admission.storage_of,
        )
        self._logs_api = LogsApi(
            tasks=TaskStore(databases.asking, POOL),
            authenticator=self._authenticator,
            following=self._following,
            view=self._api.view,
            task_id=task_id,
            is_stopping=lambda: self._waiting.stopping,
        )
        self._artifacts_api = ArtifactsApi(
            artifacts=ArtifactStore(databases.asking, POOL),
            blobs=BlobStore(databases.asking, POOL, shelf),
            authenticator=self._authenticator,
            view=self._api.view,
            task_id=task_id,
        )

    def _leading(self, name: str, databases: _Databases, shelf: Shelf) -> Leader:
        return Leader(
            server=name,
            cluster=ClusterStore(databases.scheduling, POOL),
            queue_store=QueueStore(databases.scheduling, POOL),
            steering_store=SteeringStore(databases.scheduling, POOL),
            node_store=NodeStore(databases.scheduling, POOL),
            task_store=TaskStore(databases.scheduling, POOL),
            files=Files(
                BlobStore(databases.scheduling, POOL, shelf), ArtifactStore(databases.scheduling, POOL), self._signs
            ),
            policies=Policies(AccountStore(databases.scheduling, POOL)),
            outlooks=OutlookStore(databases.scheduling, POOL),
            ended=self._ended,
            printed=self._following.printed,
            chance=random.Random(),
        )

    def _ended(self, tasks: list[tuple[int, int]]) -> None:
        """Tasks are over: tells who waits for them, and who follows their logs."""
        self._waiting.ended(tasks)
        self._following.ended(tasks)

    def _signs(self) -> Signer:
        assert self._signer is not None, "nothing is served before `run` has read the secret"
        return self._signer

    def _make_steering_apis(self, databases: _Databases) -> None:
        """What is done to tasks and nodes under way, and what is told of them."""
        self._steering_api = SteeringApi(
            steering=SteeringStore(databases.submitting, POOL),
            tasks=TaskStore(databases.asking, POOL),
            accounts=AccountStore(databases.asking, POOL),
            authenticator=self._authenticator,
            steerer=self._leader,
            view=self._api.view,
            task_id=task_id,
        )
        self._nodes_api = NodesApi(
            nodes=NodeStore(databases.asking, POOL),
            events=EventStore(databases.asking, POOL),
            authenticator=self._authenticator,
            waiting=self._waiting,
            keeper=self._leader,
        )
        self._events_api = EventsApi(
            events=EventStore(databases.asking, POOL), authenticator=self._authenticator, waiting=self._waiting
        )

    async def run(self) -> None:
        self._signer = Signer(await self._blobs.signing_secret())
        if self._settings.bootstrap_keys is not None:
            await keep_bootstrap_keys(self._cluster, self._settings.bootstrap_keys, tenant=TENANT)
        await self._issuing.start()
        http = _Uvicorn(self._http_config())
        async with asyncio.TaskGroup() as group:
            duties = [
                group.create_task(duty())
                for duty in (
                    self._issuing.run,
                    self._submitting.run,
                    self._leader.run,
                    self._announce_for_ever,
                    lambda: listen_for_ready(self._settings.database_url, self._leader.poll_soon),
                    lambda: keep_slices(self._settings.database_url),
                    lambda: collect_for_ever(self._blobs),
                    self._tell_when_ready,
                )
            ]
            serving = group.create_task(http.serve(sockets=[self._listener]))
            try:
                await asyncio.wait([serving])  # which does not end when this is cancelled
            except asyncio.CancelledError:
                await self._drain(http, serving)
                raise
            finally:
                for duty in duties:
                    duty.cancel()
                if self._settings.ready_file is not None:
                    self._settings.ready_file.unlink(missing_ok=True)

    async def _drain(self, http: uvicorn.Server, serving: asyncio.Task[None]) -> None:
        """Answers what was asked before it was told to stop; who waits for something is answered as things are."""
        self._waiting.stop()
        http.should_exit = True
        await asyncio.wait([serving], timeout=DRAIN_SECONDS + 0.5)  # it counts DRAIN_SECONDS itself, from a bit later

    def _http_config(self) -> uvicorn.Config:
        app = application(
            self._api,
            self._accounts_api,
            self._steering_api,
            self._events_api,
            self._blobs_api,
            self._artifacts_api,
            self._nodes_api,
            self._logs_api,
            ready=self._why_not_ready,
            metrics=exposition(readings(self._leader, lambda: self._accepted_tasks, POOL_NAME)),
            more=[WebSocketRoute("/v1/agent/session", self._agent_session)],
        )
        return uvicorn.Config(
            app,
            http=BoundedHttp,
            ws="websockets-sansio",
            ws_max_size=FRAME_BYTES_MAX,
            ws_per_message_deflate=False,
            ws_ping_interval=None,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )

    async def _policy_changed(self) -> None:
        """Neither the next submission nor the next round is judged by what was before."""
        self._admission.look_again()
        await self._leader.heed()

    async def _why_not_ready(self) -> str | None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._cluster.hour()
        except (*GONE, asyncpg.PostgresError) as fault:
            return f"the database does not answer: {fault}"
        return None

    async def _agent_session(self, websocket: WebSocket) -> None:
        try:
            await self._authenticator.caller(websocket.headers.get("authorization"), role="node")
        except Problem as problem:
            _log.warning("agent_turned_away", why=problem.detail)
            await websocket.close(1008, problem.code)
            return
        await serve_agent(websocket, self._leader)

    def _accepted(self, rows: list[NewTask]) -> None:
        """Rows are durable: tells the leader, by a call when it is here and by a notification when it is not."""
        self._accepted_tasks += len(rows)
        if self._leader.epoch == 0:
            self._announce.set()
            return
        alike: dict[Template, list[int]] = {}
        for row in rows:
            alike.setdefault(row.template, []).append(row.id)
        for common, ids in alike.items():
            if common.state == State.READY:
                start_by, cap_ms = common.start_by, common.execution_cap_ms
                line = LineKey(common.tenant, common.lane, common.shape)
                self._leader.offer(line, [ReadyTask(start_by, cap_ms, task) for task in ids])
            else:
                self._leader.timekeeper.expect_due()

    async def _announce_for_ever(self) -> None:
        """One notification for all that gathered while the last one was sent."""
        while True:
            await self._announce.wait()
            self._announce.clear()
            try:
                await self._tasks.announce()
            except GONE as fault:
                _log.warning("not_announced", why=str(fault))
            await asyncio.sleep(0.01)

    async def _tell_when_ready(self) -> None:
        file = self._settings.ready_file
        if file is not None:
            host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._settings.host, self._settings.host)
            url = f"http://{host}:{self._port}"
            part = file.with_name(file.name + ".part")
            part.write_text(json.dumps({"url": url, "pid": os.getpid()}))
            part.replace(file)
        _log.info("serving", port=self._port)


def _shelf(where: str) -> Shelf:
    try:
        return open_shelf(where)
    except ShelfFault as fault:
        raise CannotStart(str(fault)) from None


def _boot_id() -> str:
    """Tells machines of one name apart, and a machine from itself before a reboot."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip()[:8] if file.exists() else "unknown"
