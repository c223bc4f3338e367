"""From what a client said to a row about to be stored: tiers, shapes, scripts, lane, id."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from headway.core.lifecycle import Lane, State
from headway.core.placement import shape_of
from headway.core.refusal import Refused
from headway.core.task import URGENT_TOLERANCE_MS, Admitted, Submission, Tier, admit
from headway.gateway.auth import Caller
from headway.gateway.issuing import Issuing
from headway.store.cluster import ClusterStore
from headway.store.rows import NewTask
from headway.store.tasks import TaskStore

TIERS_SECONDS = 5.0
SHAPES_MAX = 100_000

_ShapeInputs = tuple[str, tuple[tuple[str, int], ...], str, str | None]


class Admission:
    """Knows tiers, stored shapes and uploaded scripts, so that the usual submission asks the database nothing."""

    def __init__(self, cluster: ClusterStore, tasks: TaskStore, issuing: Issuing) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._issuing = issuing
        self._tiers: dict[str, Tier] = {}
        self._tiers_until = 0.0
        self._numbers: dict[_ShapeInputs, tuple[int, str]] = {}
        self._stored: set[tuple[int, int]] = set()
        self._scripts: set[tuple[int, str]] = set()

    async def tiers(self) -> dict[str, Tier]:
        """The tiers there are; a change is seen within seconds."""
        if time.monotonic() >= self._tiers_until:
            self._tiers = await self._cluster.tiers()
            self._tiers_until = time.monotonic() + TIERS_SECONDS
        return self._tiers

    async def admit(self, caller: Caller, said: Sequence[Submission]) -> list[NewTask | list[Refused]]:
        """Each submission as a row to store, or what is wrong with it."""
        tiers = await self.tiers()
        verdicts = [admit(one, tiers) for one in said]
        await self._look_up_scripts(caller.tenant, verdicts)
        rows = self._rows(caller, [verdict for verdict in verdicts if isinstance(verdict, Admitted)])
        await self._store_shapes(rows)
        following = iter(rows)
        return [next(following) if isinstance(verdict, Admitted) else verdict for verdict in verdicts]

    async def _look_up_scripts(self, tenant: int, verdicts: list[Admitted | list[Refused]]) -> None:
        """Refuses tasks whose script was never uploaded."""
        wanted = {v.script for v in verdicts if isinstance(v, Admitted) and v.script is not None}
        unknown = [digest for digest in wanted if (tenant, digest) not in self._scripts]
        if unknown:
            found = await self._tasks.known_scripts(tenant, unknown)
            self._scripts.update((tenant, digest) for digest in found)
            missing = set(unknown) - found
            for index, verdict in enumerate(verdicts):
                if isinstance(verdict, Admitted) and verdict.script in missing:
                    verdicts[index] = [
                        Refused("script", "no script of that digest was uploaded; POST it to /v1/scripts first")
                    ]

    def _rows(self, caller: Caller, admitted: list[Admitted]) -> list[NewTask]:
        """Rows for admitted submissions. Runs 50,000 times a second: one clock reading and one id range for all."""
        if not admitted:
            return []
        now = datetime.now(UTC)
        rows: list[NewTask] = []
        for task, one in zip(self._issuing.take(len(admitted)), admitted, strict=True):
            later = one.eligible_at is not None and one.eligible_at > now
            eligible_at = one.eligible_at if later and one.eligible_at is not None else now
            lane = Lane.URGENT if one.delay_tolerance_ms <= URGENT_TOLERANCE_MS else Lane.NORMAL
            rows.append(
                NewTask(
                    caller.tenant,
                    task,
                    one,
                    lane.value,
                    State.SCHEDULED.value if later else State.READY.value,
                    self._shape(one)[0],
                    caller.submitted_by,
                    now,
                    eligible_at,
                    eligible_at.timestamp() + one.delay_tolerance_ms / 1000,
                )
            )
        return rows

    def _shape(self, one: Admitted) -> tuple[int, str]:
        inputs = (one.kind, one.needs, one.tier, one.function)
        known = self._numbers.get(inputs)
        if known is None:
            if len(self._numbers) >= SHAPES_MAX:
                self._numbers.clear()
            known = self._numbers[inputs] = shape_of(one.kind, one.needs, one.tier, one.function)
        return known

    async def _store_shapes(self, rows: list[NewTask]) -> None:
        fresh = {(row.tenant, row.shape): row for row in rows if (row.tenant, row.shape) not in self._stored}
        if not fresh:
            return
        if len(self._stored) >= SHAPES_MAX:
            self._stored.clear()
        await self._tasks.keep_shapes(
            [(tenant, shape, self._shape(row.admitted)[1]) for (tenant, shape), row in fresh.items()]
        )
        self._stored.update(fresh)
