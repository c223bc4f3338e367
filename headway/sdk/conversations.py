"""Everything a client can ask, as conversations: generators that yield what to send and are sent what came
back.

No I/O here, so the sync and the async client hold the same conversations and differ only in how bytes travel.
The promise: what is safe to repeat is repeated over a lost connection or a restarted server; a submission
never is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from headway.core.task import Submission
from headway.sdk import records
from headway.sdk.bundles import Bundle
from headway.sdk.errors import NotFound, TaskCancelled, TaskFailed, Unavailable, refusal
from headway.sdk.records import Artifact, Attempt, Batch, Page, Script, TaskRecord

POLL_SECONDS_MAX = 60.0
"""The longest wait the server grants one request."""
BATCH_ITEMS_MAX = 10_000
WAIT_IDS_MAX = 1_000
PATIENCE_SECONDS = 30.0
"""How long a server that was there may stay away while something repeatable is asked of it."""
ANSWER_SECONDS = 60.0
"""How long an answer may take beyond the wait that was asked for."""
UPLOAD_BYTES_PER_SECOND = 1_000_000
"""A client slower than this gives up."""
JSON = "application/json"
BYTES = "application/octet-stream"


class Request(NamedTuple):
    """What to send. `repeatable`: sending it twice does no harm."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    repeatable: bool = False
    timeout: float = ANSWER_SECONDS
    file: Path | None = None
    """A file to send instead of a body, read while it is sent."""
    headers: Mapping[str, str] = {}
    """Beside the usual ones."""


class Response(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None = None


class Lost(NamedTuple):
    """Nothing came back. `met`: there was somebody, and the connection broke."""

    why: str
    met: bool


class Pause(NamedTuple):
    """A wait between two requests."""

    seconds: float


T = TypeVar("T")
Clock = Callable[[], float]
Conversation = Generator[Request | Pause, Response | Lost | None, T]

_encode = msgspec.json.Encoder().encode


def submit(said: Submission) -> Conversation[TaskRecord]:
    """One task, durable when this returns."""
    return records.task((yield from ask(Request("POST", "/v1/tasks", _encode(said)))))


def submit_batch(said: Sequence[Submission]) -> Conversation[Batch]:
    """Up to 10,000 tasks in one request, each accepted or refused by itself."""
    assert len(said) <= BATCH_ITEMS_MAX, "split it first"
    return records.batch((yield from ask(Request("POST", "/v1/tasks:batch", _encode(said), timeout=120.0))))


def submit_lines(lines: bytes) -> Conversation[Batch]:
    """Like submit_batch, from NDJSON as it stands in a file."""
    request = Request("POST", "/v1/tasks:batch", lines, "application/x-ndjson", timeout=120.0)
    return records.batch((yield from ask(request)))


def upload(text: bytes) -> Conversation[Script]:
    """Stores a script under the digest of its text."""
    return records.script((yield from ask(Request("POST", "/v1/scripts", text, BYTES, repeatable=True))))


def upload_bundle(bundle: Bundle) -> Conversation[str]:
    """Stores a packed folder, unless it is there; answers its digest."""
    path = f"/v1/blobs/{bundle.digest}"
    try:
        yield from ask(Request("HEAD", path, repeatable=True))
    except NotFound:
        seconds = ANSWER_SECONDS + bundle.size / UPLOAD_BYTES_PER_SECOND
        yield from ask(Request("PUT", path, b"", BYTES, repeatable=True, timeout=seconds, file=bundle.file))
    return bundle.digest


def artifacts(task_id: str, attempt: int | None = None) -> Conversation[list[Artifact]]:
    """The files an attempt (the last one) left."""
    found: list[Artifact] = []
    cursor: str | None = None
    while True:
        query = _query(attempt=attempt, cursor=cursor)
        part = records.artifacts((yield from ask(_get(f"{_path(task_id)}/artifacts{query}"))))
        found += part.items
        cursor = part.next_cursor
        if cursor is None:
            return found


def artifact_list(task_id: str, attempt: int | None = None) -> Conversation[dict[str, object]]:
    """The first part of what an attempt left, with what of it was not taken and why."""
    return records.anything((yield from ask(_get(f"{_path(task_id)}/artifacts{_query(attempt=attempt)}"))))


def download_request(task_id: str, path: str | None = None, attempt: int | None = None) -> Request:
    """What to send for a file that an attempt left, or for the archive of all of them."""
    what = ":archive" if path is None else "/" + quote(path)
    return _get(f"{_path(task_id)}/artifacts{what}{_query(attempt=attempt)}")


def task(task_id: str) -> Conversation[TaskRecord]:
    """One task as it is now."""
    return records.task((yield from ask(_get(_path(task_id)))))


def tasks(
    *,
    status: str | None = None,
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Conversation[Page]:
    """Part of the list of tasks, newest first."""
    asked = [("status", status), ("name", name), ("limit", str(limit)), ("cursor", cursor)]
    asked += [("tag", f"{key}:{value}") for key, value in (tags or {}).items()]
    query = urlencode([(key, value) for key, value in asked if value is not None])
    return records.page((yield from ask(_get(f"/v1/tasks?{query}"))))


def attempts(task_id: str) -> Conversation[list[Attempt]]:
    """The tries at running a task, first one first."""
    return records.attempts((yield from ask(_get(_path(task_id) + "/attempts"))))


def explain(task_id: str) -> Conversation[dict[str, object]]:
    """Why a task waits, why it runs where it does, or how it ended."""
    return records.anything((yield from ask(_get(_path(task_id) + "/explain"))))


def cancel(task_id: str) -> Conversation[TaskRecord]:
    """Stops a task, or sees to it that it never starts."""
    return records.task((yield from ask(Request("POST", _path(task_id) + ":cancel"))))


def change(task_id: str, **said: object) -> Conversation[TaskRecord]:
    """Other bounds for a task that is not over: `execution_cap`, `delay_tolerance`, `cap_grace`, `off_peak`."""
    return records.task((yield from ask(Request("PATCH", _path(task_id), _encode(said), repeatable=True))))


def pause(task_id: str, release: bool = False) -> Conversation[TaskRecord]:
    """Keeps a task from starting, or has it stand still where it runs; with `release` write a checkpoint and leave."""
    path = _path(task_id) + ":pause" + ("?release=1" if release else "")
    return records.task((yield from ask(Request("POST", path, repeatable=True))))


def resume(task_id: str) -> Conversation[TaskRecord]:
    """Lets a paused task take part again, or go on where it stands."""
    return records.task((yield from ask(Request("POST", _path(task_id) + ":resume", repeatable=True))))


def events(
    *,
    cursor: str | None = None,
    task: str | None = None,
    kinds: Sequence[str] = (),
    limit: int = 100,
    wait: int = 0,
) -> Conversation[records.Events]:
    """What went otherwise than asked behind a cursor (`now`: from now on), oldest first; waits for some if asked to."""
    asked = [("cursor", cursor), ("task", task), ("limit", str(limit)), ("wait", str(wait) if wait else None)]
    asked += [("kind", kind) for kind in kinds]
    query = urlencode([(key, value) for key, value in asked if value is not None])
    return records.events((yield from ask(_get(f"/v1/events?{query}", wait + ANSWER_SECONDS))))


def nodes() -> Conversation[list[dict[str, object]]]:
    """The machines that run tasks."""
    return records.objects((yield from ask(_get("/v1/nodes"))))


def me() -> Conversation[dict[str, object]]:
    """Whose key this is."""
    return records.anything((yield from ask(_get("/v1/me"))))


def finished(task_id: str, timeout: float | None = None, now: Clock = time.monotonic) -> Conversation[TaskRecord]:
    """The task once it is final; raises TimeoutError when it is not by then."""
    until = None if timeout is None else now() + timeout
    while True:
        wait = _poll_seconds(until, now)
        path = f"{_path(task_id)}/result?wait={wait:g}"
        record = records.task((yield from ask(_get(path, wait + ANSWER_SECONDS), now)))
        if record.final:
            return record
        if until is not None and now() >= until:
            raise TimeoutError(f"task {task_id} is still {record.status} after {timeout:g} s{_because(record)}")


def all_finished(
    ids: Sequence[str],
    timeout: float | None = None,
    seen: Callable[[TaskRecord], None] | None = None,
    now: Clock = time.monotonic,
) -> Conversation[dict[str, TaskRecord]]:
    """Every task by id once all are final; `seen` is told of each as it ends."""
    until = None if timeout is None else now() + timeout
    final: dict[str, TaskRecord] = {}
    pending = list(dict.fromkeys(ids))
    while pending:
        asked = pending[:WAIT_IDS_MAX]
        ended = yield from _any_finished(asked, _poll_seconds(until, now), now)
        for record in ended:
            final[record.id] = record
            if seen is not None:
                seen(record)
        pending = [one for one in pending if one not in final]
        if pending and until is not None and now() >= until:
            raise TimeoutError(f"not finished after {timeout:g} s: {len(pending)} of {len(ids)}")
        if ended and len(ended) * 10 < len(asked):
            yield Pause(0.02)  # lets some more end, so that 1,000 tasks do not take 1,000 requests
    return final


def outcome(task_id: str, timeout: float | None = None, now: Clock = time.monotonic) -> Conversation[object]:
    """The result of a task; raises TaskFailed, TaskCancelled, TimeoutError."""
    return (yield from value((yield from finished(task_id, timeout, now))))


def outcomes(
    ids: Sequence[str], timeout: float | None = None, now: Clock = time.monotonic
) -> Conversation[list[object]]:
    """The results of tasks in the order of `ids`; raises for the first that has none."""
    final = yield from all_finished(ids, timeout, now=now)
    values: list[object] = []
    for task_id in ids:
        values.append((yield from value(final[task_id])))
    return values


def value(record: TaskRecord) -> Conversation[object]:
    """The result in a final record, or the exception that says why there is none."""
    reason = record.reason or records.Reason()
    if record.status == "done":
        return record.result
    if record.status == "cancelled":
        raise TaskCancelled(record.id, reason.message)
    tried = yield from attempts(record.id)
    tail = tried[-1].tail if tried else None
    raise TaskFailed(record.id, reason.code, reason.message, tail or "")


def log_request(task_id: str, attempt: int | None = None, follow: bool = False, offset: int | None = None) -> Request:
    """What to send for a log, from a byte on. With `follow` the answer goes on until the task has ended."""
    return _get(f"{_path(task_id)}/logs{_query(attempt=attempt, offset=offset, follow=1 if follow else None)}")


def ask(request: Request, now: Clock = time.monotonic) -> Conversation[bytes]:
    """The body of a good answer. Repeats what is repeatable as long as its server may come back."""
    lost_at: float | None = None
    delay = 0.05
    while True:
        answer = yield request
        assert answer is not None, "only a pause is answered by nothing"
        if isinstance(answer, Response) and answer.status < 300:
            return answer.body
        gone = answer if isinstance(answer, Lost) else None
        away = gone is not None or (isinstance(answer, Response) and answer.status in {502, 503, 504})
        if lost_at is None and away and (gone is None or gone.met):
            lost_at = now()
        if not (away and request.repeatable and lost_at is not None and now() - lost_at < PATIENCE_SECONDS):
            raise unanswered(gone, request) if gone else _refused(answer)
        yield Pause(delay)
        delay = min(delay * 2, 2.0)


def unanswered(lost: Lost, request: Request) -> Unavailable:
    """The error for a request that nobody answered."""
    if not lost.met:
        return Unavailable(
            f"no Headway server answers: {lost.why}\n"
            "Start one here with `headway dev`, or say where it is: --url and --key, "
            "or HEADWAY_URL and HEADWAY_KEY."
        )
    doubt = "" if request.repeatable else " It may have arrived: look with `headway ps` before sending it again."
    return Unavailable(f"the connection to the server broke: {lost.why}.{doubt}")


def chunks(said: Iterable[T], most: int = BATCH_ITEMS_MAX) -> Generator[list[T], None, None]:
    """`said` in lists of up to `most`."""
    held: list[T] = []
    for one in said:
        held.append(one)
        if len(held) == most:
            yield held
            held = []
    if held:
        yield held


def _any_finished(ids: Collection[str], wait: float, now: Clock) -> Conversation[list[TaskRecord]]:
    body = _encode({"ids": list(ids), "wait": wait})
    request = Request("POST", "/v1/tasks:wait", body, repeatable=True, timeout=wait + ANSWER_SECONDS)
    return records.page((yield from ask(request, now))).items


def _refused(answer: Response | Lost | None) -> Exception:
    assert isinstance(answer, Response)
    return refusal(answer.status, answer.body, answer.retry_after)


def _get(path: str, timeout: float = ANSWER_SECONDS) -> Request:
    return Request("GET", path, repeatable=True, timeout=timeout)


def _query(**asked: object) -> str:
    query = urlencode({key: said for key, said in asked.items() if said is not None})
    return f"?{query}" if query else ""


def _path(task_id: str) -> str:
    return f"/v1/tasks/{quote(task_id, safe='')}"


def _poll_seconds(until: float | None, now: Clock) -> float:
    return POLL_SECONDS_MAX if until is None else round(min(POLL_SECONDS_MAX, max(until - now(), 0.0)), 3)


def _because(record: TaskRecord) -> str:
    return f": {record.reason.message}" if record.reason and record.reason.message else ""
