"""`Supervised`: one process that is started again whenever it dies, with its log kept and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

BACKOFF_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)  # the last one for ever
STEADY_SECONDS = 10.0  # one that ran this long is started again at once
FIRST_TRIES = 3  # one that dies so often before it ever worked will not work by itself
LOG_BYTES_MAX = 4 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024
LAST_WORDS = 15
DRAIN_SECONDS = 1.0  # for the rest of a dead process's output; a grandchild may hold the pipe for ever
_ERROR = re.compile(rb"\b(error|critical|fatal)\b", re.IGNORECASE)
_RAISED = re.compile(rb"[A-Za-z_][\w.]*(Error|Exception|Unavailable)\b")  # ends a traceback
_LEVEL_WITHIN = 120  # bytes: a line that says further on that something was an error is no error


class GaveUp(Exception):
    """A process dies at every start; the message has its last words."""


class Supervised:
    """A child process. `run` keeps it alive until `stop`."""

    def __init__(self, name: str, words: Sequence[str], log: BoundedLog, say: Callable[[str], None]) -> None:
        self.name = name
        self.worked = False
        """Whether it has ever done what it is for; set by who knows."""
        self._words = words
        self._log = log
        self._say = never_failing(say)
        self._environment: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._process.pid if self._process and self._process.returncode is None else None

    def release(self, environment: Mapping[str, str]) -> None:
        """Lets it go to work, now and after every restart; until then it only prepares."""
        if not self._environment.done():
            self._environment.set_result(environment)

    async def run(self) -> None:
        """Keeps it running; raises GaveUp when it has never worked and dies again and again."""
        clock = asyncio.get_running_loop().time
        deaths = 0
        while not self._stopping:
            since = clock()
            code = await self._live()
            if self._stopping:
                return
            deaths = 1 if clock() - since > STEADY_SECONDS else deaths + 1
            if not self.worked and deaths >= FIRST_TRIES:
                words = "\n".join(self._last_words)
                raise GaveUp(f"the {self.name} ended with {code} at every start. Its last words:\n{words}")
            self._say(f"the {self.name} ended ({_cause(code)}); starting it again")
            await asyncio.sleep(BACKOFF_SECONDS[min(deaths - 1, len(BACKOFF_SECONDS) - 1)])

    async def stop(self, seconds: float, hurry: asyncio.Event) -> None:
        """Ends it for good: politely, and by force after `seconds` or when there is a hurry."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await _either(process.wait(), hurry.wait(), seconds)
        if process.returncode is None:
            self._say(f"the {self.name} does not stop by itself; killing it")
        self._kill_group(process.pid)
        await process.wait()

    async def _live(self) -> int:
        reader, output = os.pipe()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,  # the terminal's Ctrl-C is for the supervisor, which stops all in order
            )  # fmt: skip
        finally:
            os.close(output)
        telling = asyncio.ensure_future(self._tell_environment(process))
        keeping = asyncio.ensure_future(self._keep_output(reader))
        try:
            return await process.wait()
        finally:
            telling.cancel()
            if process.returncode is not None:
                self._kill_group(process.pid)  # what it left of its group would go on working for nobody
            await asyncio.wait([keeping], timeout=DRAIN_SECONDS)
            keeping.cancel()

    async def _tell_environment(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        environment = await asyncio.shield(self._environment)
        with contextlib.suppress(ConnectionError):  # it died first; the next one is told
            process.stdin.write(json.dumps(dict(environment)).encode() + b"\n")
            await process.stdin.drain()

    async def _keep_output(self, descriptor: int) -> None:
        """Copies a pipe to the log. A pipe of our own: asyncio's would make the wait for the process's end
        wait for every grandchild that holds it as well.
        """
        stream = asyncio.StreamReader(LINE_BYTES_MAX)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", buffering=0)
        )
        try:
            while piece := await _line(stream):
                self._log.write(piece)
                self._last_words.append(piece.decode(errors="replace").rstrip())
                if not self._stopping and _is_trouble(piece):
                    self._say(f"{self.name}: {self._last_words[-1]}")
        finally:
            transport.close()

    def _kill_group(self, leader: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


class BoundedLog:
    """A file that never grows beyond LOG_BYTES_MAX; the part before is kept as `.1`.

    A full disk costs lines, never the one who writes them: what cannot be kept is dropped and counted.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size
        self._dropped = 0

    def write(self, piece: bytes) -> None:
        """Appends, or drops what finds no space; the first line that does says how many are missing before it."""
        gap = f"\n[lines that could not be written: {self._dropped}]\n".encode() if self._dropped else b""
        try:
            self._append(gap + piece)
        except OSError:
            self._dropped += 1
        else:
            self._dropped = 0

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _append(self, piece: bytes) -> None:
        if self._size + len(piece) > LOG_BYTES_MAX:
            self._begin_anew()
        written = self._file.write(piece)
        self._size += written
        if written < len(piece):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def _begin_anew(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # moved already, but then there was no space for the new one
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        file = self._path.open("ab", buffering=0)
        self._file.close()
        self._file, self._size = file, 0


def never_failing(say: Callable[[str], None]) -> Callable[[str], None]:
    """A way to say things that goes on in silence when stderr is closed or on a full disk."""

    def said(text: str) -> None:
        with contextlib.suppress(OSError):
            say(text)

    return said


def _is_trouble(line: bytes) -> bool:
    """Whether people should see a line of a log at once; the rest of a traceback is in the log."""
    return bool(_RAISED.match(line) or _ERROR.search(line[:_LEVEL_WITHIN]))


async def _line(stream: asyncio.StreamReader) -> bytes:
    """The next line, or a piece of one that is too long."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(max(error.consumed, 1))


async def _either(one: Awaitable[object], other: Awaitable[object], seconds: float) -> None:
    """Waits for one of two, at most `seconds`, and leaves nothing of the wait behind."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _cause(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
