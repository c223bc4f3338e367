"""The HTTP endpoints that steer one task between its submission and its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headway.core.amend import Amendment, amend
from headway.core.lifecycle import ENDED, State
from headway.core.refusal import Refused
from headway.core.task import Spec, Tier
from headway.gateway.auth import Authenticator, Caller
from headway.gateway.decoding import SINGLE_BYTES_MAX, decode, expect_media_type, read_body
from headway.gateway.problems import Problem, refused
from headway.gateway.views import TaskView
from headway.store.accounts import AccountStore
from headway.store.database import Row
from headway.store.steering import SteeringStore
from headway.store.tasks import TaskStore
from headway.wire import Key

_amendment = msgspec.json.Decoder(Amendment)
_encode = msgspec.json.Encoder().encode


class Steerer(Protocol):
    """Who carries out what is wanted: the leader, if it is in this process."""

    def steer_soon(self) -> None:
        """Something about a task on its way was changed."""
        ...

    def stop_soon(self, cancelled: list[tuple[Key, int]], dropped: list[int]) -> None:
        """Forgets waiting ones."""
        ...


class SteeringApi:
    """The endpoints and what they lean on."""

    def __init__(
        self,
        *,
        steering: SteeringStore,
        tasks: TaskStore,
        accounts: AccountStore,
        authenticator: Authenticator,
        steerer: Steerer,
        view: Callable[[Caller, int], Awaitable[TaskView]],
        task_id: Callable[[Request], int],
    ) -> None:
        self._steering = steering
        self._tasks = tasks
        self._accounts = accounts
        self._authenticator = authenticator
        self._steerer = steerer
        self._view = view
        self._task_id = task_id

    async def _caller(self, request: Request) -> Caller:
        return await self._authenticator.caller(request.headers.get("authorization"), role="client")

    async def change(self, request: Request) -> Response:
        """Changes how long a task may run, how late it may start, how it is stopped; of one that runs, too."""
        caller, task = await self._caller(request), self._task_id(request)
        expect_media_type(request, "application/json")
        said = decode(await read_body(request, SINGLE_BYTES_MAX), _amendment)
        row = await self._unfinished(caller, task, "changed")
        tier = await self._accounts.tier(row["tier"])
        assert tier is not None, "tiers are never taken away"
        size = Tier(tier.name, tier.needs, tier.default_cap_ms, tier.max_cap_ms)
        amended = amend(said, size, row["delay_tolerance_ms"])
        if isinstance(amended, list):
            raise refused(amended)
        if not await self._steering.change(caller.tenant, task, amended):
            await self._unfinished(caller, task, "changed")
        self._steerer.steer_soon()
        return await self._answer(caller, task)

    async def pause(self, request: Request) -> Response:
        """Pauses a task: one that waits does not start, one that runs stands still on its node."""
        caller, task = await self._caller(request), self._task_id(request)
        leaves = await self._leaves(request, caller, task)
        state = await self._steering.pause(caller.tenant, task, f"paused by {caller.submitted_by}", leaves=leaves)
        if state is None:
            await self._expect_not_cancelled(caller, task, "paused")
        self._steerer.stop_soon([], [task])
        self._steerer.steer_soon()
        return await self._answer(caller, task)

    async def _leaves(self, request: Request, caller: Caller, task: int) -> bool:
        """Whether it is asked to leave its node, and can."""
        said = request.query_params.get("release", "0")
        if said not in ("0", "1", "true", "false"):
            raise refused([Refused("release", "expected 1 or 0")])
        if said in ("0", "false"):
            return False
        spec = msgspec.json.decode((await self._unfinished(caller, task, "paused"))["spec"], type=Spec)
        if spec.checkpoint is None:
            what = "it writes no checkpoints, so it cannot leave its node; pause it there, or submit it with checkpoint"
            raise refused([Refused("release", what)])
        return True

    async def resume(self, request: Request) -> Response:
        """Lets a paused task take part again, or go on where it stands."""
        caller, task = await self._caller(request), self._task_id(request)
        state = await self._steering.resume(caller.tenant, task, f"resumed by {caller.submitted_by}")
        if state is None:
            await self._expect_not_cancelled(caller, task, "resumed")
        self._steerer.steer_soon()
        return await self._answer(caller, task)

    async def _expect_not_cancelled(self, caller: Caller, task: int, what: str) -> None:
        row = await self._unfinished(caller, task, what)
        if row["state"] == State.CANCELLING:
            raise Problem("already_finished", f"task {task} was cancelled and is being stopped; it cannot be {what}")

    async def _unfinished(self, caller: Caller, task: int, what: str) -> Row:
        """The task, if anything can still be done to it."""
        rows = await self._tasks.get(caller.tenant, [task])
        if not rows:
            raise Problem("not_found", f"there is no task {task}")
        if rows[0]["state"] is None:
            ended = ENDED[rows[0]["status"]].name.lower()
            raise Problem("already_finished", f"task {task} is {ended}; it cannot be {what} any more")
        return rows[0]

    async def _answer(self, caller: Caller, task: int) -> Response:
        return Response(_encode(await self._view(caller, task)), media_type="application/json")
