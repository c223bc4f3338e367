"""The HTTP endpoints: each reads like the sentence of the API it serves. Wiring and OpenAPI are in `routes`."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headway.core.ids import ID_MAX
from headway.core.lifecycle import State
from headway.core.refusal import Refused
from headway.core.task import Submission
from headway.gateway.admission import Admission
from headway.gateway.auth import Authenticator, Caller
from headway.gateway.batch import submit_batch
from headway.gateway.decoding import (
    SINGLE_BYTES_MAX,
    decode,
    expect_media_type,
    read_body,
    whole,
)
from headway.gateway.explaining import explained
from headway.gateway.insight import NO_LEADER, Insight
from headway.gateway.problems import Problem, refused
from headway.gateway.stats import stats
from headway.gateway.submitting import Submitting
from headway.gateway.views import TaskView, Why, attempt_view, new_task_view, nothing_known, task_view
from headway.gateway.waiting import Waiting
from headway.store.blobs import BlobStore, one_piece
from headway.store.cluster import ClusterStore
from headway.store.events import EventStore
from headway.store.queue import QueueStore
from headway.store.tasks import Filter, TaskStore
from headway.wire import Key

WAIT_SECONDS_MAX = 60.0
WAIT_IDS_MAX = 1000
LIST_MAX = 1000
SEARCHES_MAX = 2
"""How many lists are looked for at a time: a filter may find nothing in millions of tasks, and others ask too."""
SCRIPT_BYTES_MAX = 1024 * 1024
STATUSES = ("waiting", "running", "done", "failed", "cancelled")

_submission = msgspec.json.Decoder(Submission)
_encode = msgspec.json.Encoder().encode


class Stopper(Protocol):
    """Who stops running attempts: the leader, if it is in this process."""

    def stop_soon(self, cancelled: list[tuple[Key, int]], dropped: list[int]) -> None:
        """Stops owned attempts on their nodes and forgets waiting ones."""
        ...


class WaitFor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/tasks:wait`."""

    ids: list[str]
    wait: float = 0.0


_wait_for = msgspec.json.Decoder(WaitFor)


class Api:
    """The gateway's endpoints and what they lean on."""

    def __init__(
        self,
        *,
        cluster: ClusterStore,
        tasks: TaskStore,
        queue: QueueStore,
        blobs: BlobStore,
        authenticator: Authenticator,
        admission: Admission,
        submitting: Submitting,
        waiting: Waiting,
        stopper: Stopper,
        insight: Insight,
        events: EventStore,
        pool_name: str = "default",
    ) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._queue = queue
        self._blobs = blobs
        self._authenticator = authenticator
        self._admission = admission
        self._submitting = submitting
        self._waiting = waiting
        self._stopper = stopper
        self._insight = insight
        self._events = events
        self._pool_name = pool_name
        self._tenant_names: dict[int, str] = {}
        self._searches = asyncio.Semaphore(SEARCHES_MAX)

    async def _caller(self, request: Request) -> Caller:
        return await self._authenticator.caller(request.headers.get("authorization"), role="client")

    async def _tenant(self, number: int) -> str:
        if number not in self._tenant_names:
            self._tenant_names = await self._cluster.tenants()
        return self._tenant_names[number]

    async def submit(self, request: Request) -> Response:
        """Accepts one task."""
        caller = await self._caller(request)
        expect_media_type(request, "application/json")
        said = decode(await read_body(request, SINGLE_BYTES_MAX), _submission)
        (verdict,) = await self._admission.admit(caller, [said])
        if isinstance(verdict, list):
            raise refused(verdict)
        if isinstance(verdict, Problem):
            raise verdict
        warnings = await self._admission.warnings([verdict])
        await self._submitting.submit([verdict])
        view = new_task_view(verdict, await self._tenant(caller.tenant), list(warnings.values()))
        return _json(view, 201, {"Location": f"/v1/tasks/{view.id}"})

    async def submit_batch(self, request: Request) -> Response:
        """Accepts many tasks; each is answered for itself."""
        caller = await self._caller(request)
        return _json(await submit_batch(request, caller, self._admission, self._submitting))

    async def get(self, request: Request) -> Response:
        """Shows one task."""
        caller = await self._caller(request)
        return _json(await self.view(caller, task_id(request)))

    async def list(self, request: Request) -> Response:
        """Lists tasks, newest first."""
        caller = await self._caller(request)
        asked = _filter(request)
        async with self._searches:
            ids = await self._tasks.list_ids(caller.tenant, asked)
        tenant = await self._tenant(caller.tenant)
        rows = await self._tasks.get(caller.tenant, ids) if ids else []
        cursor = str(ids[-1]) if len(ids) == asked.limit else None
        why = await self._why()
        return _json({"items": [task_view(row, tenant, why) for row in rows], "next_cursor": cursor})

    async def _why(self) -> Why:
        """Why lines wait, as the leader saw it last."""
        known = await self._insight.known()
        if known is None:
            return nothing_known if self._insight.is_led else lambda _: NO_LEADER
        return known.why.get

    async def explain(self, request: Request) -> Response:
        """Why a task waits, why it runs where it does, or how it ended."""
        caller = await self._caller(request)
        task = task_id(request)
        rows = await self._tasks.get(caller.tenant, [task])
        if not rows:
            raise Problem("not_found", f"there is no task {task}")
        (row,) = rows
        known, shape, capacity = await self._insight.known(), None, dict[str, int]()
        if row["node_name"] is not None and row["shape"] is not None:
            shape = (await self._tasks.read_shapes([(caller.tenant, row["shape"])]))[row["shape"]]
            nodes = {node["name"]: node["capacity"] for node in await self._cluster.nodes()}
            capacity = msgspec.json.decode(nodes.get(row["node_name"], "{}"), type=dict[str, int])
        why = None
        if row["state"] in (State.FROZEN, State.HELD, State.PAUSED):
            why = await self._events.why(caller.tenant, task, ("preempted", "paused"))
        margin = known.outlook.promotion_margin if known is not None else 0.0
        return _json(
            await explained(
                row, caller.tenant, self._insight, shape=shape, capacity=capacity, margin_seconds=margin, why=why
            )
        )  # fmt: skip

    async def cancel(self, request: Request) -> Response:
        """Cancels one task: at once while it waits, by stopping it when it runs."""
        caller = await self._caller(request)
        task = task_id(request)
        found = await self._queue.cancel(caller.tenant, [task])
        if task not in found:
            await self._explain_why_not_cancelled(caller, task)
        owned = found.get(task)
        self._stopper.stop_soon([owned] if owned else [], [task])
        if owned is None:
            self._waiting.ended([(caller.tenant, task)])
        return _json(await self.view(caller, task))

    async def _explain_why_not_cancelled(self, caller: Caller, task: int) -> None:
        view = await self.view(caller, task)
        if view.status in ("done", "failed", "cancelled"):
            raise Problem("already_finished", f"task {task} is {view.status}; there is nothing to cancel")

    async def attempts(self, request: Request) -> Response:
        """Lists the tries of a task, oldest first."""
        caller = await self._caller(request)
        task = task_id(request)
        await self.view(caller, task)
        rows = await self._tasks.attempts(caller.tenant, task)
        return _json({"items": [attempt_view(row) for row in rows]})

    async def result(self, request: Request) -> Response:
        """The task once it is over (200), or as it is (202); waits up to `wait` seconds for the end."""
        caller = await self._caller(request)
        task = task_id(request)
        view = await self.view(caller, task)
        seconds = _seconds(request, "wait")
        if view.finished_at is None and seconds > 0:
            await self._waiting.any_of(caller.tenant, [task], seconds)
            view = await self.view(caller, task)
        return _json(view, 200 if view.finished_at is not None else 202)

    async def wait(self, request: Request) -> Response:
        """Those of many tasks that are over, as soon as one is."""
        caller = await self._caller(request)
        expect_media_type(request, "application/json")
        asked = decode(await read_body(request, SINGLE_BYTES_MAX), _wait_for)
        if len(asked.ids) > WAIT_IDS_MAX:
            raise refused([Refused("ids", f"expected at most {WAIT_IDS_MAX} ids")])
        if not 0 <= asked.wait <= WAIT_SECONDS_MAX:
            raise refused([Refused("wait", f"expected seconds from 0 to {WAIT_SECONDS_MAX:g}")])
        ids = [_parse_id(text) for text in asked.ids]
        over = await self._waiting.any_of(caller.tenant, ids, asked.wait) if ids else set[int]()
        tenant = await self._tenant(caller.tenant)
        rows = await self._tasks.get(caller.tenant, list(over)) if over else []
        return _json({"items": [task_view(row, tenant) for row in rows]})

    async def upload_script(self, request: Request) -> Response:
        """Keeps a script by the digest of its text."""
        caller = await self._caller(request)
        body = await read_body(request, SCRIPT_BYTES_MAX)
        if not body:
            raise refused([Refused("", "the script is empty")])
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        await self._blobs.keep(caller.tenant, digest, one_piece(body), most=SCRIPT_BYTES_MAX)
        return _json({"digest": digest, "size": len(body)}, 201)

    async def stats(self, request: Request) -> Response:
        """Whether the pools have enough."""
        await self._authenticator.caller(request.headers.get("authorization"), role="admin")
        return _json(stats(self._pool_name, await self._insight.known()))

    async def view(self, caller: Caller, task: int) -> TaskView:
        """A task as its tenant sees it."""
        rows = await self._tasks.get(caller.tenant, [task])
        if not rows:
            raise Problem("not_found", f"there is no task {task}")
        return task_view(rows[0], await self._tenant(caller.tenant), await self._why())


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers, media_type="application/json")


def _parse_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= ID_MAX):
        raise Problem("not_found", f"there is no task {text[:40]!r}: an id is a whole number")
    return int(text)


def task_id(request: Request) -> int:
    """The id in the path."""
    return _parse_id(request.path_params["id"])


def _seconds(request: Request, name: str) -> float:
    text = request.query_params.get(name, "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise refused([Refused(name, f"expected seconds from 0 to {WAIT_SECONDS_MAX:g}")])
    return seconds


def _filter(request: Request) -> Filter:
    said = request.query_params
    status = said.get("status")
    if status is not None and status not in STATUSES:
        raise refused([Refused("status", f"expected one of {', '.join(STATUSES)}")])
    tags = said.getlist("tag")
    if any(":" not in tag for tag in tags):
        raise refused([Refused("tag", "expected name:value")])
    limit = whole(request, "limit", 100, least=1, most=LIST_MAX)
    before = whole(request, "cursor", ID_MAX, least=0, most=ID_MAX)
    return Filter(status, said.get("name"), dict(_pair(tag) for tag in tags), before, limit)


def _pair(tag: str) -> tuple[str, str]:
    name, _, value = tag.partition(":")
    return name, value
