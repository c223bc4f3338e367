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
from collections.abc import Generator
from pathlib import Path

import asyncpg
import structlog
import uvicorn
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from headway.app import CannotStart, ServerSettings
from headway.core.lifecycle import State
from headway.core.queue import LineKey, ReadyTask
from headway.gateway.accounts import AccountsApi
from headway.gateway.admission import Admission
from headway.gateway.api import Api
from headway.gateway.auth import Authenticator, keep_bootstrap_keys
from headway.gateway.issuing import Issuing
from headway.gateway.problems import Problem
from headway.gateway.routes import application
from headway.gateway.submitting import Submitting
from headway.gateway.waiting import Waiting
from headway.monitor.metrics import Reading, exposition
from headway.scheduler.leader import Leader
from headway.scheduler.policies import Policies
from headway.scheduler.sessions import serve_agent
from headway.store.accounts import AccountStore
from headway.store.cluster import ClusterStore
from headway.store.database import GONE, Database
from headway.store.listen import listen_for_ready
from headway.store.migrate import MigrationFault, keep_slices, migrate
from headway.store.queue import QueueStore
from headway.store.rows import NewTask, Template
from headway.store.tasks import TaskStore
from headway.wire import FRAME_BYTES_MAX

POOL = 1
TENANT = 1
DATABASE_SECONDS = 60.0
"""How long a start waits for the database before it gives up."""
DRAIN_SECONDS = 3
READY_SECONDS = 2
_log = structlog.get_logger("headway")


async def serve(settings: ServerSettings) -> None:
    """A server: gateway and leader (or standby) of the default pool."""
    _collect_rarely()
    listener = _listen(settings.host, settings.port)
    port = listener.getsockname()[1]
    database = await _database_when_there(settings.database_url)
    try:
        await _Server(settings, database, port, listener).run()
    finally:
        await database.close()


def _collect_rarely() -> None:
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


async def _database_when_there(url: str) -> Database:
    """The migrated database; waits for one that is still starting."""
    give_up_at = time.monotonic() + DATABASE_SECONDS
    while True:
        try:
            applied = await migrate(url)
            if applied:
                _log.info("migrated", applied=applied)
            return await Database.open(url)
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


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signal handling: the composition root decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Server:
    def __init__(self, settings: ServerSettings, database: Database, port: int, listener: socket.socket) -> None:
        self._settings = settings
        self._database = database
        self._port = port
        self._listener = listener
        name = settings.name or f"{socket.gethostname()}:{port}#{_boot_id()}"
        self._cluster = ClusterStore(database, POOL)
        self._tasks = TaskStore(database, POOL)
        queue = QueueStore(database, POOL)
        self._waiting = Waiting(self._tasks)
        self._leader = Leader(
            server=name,
            cluster=self._cluster,
            queue_store=queue,
            task_store=self._tasks,
            policies=Policies(AccountStore(database, POOL)),
            ended=self._waiting.ended,
            chance=random.Random(),
        )
        self._issuing = Issuing(self._cluster, f"{name}/{os.getpid()}")
        self._submitting = Submitting(self._tasks, self._accepted)
        self._accepted_tasks = 0
        self._announce = asyncio.Event()
        self._authenticator = Authenticator(self._cluster)
        accounts = AccountStore(database, POOL)
        admission = self._admission = Admission(accounts, self._tasks, self._issuing)
        self._accounts_api = AccountsApi(
            accounts=accounts, authenticator=self._authenticator, changed=self._policy_changed
        )
        self._api = Api(
            cluster=self._cluster,
            tasks=self._tasks,
            queue=queue,
            authenticator=self._authenticator,
            admission=admission,
            submitting=self._submitting,
            waiting=self._waiting,
            stopper=self._leader,
        )

    async def run(self) -> None:
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
                    self._tell_when_ready,
                )
            ]
            try:
                await http.serve(sockets=[self._listener])
            except asyncio.CancelledError:
                await self._drain(http)
                raise
            finally:
                for duty in duties:
                    duty.cancel()
                if self._settings.ready_file is not None:
                    self._settings.ready_file.unlink(missing_ok=True)

    async def _drain(self, http: uvicorn.Server) -> None:
        """Answers what was asked before it was told to stop."""
        http.should_exit = True
        await asyncio.sleep(0)

    def _http_config(self) -> uvicorn.Config:
        app = application(
            self._api,
            self._accounts_api,
            ready=self._why_not_ready,
            metrics=exposition(self._readings()),
            more=[WebSocketRoute("/v1/agent/session", self._agent_session)],
        )
        return uvicorn.Config(
            app,
            http="httptools",
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

    def _policy_changed(self) -> None:
        """Neither the next submission nor the next round is judged by what was before."""
        self._admission.look_again()
        self._leader.poll_soon()

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
                self._leader.expect_due()

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

    def _readings(self) -> list[Reading]:
        leader = self._leader
        return [
            (
                "counter",
                "headway_tasks_accepted",
                "Tasks stored by this gateway.",
                lambda: self._accepted_tasks,
            ),
            (
                "counter",
                "headway_tasks_dispatched",
                "Attempts sent to nodes.",
                lambda: leader.dispatching.dispatched,
            ),
            (
                "counter",
                "headway_tasks_ended",
                "Tasks that ended, well or not.",
                lambda: leader.endings.recorded,
            ),
            (
                "gauge",
                "headway_leader_epoch",
                "The epoch led here; 0 while standing by.",
                lambda: leader.epoch,
            ),
            ("gauge", "headway_queue_held", "Ready tasks held in memory.", lambda: len(leader.planner)),
            ("gauge", "headway_attempts_owned", "Attempts that nodes own now.", lambda: len(leader.books)),
            ("gauge", "headway_nodes_connected", "Nodes in session.", lambda: len(list(leader.planner.nodes.all()))),
        ]


def _boot_id() -> str:
    """Tells machines of one name apart, and a machine from itself before a reboot."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip()[:8] if file.exists() else "unknown"
