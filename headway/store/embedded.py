"""Keeps one PostgreSQL running for as long as Headway does: makes it, starts it, restarts it, stops it.

The promise: committed rows survive whatever is killed, nothing is left running after the supervisor, nobody
but this user reaches the database (Unix socket in a closed directory, SCRAM, no TCP), and it is never root.

    DATA_DIR/postgres/           the cluster
             postgres.password   made with the cluster, 0600
             postgres.log(.1)    what the server said, bounded
             headway.lock        who supervises
             run/                the socket; where that path will not do, `socket_dir` names another

`postgres` is a direct child, so its death is known at once; pg_ctl needs two seconds to believe a kill -9.
It also dies with the thread that started it, so call `start()` from one that lives as long as the process.
"""

import asyncio
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, urlencode

import asyncpg
import structlog

from headway.store.data_dir import Held, HeldBy, lock_data_dir
from headway.store.postgres_binaries import VARIABLE, Binaries, PostgresUnavailable
from headway.store.postgres_identity import Identity, choose_identity, command, environment, give
from headway.store.postgres_orphans import evict

NAME = "headway"  # of the role and of the database
SOCKET_FILE = ".s.PGSQL.5432"
SOCKET_PATH_MAX = 100  # sun_path holds 107 bytes; PostgreSQL adds `.lock` to its own
LOG_BYTES_MAX = 4 * 1024 * 1024
LOG_CHECK_SECONDS = 60.0
READY_SECONDS = 30.0
POLL_SECONDS = 0.01
POLL_SECONDS_MAX = 0.1  # while it replays its log; each question costs a line in postgres.log
RESTART_PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)  # the last one for ever
STEADY_SECONDS = 30.0  # a server that ran this long restarts without a pause
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
PASSING_TROUBLES = ("is still in use", "already exists")  # left by a killed server, gone in a moment

# For two cores and `headway dev` within 250 MB; every one can be overridden.
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "autovacuum_naptime": "10s",  # the queue's rows live for seconds
        "checkpoint_timeout": "15min",
        "cluster_name": NAME,
        "fsync": "on",
        "full_page_writes": "on",
        "jit": "off",
        "listen_addresses": "",
        "log_line_prefix": "%m [%p] ",
        "logging_collector": "off",
        "max_connections": "60",
        "max_wal_size": "4GB",
        "shared_buffers": "128MB",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "unix_socket_permissions": "0700",
        "wal_compression": "pglz",  # the wheel's build has neither LZ4 nor ZSTD
    }
)


class _Died(Exception):
    """The server ended before it accepted a connection."""


class EmbeddedPostgres:
    """`start()`, then `run()` for as long as it shall live, then `stop()`; `dsn` is valid once started."""

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Binaries,
        settings: Mapping[str, str] = MappingProxyType({}),
        lock: Held | None = None,
    ) -> None:
        """`lock` is for a caller that has locked `data_dir` already; without it `start()` takes the lock."""
        self.data_dir = data_dir.absolute()
        self._binaries = binaries
        self._settings = {**SETTINGS, **settings}
        self._cluster = self.data_dir / "postgres"
        self._log = self.data_dir / "postgres.log"
        self._callers_lock = lock
        self._lock: Held | None = None
        self._identity = Identity("self", os.geteuid(), os.getegid())
        self._socket_dir = self.data_dir / "run"
        self._password = ""
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def dsn(self) -> str:
        return self._dsn(NAME)

    @property
    def pid(self) -> int | None:
        """The postmaster's pid while it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def start(self) -> None:
        """Return when the server accepts connections and the database exists."""
        self._stopping = False
        self._lock = None if self._callers_lock else _locked(self.data_dir)
        try:
            await self._prepare()
            await self._launch()
        except BaseException:
            await self.stop()
            raise

    async def run(self) -> None:
        """Bring the server back each time it dies, until cancelled or stopped."""
        clock = asyncio.get_running_loop().time
        failures = 0
        while not self._stopping:
            since = clock()
            code = await self._ended()
            if self._stopping:
                return
            failures = 0 if clock() - since > STEADY_SECONDS else failures
            _logger().warning("postgres_died", exit_code=code, last_words=self._last_words(3))
            failures = await self._restart(failures)

    async def stop(self) -> None:
        """Leave no process, no socket and no lock behind; ask politely first. Cancel `run()` before."""
        if self._lock is None and self._process is None:
            return
        self._stopping = True
        await self._end()
        await evict(self._cluster)
        for name in (SOCKET_FILE, SOCKET_FILE + ".lock"):
            (self._socket_dir / name).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _prepare(self) -> None:
        """Everything that must be true before a server can start, each step safe to repeat after a crash."""
        _refuse_another_version(self._cluster, self._binaries)
        self._identity = await choose_identity(self.data_dir, self._binaries)
        self._socket_dir = _socket_dir(self.data_dir)
        give(self._socket_dir, self._identity)
        self._password = _password(self.data_dir / "postgres.password", cluster_exists=self._cluster.exists())
        if self._cluster.exists():
            give(self._cluster, self._identity)
        else:
            await self._make_cluster()

    async def _make_cluster(self) -> None:
        """`initdb` under another name, then a rename: a cluster that exists is complete."""
        unfinished = self._cluster.with_name("postgres.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        give(unfinished, self._identity)
        # In the socket directory because that is the one place both we and the server's user can read.
        password_file = self._socket_dir / "initdb.password"
        password_file.unlink(missing_ok=True)
        _write_secret(password_file, self._password)
        give(password_file, self._identity)
        try:
            process = await self._spawn("initdb", *self._initdb_arguments(unfinished, password_file))
            code = await process.wait()
        finally:
            password_file.unlink(missing_ok=True)
        if code != 0:
            raise PostgresUnavailable(
                f"initdb could not make a database in {unfinished}: {self._last_words()}\n"
                f"Look at {self._log}; is the disk full or the directory not writable?"
            )
        unfinished.rename(self._cluster)
        _sync_directory(self.data_dir)

    def _initdb_arguments(self, cluster: Path, password_file: Path) -> Iterator[str]:
        yield from ("--pgdata", str(cluster), "--username", NAME, "--pwfile", str(password_file))
        yield from ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums")
        if self._binaries.version >= 17:  # the builtin provider sorts the same on every machine
            yield from ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        if self._settings["fsync"] == "off":
            yield "--no-sync"  # else synced, 0.1 s once: a power cut must not take what was committed since

    async def _launch(self) -> None:
        """Start a server, and start it again while what the last one left is in the way."""
        try:
            async with asyncio.timeout(READY_SECONDS) as patience:
                while True:
                    if await self._attempt(patience):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise self._unavailable(f"PostgreSQL accepts no connection for {READY_SECONDS:.0f} s") from None

    async def _attempt(self, patience: asyncio.Timeout) -> bool:
        """One start: whether it accepts now; False is a trouble that passes, any other is raised."""
        await evict(self._cluster)
        self._bound_log()
        self._process = await self._spawn("postgres", "-D", str(self._cluster), *self._options())
        try:
            await self._accepts(self._process, patience)
        except _Died:
            if any(trouble in self._last_words() for trouble in PASSING_TROUBLES):
                return False
            raise self._unavailable(f"PostgreSQL ended with {self._process.returncode}") from None
        return True

    def _options(self) -> Iterator[str]:
        directory = str(self._socket_dir).replace('"', '""')  # the setting is a list; quotes keep commas in
        for name, value in {**self._settings, "unix_socket_directories": f'"{directory}"'}.items():
            yield from ("-c", f"{name}={value}")

    async def _accepts(self, process: asyncio.subprocess.Process, patience: asyncio.Timeout) -> None:
        pause = POLL_SECONDS
        while process.returncode is None:
            pause = min(2 * pause, POLL_SECONDS_MAX)
            try:
                connection = await asyncpg.connect(self.dsn)
            except asyncpg.InvalidCatalogNameError:
                await self._create_database()
            except asyncpg.CannotConnectNowError:
                # It lives and replays its log, which takes what it takes: only silence uses patience up.
                patience.reschedule(asyncio.get_running_loop().time() + READY_SECONDS)
                await asyncio.sleep(pause)
            except asyncpg.PostgresError as error:
                raise self._unavailable(f"PostgreSQL refuses its owner ({error})") from None
            except (OSError, asyncpg.ConnectionDoesNotExistError):
                await asyncio.sleep(POLL_SECONDS)
            else:
                await connection.close()
                return
        raise _Died

    async def _create_database(self) -> None:
        connection = await asyncpg.connect(self._dsn("postgres"))
        try:
            await connection.execute(f"create database {NAME}")
        finally:
            await connection.close()

    async def _ended(self) -> int:
        """Wait for the server's end; meanwhile keep its log from growing without bound."""
        process = self._process
        assert process is not None, "start() comes before run()"
        while True:
            try:
                async with asyncio.timeout(LOG_CHECK_SECONDS):
                    return await process.wait()
            except TimeoutError:
                self._bound_log()

    async def _restart(self, failures: int) -> int:
        """Try until it runs again; how many tries in a row there have been now."""
        while not self._stopping:
            await asyncio.sleep(RESTART_PAUSES[min(failures, len(RESTART_PAUSES) - 1)])
            failures += 1
            try:
                await self._launch()
            except PostgresUnavailable as error:
                await self._end()
                _logger().error("postgres_restart_failed", failures=failures, error=str(error))
            else:
                _logger().info("postgres_restarted", pid=self.pid, failures=failures)
                break
        return failures

    async def _spawn(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        log = os.open(self._log, flags, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                *command(self._identity, self.data_dir, self._binaries, program),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for Headway, which stops PostgreSQL last
            )
        except OSError as error:  # no process or memory left, or Python itself is out of reach
            raise PostgresUnavailable(
                f"{program} could not be started with {sys.executable}: {error}. Is this user allowed to run "
                "it, and has the machine memory and processes left?"
            ) from error
        finally:
            os.close(log)

    async def _end(self) -> None:
        process, self._process = self._process, None
        for number, seconds in STOP_STEPS:
            if process is None or process.returncode is not None:
                return
            process.send_signal(number)
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
            except TimeoutError:
                _logger().warning("postgres_does_not_stop", signal=number.name, waited_seconds=seconds)

    def _dsn(self, database: str) -> str:
        where = urlencode({"host": str(self._socket_dir), "port": "5432"})
        return f"postgresql://{NAME}:{quote(self._password)}@/{database}?{where}"

    def _unavailable(self, what: str) -> PostgresUnavailable:
        return PostgresUnavailable(
            f"{what}. The last lines of {self._log} are:\n{self._last_words()}\n"
            "Put right what they name and start Headway again; the data in the directory is untouched."
        )

    def _last_words(self, lines: int = 10) -> str:
        if not self._log.exists():
            return "(the log is empty)"
        with self._log.open("rb") as file:
            file.seek(-min(8192, self._log.stat().st_size), os.SEEK_END)
            words = file.read().decode(errors="replace").strip().splitlines()
        return "\n".join(words[-lines:]) or "(the log is empty)"

    def _bound_log(self) -> None:
        """Copy and truncate: the server holds the file open, and as it appends, it goes on at the start."""
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
            shutil.copyfile(self._log, self._log.with_suffix(".log.1"))
            os.truncate(self._log, 0)


def _locked(data_dir: Path) -> Held:
    try:
        lock = lock_data_dir(data_dir)
    except OSError as error:
        raise PostgresUnavailable(
            f"the data directory {data_dir} cannot be used ({error.strerror}). Name one you can write to."
        ) from error
    if isinstance(lock, HeldBy):
        raise PostgresUnavailable(
            f"the data directory {data_dir} is in use by process {lock.pid or 'unknown'}. "
            "Stop that Headway, or name another data directory."
        )
    return lock


def _refuse_another_version(cluster: Path, binaries: Binaries) -> None:
    version_file = cluster / "PG_VERSION"
    made_by = version_file.read_text().strip() if version_file.exists() else str(binaries.version)
    if made_by != str(binaries.version):
        raise PostgresUnavailable(
            f"{cluster} was made by PostgreSQL {made_by}, but the programs in {binaries.bin_dir} "
            f"({binaries.origin}) are version {binaries.version}. Set {VARIABLE} to the programs of version "
            f"{made_by}, or move the data with pg_upgrade or `headway backup` and `headway restore`."
        )


def _socket_dir(data_dir: Path) -> Path:
    """A closed directory whose path a socket address and a DSN can hold, the same one at every start."""
    inside = data_dir / "run"
    comma = "," in str(inside)  # asyncpg takes it for the end of a host
    if len(os.fsencode(inside / SOCKET_FILE)) <= SOCKET_PATH_MAX and not comma:
        inside.mkdir(mode=0o700, exist_ok=True)
        return inside
    note = data_dir / "socket_dir"
    if note.exists() and _is_ours_alone(remembered := Path(note.read_text())):
        return remembered
    made = Path(tempfile.mkdtemp(prefix="headway-", dir=os.environ.get("XDG_RUNTIME_DIR")))
    note.write_text(str(made))
    return made


def _is_ours_alone(path: Path) -> bool:
    """Not swapped by somebody else while we were away: it lies in a directory everybody can write to."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    ours = status.st_uid == os.geteuid() or os.geteuid() == 0
    return stat.S_ISDIR(status.st_mode) and ours and status.st_mode & 0o077 == 0


def _password(path: Path, *, cluster_exists: bool) -> str:
    if path.exists():
        return path.read_text().strip()
    if cluster_exists:
        raise PostgresUnavailable(
            f"{path} is gone, and without it nobody can log in to the database beside it. Restore the file "
            "from a backup of the data directory, or move the directory away to start with an empty database."
        )
    password = secrets.token_urlsafe(32)
    unfinished = path.with_name(path.name + ".new")
    _write_secret(unfinished, password)
    unfinished.rename(path)
    return password


def _write_secret(path: Path, secret: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _logger() -> structlog.stdlib.BoundLogger:
    return structlog.get_logger("headway.postgres")
