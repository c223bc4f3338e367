"""A worker: `python -m headway.agent.worker_process MODULE:app DATA_FD CONTROL_FD PAGE_FD PARENT_PID`.

It imports the app once and runs its functions, one at a time, in the order they come. The promise: a slow
task never holds back what others finished or could finish (a second thread answers `REVOKE` while it runs),
and the process never outlives its agent. It imports little, because there are many of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import gc
import importlib
import inspect
import io
import mmap
import os
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic, monotonic_ns
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

import msgspec

from headway.agent.around_task import REPORTED_MS_MIN, Meter, Residue
from headway.agent.plain import not_a_number, plain
from headway.agent.worker_wire import (
    CURRENT,
    HEADER,
    NEWS,
    NEWS_OFFSET,
    PAGE_BYTES,
    STOP,
    STOP_OFFSET,
    STOPPED,
    TEMPORARY,
    Booted,
    Call,
    Finished,
    Job,
    framed,
)
from headway.core.context import Context, Left
from headway.wire import RESULT_BYTES_MAX, TAIL_BYTES_MAX, Ending, LogChunk, Outcome

if TYPE_CHECKING:
    import asyncio

PRINT_BYTES_MAX = 1024 * 1024
"""How much of what one task prints is kept."""
CHUNK_BYTES = 64 * 1024
UNSENT_BYTES_MAX = 1024 * 1024
"""What a worker holds before it sends, though its chunk is not done."""
FD_MIN = 200
"""Where our sockets live: a program that closes "all" descriptors it did not open usually means the low ones."""
CUT_OFF = 70
"""Exit status of a worker that can no longer speak to its agent."""
PR_SET_PDEATHSIG = 1

_encode = msgspec.msgpack.Encoder().encode
_decode_jobs = msgspec.msgpack.Decoder(list[Job]).decode
_decode_call = msgspec.json.Decoder(Call).decode
_encode_result = msgspec.json.Encoder().encode


class Function(Protocol):
    """What the worker needs of a task of the SDK."""

    @property
    def fn(self) -> Callable[..., Any]: ...
    @property
    def wants_context(self) -> bool: ...


@runtime_checkable
class App(Protocol):
    """What the worker needs of the SDK's App."""

    @property
    def tasks(self) -> Mapping[str, Function]: ...


class Stopped(BaseException):
    """Raised in the running task by SIGTERM (its cap is over, or it was cancelled), so that `finally` blocks
    run."""


class Refusal(Exception):
    """A task that cannot end well, and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Printed(io.TextIOBase):
    """What stands in for stdout and stderr: text is kept for the task that runs, up to PRINT_BYTES_MAX."""

    def __init__(self, raw: int) -> None:
        self._raw = raw
        self._kept: list[bytes] = []
        self.size = 0

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        # Programs started by a task and C code write past us, into the agent's log.
        return self._raw

    def write(self, text: str, /) -> int:
        if self.size < PRINT_BYTES_MAX:
            body = text.encode("utf-8", "backslashreplace")[: PRINT_BYTES_MAX - self.size]
            self._kept.append(body)
            self.size += len(body)
        return len(text)

    def take(self) -> bytes:
        """What was printed since the last time."""
        body = b"".join(self._kept)
        self._kept.clear()
        self.size = 0
        return body


class Worker:
    """The main thread's loop over jobs, and the control thread's one answer."""

    def __init__(self, data: socket.socket, control: socket.socket, page: mmap.mmap) -> None:
        self._data = data
        self._control = control
        self._page = page
        self._jobs: deque[Job] = deque()
        self._ended: deque[Ending] = deque()
        self._logs: deque[LogChunk] = deque()
        self._sending = threading.Lock()  # two threads send; taken once per batch
        self._functions: Mapping[str, Function] = {}
        self._pid = os.getpid()
        self._running: int = 0
        self._busy_since = 0
        self._unsent = 0  # bytes of logs and large results
        self._printed = Printed(1)
        self._theirs: mmap.mmap | None = None
        self._residue: Residue | None = None
        self._meter = Meter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coroutine: asyncio.Task[object] | None = None

    def boot(self, where: str) -> None:
        """Imports the app and says what it offers."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.register_at_fork(after_in_child=self._forked)
        self._functions = load(where)
        sys.stdout = sys.stderr = self._printed
        settle_memory()
        self._residue = Residue(os.environ.pop(TEMPORARY, None))
        self._send(Booted(sorted(self._functions), ""))

    def run(self) -> NoReturn:
        """Runs jobs until the agent goes away."""
        threading.Thread(target=self._obey, daemon=True).start()
        while True:
            jobs = _decode_jobs(self._receive())
            self._busy_since = monotonic_ns()
            self._jobs.extend(jobs)
            self._run_jobs()
            self._flush([])
            if self._residue is not None:
                self._residue.remove_all()
            self._meter.begin()

    def _run_jobs(self) -> None:
        jobs, ended = self._jobs, self._ended
        while jobs:
            try:
                job = jobs.popleft()
            except IndexError:  # revoked in between
                return
            ended.append(self._end(job))
            if self._unsent > UNSENT_BYTES_MAX:
                self._flush([])

    def _end(self, job: Job) -> Ending:
        """Runs one job. Stopped may strike anywhere inside; it must not leave this function."""
        began = monotonic_ns()
        try:
            ending = self._attempt(job, began)
        except Stopped:
            ending = Ending(job.tenant, job.task, job.attempt, Outcome.FAILED, 0, None, STOPPED)
        self._running = 0
        if self._residue is not None:
            self._residue.remove(monotonic_ns() - began)
        CURRENT.pack_into(self._page, 0, job.task, 0)
        if self._printed.size:
            ending = self._with_log(job, ending)
        ran_ms = (monotonic_ns() - began) // 1_000_000
        if ran_ms < REPORTED_MS_MIN:
            return msgspec.structs.replace(ending, ran_ms=ran_ms) if ran_ms else ending
        return msgspec.structs.replace(ending, ran_ms=ran_ms, usage=self._meter.read())

    def _attempt(self, job: Job, began: int) -> Ending:
        CURRENT.pack_into(self._page, 0, job.task, began)
        self._running = job.task
        try:
            try:
                result = self._call(job)
            finally:
                if os.getpid() != self._pid:  # a function forked and its child came back
                    os._exit(exit_status(sys.exc_info()[1]))
            self._running = 0
            return Ending(job.tenant, job.task, job.attempt, 0, 0, None, "", "", result)
        except Refusal as wrong:
            self._running = 0
            return Ending(job.tenant, job.task, job.attempt, Outcome.FAILED, 0, None, wrong.code, plain(str(wrong)))
        except Stopped:
            raise
        except Left:
            self._running = 0
            return self._left(job)
        except BaseException as raised:  # noqa: BLE001  whatever a client's function raises is its outcome
            self._running = 0
            return self._raised(job, raised)

    def _left(self, job: Job) -> Ending:
        if job.checkpoints:
            said = "wrote a checkpoint and left"
            return Ending(job.tenant, job.task, job.attempt, Outcome.YIELDED, 0, None, "checkpointed", said)
        why = "it gave way and writes no checkpoints; submit it with checkpoint={}"
        return Ending(job.tenant, job.task, job.attempt, Outcome.FAILED, 0, None, "raised", why)

    def _raised(self, job: Job, raised: BaseException) -> Ending:
        text, message = told(raised)
        self._printed.write(text)
        return Ending(job.tenant, job.task, job.attempt, Outcome.FAILED, 0, None, "raised", message)

    def _call(self, job: Job) -> str | None:
        call = _decode_call(job.spec)
        function = self._functions.get(call.function)
        if function is None:
            raise Refusal("function_unknown", unknown(call.function, self._functions))
        if function.wants_context:
            call.kwargs["ctx"] = self._context(job)
        if call.env:
            return self._called_with_env(function, call)
        return self._result(function.fn(*call.args, **call.kwargs))

    def _called_with_env(self, function: Function, call: Call) -> str | None:
        before = dict(os.environ)
        os.environ.update(call.env)
        try:
            return self._result(function.fn(*call.args, **call.kwargs))
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _result(self, value: object) -> str | None:
        if inspect.iscoroutine(value):
            value = self._awaited(value)
        if value is None:
            return None
        try:
            text = _encode_result(value)
            if b"null" in text and (lost := not_a_number(value)):
                raise ValueError(f"it holds {lost}")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = f"returned {type(value).__name__}, which is no JSON ({error}); return numbers, texts, lists, dicts"
            raise Refusal("result_not_json", what) from None
        if len(text) > RESULT_BYTES_MAX:
            what = f"returned {len(text)} bytes of JSON; at most {RESULT_BYTES_MAX} fit: store it and return its place"
            raise Refusal("result_too_large", what)
        self._unsent += len(text)
        return text.decode()

    def _awaited(self, coroutine: Coroutine[Any, Any, object]) -> object:
        import asyncio  # megabytes that only async functions pay for

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._coroutine = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(self._coroutine)
        except asyncio.CancelledError:
            if self._coroutine.cancelling():
                raise Stopped from None
            raise Refusal("raised", "CancelledError: the function cancelled itself") from None
        finally:
            self._coroutine = None

    def _context(self, job: Job) -> Context:
        context = Context(
            tenant=job.tenant, task=job.task, attempt=job.attempt, cap_at=monotonic() + job.cap_ms / 1000,
            now=monotonic, moved=lambda: self._news(job.task)[0] / 1e9, asked=lambda: bool(self._news(job.task)[1]),
        )  # fmt: skip
        return self._with_checkpoints(context) if job.checkpoints else context

    def _with_checkpoints(self, context: Context) -> Context:
        from headway.agent import worker_checkpoints as written  # for those few that write some

        place = written.directory_of(context.task, context.attempt)

        def keep(state: object, waits: bool) -> None:
            written.keep(place, state, waits=waits)

        return dataclasses.replace(context, checkpoint_dir=place, keep=keep, state=written.state_in(place))

    def _news(self, task: int) -> tuple[int, int]:
        """What the agent has to say to the running task: by how many ns its cap was moved since it was given, and
        whether it is to leave."""
        whose, nanoseconds, leaves = NEWS.unpack_from(self._page, NEWS_OFFSET)
        return (nanoseconds, leaves) if whose == task else (0, 0)

    def _with_log(self, job: Job, ending: Ending) -> Ending:
        log = self._printed.take()
        self._unsent += len(log)
        pieces = [log[at : at + CHUNK_BYTES] for at in range(0, len(log), CHUNK_BYTES)]
        self._logs.extend(LogChunk(job.tenant, job.task, job.attempt, n * CHUNK_BYTES, p) for n, p in enumerate(pieces))
        return msgspec.structs.replace(ending, tail=log[-TAIL_BYTES_MAX:], log_bytes=len(log))

    def _on_stop(self, _signal: int, _frame: FrameType | None) -> None:
        (target,) = STOP.unpack_from(self._page, STOP_OFFSET)
        if target == 0 or target != self._running:
            return
        if self._coroutine is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._coroutine.cancel)
            return
        raise Stopped

    def _forked(self) -> None:
        """In a child that a function forked: what is the agent's is not the child's. The page is only let go of,
        for closing it would close a descriptor whose number may be the function's by now."""
        self._data.close()
        self._control.close()
        self._theirs, self._page = self._page, mmap.mmap(-1, PAGE_BYTES)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def _obey(self) -> None:
        """The control thread: blocked in recv until the agent wants unstarted jobs back, or is gone."""
        while self._control.recv(1):
            revoked: list[int] = []
            while self._jobs:
                try:
                    revoked.append(self._jobs.pop().task)
                except IndexError:
                    break
            self._flush(revoked[::-1])
        os._exit(0)

    def _flush(self, revoked: list[int]) -> None:
        with self._sending:
            self._unsent = 0
            endings = [self._ended.popleft() for _ in range(len(self._ended))]
            logs = [self._logs.popleft() for _ in range(len(self._logs))]
            if endings or logs or revoked:
                now = monotonic_ns()
                message = Finished(endings, logs, revoked, now - self._busy_since if endings else 0)
                self._busy_since = now if endings else self._busy_since
                self._tell(message)

    def _tell(self, message: Finished) -> None:
        try:
            self._data.sendall(framed(_encode(message)))
        except OSError:  # the agent is gone, or a function closed our sockets: the one that ran last is blamed
            if message.endings:
                CURRENT.pack_into(self._page, 0, message.endings[-1].task, monotonic_ns())
            os._exit(CUT_OFF)

    def _send(self, message: Booted) -> None:
        self._data.sendall(framed(_encode(message)))

    def _receive(self) -> bytearray:
        (size,) = HEADER.unpack(self._exactly(HEADER.size))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        body = bytearray(size)
        view = memoryview(body)
        while view:
            got = self._data.recv_into(view)
            if not got:
                os._exit(0)
            view = view[got:]
        return body


def load(where: str) -> Mapping[str, Function]:
    """The functions of MODULE:app."""
    module, _, name = where.partition(":")
    app: object = getattr(importlib.import_module(module), name or "app")
    if not isinstance(app, App):
        raise TypeError(f"{where} is a {type(app).__name__}, not a headway.App")
    return app.tasks


def unknown(name: str, functions: Mapping[str, Function]) -> str:
    """Says that there is no such function, and which there are."""
    offered = ", ".join(sorted(functions)[:10]) or "none"
    return f"this worker has no function {name!r}; it has: {offered}. Deploy the app that defines it"


def told(raised: BaseException) -> tuple[str, str]:
    """The traceback and the message of an exception, whose own code may raise anything when it is asked."""
    name = type(raised).__name__
    try:
        text = "".join(traceback.format_exception(type(raised), raised, past_ours(raised)))
        return text, plain(f"{name}: {raised}")
    except Stopped:
        raise
    except BaseException as error:  # noqa: BLE001  see above
        message = plain(f"{name} (its text cannot be had: {type(error).__name__})")
        return message + "\n", message


def exit_status(raised: BaseException | None) -> int:
    """How Python itself would end with this."""
    match raised:
        case None:
            return 0
        case SystemExit(code=None):
            return 0
        case SystemExit(code=int(status)):
            return status & 0xFF
        case _:
            return 1


def past_ours(raised: BaseException) -> TracebackType | None:
    """The traceback from the client's first frame on: ours say nothing to the author of the function."""
    at = raised.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename == __file__:
        at = at.tb_next
    return at


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when its agent dies, even while C code holds the interpreter."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def moved_up(fd: int) -> int:
    """The descriptor under a high number."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FD_MIN)
    except OSError:  # a limit below FD_MIN
        os.set_inheritable(fd, False)
        return fd
    os.close(fd)
    return high


def settle_memory() -> None:
    """What the imports left over goes back to the system (4 MB where it was measured), and what they made
    stays: the collector need not walk it again."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError):  # a C library that is not glibc
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """Runs one worker; see the module's first line for its arguments."""
    where, data_fd, control_fd, page_fd, parent = sys.argv[1:]
    die_with(int(parent))
    page = mmap.mmap(int(page_fd), PAGE_BYTES)
    os.close(int(page_fd))
    data, control = socket.socket(fileno=moved_up(int(data_fd))), socket.socket(fileno=moved_up(int(control_fd)))
    worker = Worker(data, control, page)
    try:
        worker.boot(where)
    except Exception:  # noqa: BLE001  importing a client's app may raise anything; the agent must hear what
        data.sendall(framed(_encode(Booted([], traceback.format_exc().encode("utf-8", "backslashreplace").decode()))))
        sys.exit(1)
    worker.run()


if __name__ == "__main__":
    main()
