"""Rows for tests of the store: a pool with a node, a leader, and as many tasks as a test needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headway.core.ids import first_id_at
from headway.core.lifecycle import Lane, State
from headway.store.blobs import BlobStore
from headway.store.cluster import ClusterStore
from headway.store.database import Database
from headway.store.queue import QueueStore
from headway.store.rows import End, NewTask, Template
from headway.store.steering import SteeringStore
from headway.store.tasks import TaskStore
from headway.wire import Key

TENANT = 1
SHAPE = 77
SPEC = '{"command":["/bin/true"]}'


@dataclass
class Shop:
    """The stores of one pool, and a leader's epoch to claim with."""

    database: Database
    cluster: ClusterStore
    tasks: TaskStore
    queue: QueueStore
    steering: SteeringStore
    blobs: BlobStore
    epoch: int
    node: int
    made: list[int] = field(default_factory=list[int])

    async def task(self, state: State = State.READY, *, tenant: int = TENANT, seconds: float = 60.0) -> int:
        """A task brought into a state by the moves that lead there."""
        (task,) = await self.tasks_ready(1, tenant=tenant, seconds=seconds, scheduled=state == State.SCHEDULED)
        key = Key(tenant, task, 1)
        if state >= State.CLAIMED:
            assert await self.queue.claim(self.epoch, [(tenant, task, self.node)])
        if state == State.RUNNING:
            await self.queue.start([key])
        if state == State.CANCELLING:
            await self.queue.cancel(tenant, [task])
        if state in (State.PAUSED, State.PAUSING, State.HELD):
            assert await self.steering.pause(tenant, task, "paused")
        if state in (State.FROZEN, State.HELD):
            assert await self.steering.freeze([(key, "stands still")])
        return task

    async def tasks_ready(
        self, count: int, *, tenant: int = TENANT, seconds: float = 60.0, scheduled: bool = False
    ) -> list[int]:
        """Tasks just submitted."""
        now = datetime.now(UTC)
        first = first_id_at(int(now.timestamp() * 1000)) + len(self.made) + 1
        ids = list(range(first, first + count))
        self.made += ids
        state = State.SCHEDULED if scheduled else State.READY
        eligible = now + timedelta(hours=1) if scheduled else now
        template = Template(
            tenant, "command", Lane.NORMAL, "basic", None, None, "key:test", now, eligible,
            round(seconds * 1000), 30_000, 5000, 3, SHAPE, state,
        )  # fmt: skip
        await self.tasks.submit([NewTask(i, "noop", SPEC, template) for i in ids])
        return ids

    async def state_of(self, task: int, *, tenant: int = TENANT) -> State | None:
        """Where a task is by the database."""
        (row,) = await self.tasks.get(tenant, [task])
        if row["state"] is not None:
            return State(row["state"])
        return {2: State.DONE, 3: State.FAILED, 4: State.CANCELLED}[row["status"]]


def an_end(task: int, *, attempt: int = 1, status: int | None = 2, outcome: int = 0, tenant: int = TENANT) -> End:
    """The end of an attempt."""
    return End(tenant, task, attempt, outcome, status, 5, 0, 0, "", "", None, None, None)


def a_failure(task: int, *, attempt: int = 1, status: int | None = 3, delay_ms: int = 1000) -> End:
    """The end of an attempt that failed."""
    return End(TENANT, task, attempt, 1, status, 5, 1, 0, "exit_nonzero", "exit 1", None, None, b"tail", delay_ms)
