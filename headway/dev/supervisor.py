"""The supervisor of `headway dev`: PostgreSQL, a server and an agent, started together and kept running.

The promise: whichever of them is killed comes back, committed tasks survive it, and when the supervisor ends,
however it ends, no process is left. It stays small (25 MB) because it is there for ever: no HTTP library, no
store of its own.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from headway.dev import files
from headway.dev.app_check import why_not_imported
from headway.dev.process import BoundedLog, GaveUp, Supervised, never_failing
from headway.dev.readiness import KeyRefused, ready_node
from headway.dev.terminal import when_closed
from headway.sdk.discovery import default_data_dir
from headway.store.data_dir import Held
from headway.store.embedded import EmbeddedPostgres
from headway.store.postgres_binaries import Binaries, Missing, PostgresUnavailable, find_binaries

READY_SECONDS = 60.0
AGENT_STOP_SECONDS = 12.0
SERVER_STOP_SECONDS = 8.0
NODE = "local"
_CHILD = (sys.executable, "-m", "headway.cli.supervised", str(os.getpid()))


class Settings(NamedTuple):
    """What `headway dev` was told."""

    data: Path
    host: str
    port: int
    app: str | None = None
    workers: int | None = None
    ready_file: Path | None = None
    database_url: str | None = None
    demo: bool = False


class Trouble(Exception):
    """It cannot go on; the message says why and what to do."""


class Supervisor:
    """Runs everything until told to stop."""

    def __init__(self, settings: Settings, lock: Held, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._lock = lock
        self._say = say = never_failing(say)
        self.keys_file = settings.data / "keys.json"
        self._keys = files.keep_keys(self.keys_file)
        self.url = f"http://{_shown(settings.host)}:{settings.port}"
        self._server_ready = settings.data / "server.ready"
        self._exports = settings.data / "env.sh"
        self._unsay_ready()  # one that was killed could not
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        logs = settings.data / "logs"
        self._server = Supervised("server", self._server_words(), BoundedLog(logs / "server.log"), say)
        self._agent = Supervised("agent", self._agent_words(), BoundedLog(logs / "agent.log"), say)
        self._postgres: EmbeddedPostgres | None = None

    async def run(self, when_ready: Callable[[], None]) -> None:
        """Starts everything, says so once all accept work, and stops it all in order in the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup: goes on without terminal
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
            when_closed(0, self._on_hangup)
        keeping = [asyncio.ensure_future(child.run()) for child in (self._server, self._agent)]
        keeping += [asyncio.ensure_future(self._keep_database()), asyncio.ensure_future(self._check_app())]
        starting = asyncio.ensure_future(self._start(when_ready))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await _until_over([starting, *keeping], stopping)
        except (GaveUp, PostgresUnavailable) as error:
            raise Trouble(str(error)) from None
        except KeyRefused:
            raise Trouble(
                f"the server does not take the key in {self.keys_file} any more: it was revoked. Remove the file "
                "and start again: new keys are made, and the tasks stay."
            ) from None
        finally:
            await self._end([starting, stopping, *keeping])

    async def _start(self, when_ready: Callable[[], None]) -> None:
        """Lets one after the other go to work, then tells the world."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not self._server_ready.exists():  # noqa: ASYNC110 (written by another process)
                    await asyncio.sleep(0.01)
                self._server.worked = True
                self._agent.release({"HEADWAY_URL": self.url, "HEADWAY_KEY": self._keys.node})
                while (node := await self._ready_node()) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.03)
                self._agent.worked = True
        except TimeoutError:
            logs = self._settings.data / "logs"
            raise Trouble(f"not everything was ready after {READY_SECONDS:g} s; see {logs}") from None
        said = {"url": self.url, "key": self._keys.client, "pid": os.getpid()}
        for path in filter(None, (self._settings.data / "ready.json", self._settings.ready_file)):
            files.write_json(path, said)
        files.write_exports(self._exports, self.url, self._keys.client)
        if self._settings.data != default_data_dir():  # there the command line looks by itself
            self._say(f"in another shell: . {shlex.quote(str(self._exports))}")
        if why := cast("dict[str, str]", node.get("degraded") or {}).get("sandboxed"):
            self._say(f"no sandbox here: {why}")
            self._say("so commands and scripts wait, unless you trust them: headway run --profile trusted")
        when_ready()
        if self._settings.demo:
            await self._show_demo()

    async def _check_app(self) -> None:
        """Without this a mistyped name is a traceback a second until nobody waits any longer."""
        app = self._settings.app
        if app is None or self._settings.demo:
            return
        if why := await why_not_imported(app):
            raise Trouble(
                f"the app {app} cannot be imported: {why}\n"
                "Name it as MODULE:app, and start in a directory from which Python can import the module."
            )

    async def _show_demo(self) -> None:
        environment = {**os.environ, "HEADWAY_URL": self.url, "HEADWAY_KEY": self._keys.client}
        words = ["-m", "headway.dev.demo", str(self._settings.data / "ready.json")]
        process = await asyncio.create_subprocess_exec(sys.executable, *words, env=environment, process_group=0)
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()

    async def _ready_node(self) -> dict[str, object] | None:
        said, key = self._settings, self._keys.client
        host = _shown(said.host).strip("[]")
        return await ready_node(host, said.port, key, NODE, functions=said.app is not None)

    async def _keep_database(self) -> None:
        """Sees to a database and gives its address to the server."""
        url = self._settings.database_url
        if url is None:
            found = find_binaries(os.environ)
            if isinstance(found, Missing):
                raise Trouble(found.reason)
            self._postgres = await self._started(found)
            url = self._postgres.dsn
        self._server.release({"HEADWAY_DATABASE_URL": url})
        if self._postgres is not None:
            await self._postgres.run()
        await asyncio.get_running_loop().create_future()

    async def _started(self, binaries: Binaries) -> EmbeddedPostgres:
        postgres = EmbeddedPostgres(self._settings.data, binaries=binaries, lock=self._lock)
        await postgres.start()
        return postgres

    async def _end(self, tasks: Sequence[asyncio.Future[Any]]) -> None:
        """Agent, server, database, in this order: each can still say goodbye to the next."""
        self._unsay_ready()
        await self._agent.stop(AGENT_STOP_SECONDS, self._hurry)
        await self._server.stop(SERVER_STOP_SECONDS, self._hurry)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._postgres is not None:
            await self._postgres.stop()
        self._lock.release()

    def _unsay_ready(self) -> None:
        ready = [self._settings.data / "ready.json", self._settings.ready_file, self._server_ready, self._exports]
        for path in filter(None, ready):
            path.unlink(missing_ok=True)

    def _on_hangup(self) -> None:
        """The terminal is gone. It may be told in several ways, and that is no reason to hurry."""
        if not self._stop.is_set():
            self._on_signal()

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        else:
            self._say("stopping; once more Ctrl-C kills")
            self._stop.set()

    def _server_words(self) -> list[str]:
        said = self._settings
        where = ["--host", said.host, "--port", str(said.port), "--ready-file", str(self._server_ready)]
        blobs = ["--blobs", os.environ.get("HEADWAY_BLOBS") or str(said.data / "blobs")]
        # The id of its first key is this directory's alone: by it the server takes its lead up again at once.
        name = "dev-" + self._keys.client.split("_")[1]
        return [*_CHILD, "server", *where, "--bootstrap-keys", str(self.keys_file), *blobs, "--name", name]

    def _agent_words(self) -> list[str]:
        said = self._settings
        words = [*_CHILD, "agent", "--node", NODE, "--data", str(said.data / "agent")]
        words += ["--app", said.app] if said.app else []
        return words + (["--workers", str(said.workers)] if said.workers is not None else [])


async def _until_over(tasks: Sequence[asyncio.Future[Any]], stopping: asyncio.Future[Any]) -> None:
    """Returns when it is time to stop; raises what any of the tasks raises."""
    watched: set[asyncio.Future[Any]] = {*tasks, stopping}
    while not stopping.done():
        done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


def _shown(host: str) -> str:
    """The address a client on this machine can use."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
