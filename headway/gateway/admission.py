"""From what a client said to a row about to be stored: plan, tiers, shapes, scripts, lane, id."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from headway.core.lifecycle import State
from headway.core.names import PausedNames, by_tenant
from headway.core.placement import Shape, number_of
from headway.core.refusal import Refused
from headway.core.task import Admitted, Submission, Tier, admit
from headway.core.terms import Terms
from headway.gateway.auth import Caller
from headway.gateway.insight import Insight
from headway.gateway.issuing import Issuing
from headway.gateway.known_nodes import KnownNodes
from headway.gateway.lateness import Warning, late, refusal
from headway.gateway.problems import Problem
from headway.gateway.within_plan import Verdict, all_within, bounds_tasks, permitted
from headway.store.accounts import AccountStore, Plan, PolicyRows, TierRow
from headway.store.blobs import BlobStore, slice_start
from headway.store.database import GONE
from headway.store.rows import NewTask, Template
from headway.store.tasks import TaskStore

POLICY_SECONDS = 1.0
"""How long a change of a plan or a tier may go unseen; to ask costs one look at one row."""
LOOK_SECONDS = 2.0
"""How long a submission waits for that look; a database that is frozen does not even say that it is away."""
SHAPES_MAX = 20_000
BLOBS_MAX = 100_000
"""How many are remembered before all are forgotten, to be learnt again: between calls, for a call needs its own."""
STORAGE_BYTES_MAX = 100 * 1024**3
"""What a tenant may store when its plan does not say (`quota: {storage: …}`)."""
AHEAD_MAX = timedelta(days=3653)
_log = structlog.get_logger("headway.gateway")

_Hold = tuple[str, ...]
_ShapeInputs = tuple[str, tuple[tuple[str, int], ...], str, str | None, Terms, str, _Hold]


class Admission:
    """Knows tiers, stored shapes and blobs in use, so that the usual submission asks the database nothing."""

    def __init__(
        self,
        accounts: AccountStore,
        tasks: TaskStore,
        blobs: BlobStore,
        issuing: Issuing,
        nodes: KnownNodes,
        insight: Insight,
    ) -> None:
        self._accounts = accounts
        self._tasks = tasks
        self._blobs = blobs
        self._issuing = issuing
        self._nodes = nodes
        self._insight = insight
        self._paused: dict[int, PausedNames] = {}
        self._policy: PolicyRows | None = None
        self._policy_until = 0.0
        self._changes = 0
        self._seen = 0
        self._tiers: dict[str, Tier] = {}
        self._numbers: dict[_ShapeInputs, int] = {}
        self._bodies: dict[int, str] = {}
        self._stored: set[tuple[int, int]] = set()
        self._used: set[tuple[int, str, int]] = set()

    def look_again(self) -> None:
        """Plans or tiers were changed: no later submission is judged by the old ones."""
        self._changes += 1

    async def _plan_of(self, tenant: int) -> Plan:
        now, known = time.monotonic(), self._policy
        if known is None or tenant not in known.tenants or self._seen < self._changes or now >= self._policy_until:
            self._policy_until = now + POLICY_SECONDS  # one looks, the others go on with what is known
            await self._look()
        assert self._policy is not None
        return self._policy.plan_of(tenant)

    async def _look(self) -> None:
        """Reads plans and tiers if they were changed. What is known stays good while the database is away."""
        changes, known = self._changes, self._policy.version if self._policy else 0
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                fresh = await self._accounts.policy(known)
        except GONE as fault:
            if self._policy is None:
                raise
            _log.warning("policy_not_read", why=str(fault))
            return
        self._seen = max(self._seen, changes)
        if fresh is not None and (self._policy is None or fresh.version > self._policy.version):
            self._policy = fresh
            self._tiers = {t.name: _tier(t) for t in fresh.tiers.values()}
            self._paused = by_tenant(fresh.paused_names)

    async def admit(self, caller: Caller, said: Sequence[Submission]) -> list[NewTask | Problem | list[Refused]]:
        """Each submission as a row to store, or what is wrong with it, or why it is too much now."""
        plan = await self._plan_of(caller.tenant)
        assert self._policy is not None
        if self._policy.wants_fresh(caller.tenant):
            said = [one if one.function is not None else msgspec.structs.replace(one, fresh=True) for one in said]
        verdicts = _soon_enough([admit(one, self._tiers) for one in said], datetime.now(UTC) + AHEAD_MAX)
        verdicts = [permitted(plan, caller.role, verdict) for verdict in verdicts]
        if bounds_tasks(plan):
            verdicts = all_within(plan, said, verdicts)
        verdicts = await self._nodes.judged(said, verdicts)
        await self._use_blobs(caller.tenant, verdicts)
        rows = self._rows(caller, [verdict for verdict in verdicts if isinstance(verdict, Admitted)])
        await self._store_shapes(rows)
        refused = await self._too_late(rows) if plan.admission == "refuse" else {}
        following = (refused.get(id(row.template), row) if refused else row for row in rows)
        return [next(following) if isinstance(verdict, Admitted) else verdict for verdict in verdicts]

    async def warnings(self, rows: list[NewTask]) -> dict[int, Warning]:
        """What clients should know of tasks that were admitted, by the `id` of their template."""
        return await late(self._insight, rows)

    async def _too_late(self, rows: list[NewTask]) -> dict[int, Problem]:
        found = await late(self._insight, rows)
        templates = {id(row.template): row.template for row in rows} if found else {}
        return {number: refusal(warning, templates[number]) for number, warning in found.items()}

    async def storage_of(self, tenant: int) -> int:
        """How many bytes a tenant may store."""
        return (await self._plan_of(tenant)).quota.get("storage", STORAGE_BYTES_MAX)

    async def _use_blobs(self, tenant: int, verdicts: list[Admitted | list[Refused]]) -> None:
        """Notes what tasks need, and refuses those of which something was never uploaded."""
        admitted = [v for v in verdicts if isinstance(v, Admitted)]
        wanted = {digest for v in admitted for digest in (v.script, v.bundle) if digest is not None}
        if not wanted:
            return
        born = slice_start()
        unknown = [digest for digest in wanted if (tenant, digest, born) not in self._used]
        if unknown:
            found = await self._blobs.use(tenant, unknown, born)
            self._used.update((tenant, digest, born) for digest in found)
            missing = set(unknown) - found
            for index, verdict in enumerate(verdicts):
                if isinstance(verdict, Admitted) and missing & {verdict.script, verdict.bundle}:
                    verdicts[index] = _not_uploaded(verdict, missing)

    def _rows(self, caller: Caller, admitted: list[Admitted]) -> list[NewTask]:
        """Rows for admitted submissions. Runs 50,000 times a second: one clock reading and one id range for all, and
        what tasks have in common is made once."""
        if not admitted:
            return []
        self._forget_if_full()
        now = datetime.now(UTC)
        paused = self._paused.get(caller.tenant)
        alike: dict[tuple[object, ...], Template] = {}
        rows: list[NewTask] = []
        for task, one in zip(self._issuing.take(len(admitted)), admitted, strict=True):
            hold = () if paused is None else paused.hold(one.name)
            common = (
                one.kind, one.needs, one.tier, one.function, one.script, one.script_path, one.eligible_at,
                one.delay_tolerance_ms, one.execution_cap_ms, one.cap_grace_ms, one.max_attempts,
                one.lane, one.terms, one.profile, hold,
            )  # fmt: skip
            template = alike.get(common)
            if template is None:
                template = alike[common] = self._template(caller, one, hold, now)
            rows.append(NewTask(task, one.name, one.spec, template))
        return rows

    def _template(self, caller: Caller, one: Admitted, hold: _Hold, now: datetime) -> Template:
        later = one.eligible_at is not None and one.eligible_at > now
        return Template(
            tenant=caller.tenant,
            kind=one.kind,
            lane=one.lane.value,
            tier=one.tier,
            script=one.script,
            script_path=one.script_path,
            submitted_by=caller.submitted_by,
            submitted_at=now,
            eligible_at=one.eligible_at if later and one.eligible_at is not None else now,
            delay_tolerance_ms=one.delay_tolerance_ms,
            execution_cap_ms=one.execution_cap_ms,
            cap_grace_ms=one.cap_grace_ms,
            max_attempts=one.max_attempts,
            shape=self._shape(one, hold),
            state=State.SCHEDULED.value if later else State.READY.value,
        )

    def _shape(self, one: Admitted, hold: _Hold) -> int:
        inputs = (one.kind, one.needs, one.tier, one.function, one.terms, one.profile, hold)
        known = self._numbers.get(inputs)
        if known is None:
            known, body = number_of(_shape(one, hold))
            self._numbers[inputs] = known
            self._bodies[known] = body
        return known

    def _forget_if_full(self) -> None:
        if len(self._numbers) > SHAPES_MAX:
            self._numbers.clear()
            self._bodies.clear()
        if len(self._stored) > SHAPES_MAX:
            self._stored.clear()
        if len(self._used) > BLOBS_MAX:
            self._used.clear()

    async def _store_shapes(self, rows: list[NewTask]) -> None:
        used = {(template.tenant, template.shape) for template in {row.template for row in rows}}
        fresh = used - self._stored
        if not fresh:
            return
        await self._tasks.keep_shapes([(tenant, shape, self._bodies[shape]) for tenant, shape in fresh])
        self._stored |= fresh


def _shape(one: Admitted, hold: _Hold) -> Shape:
    terms = one.terms
    return Shape(
        kind=one.kind,
        needs=dict(one.needs),
        tier=one.tier,
        function=one.function,
        constraints=terms.constraints,
        preferred=terms.preferred,
        spread=terms.spread,
        exclusive=terms.exclusive,
        concurrency=terms.concurrency,
        rates=terms.rates,
        profile=one.profile,
        preemptible=terms.preemptible,
        frozen_only=terms.preemptible and not terms.checkpoints,
        checkpoints=terms.checkpoints,
        hold=hold,
    )


def _tier(row: TierRow) -> Tier:
    return Tier(row.name, row.needs, row.default_cap_ms, row.max_cap_ms, row.profile)


def _not_uploaded(one: Admitted, missing: set[str]) -> list[Refused]:
    wrong: list[Refused] = []
    if one.script in missing:
        wrong.append(Refused("script", "no script of that digest was uploaded; POST it to /v1/scripts first"))
    if one.bundle in missing:
        wrong.append(Refused("bundle", "no archive of that digest was uploaded; PUT it to /v1/blobs first"))
    return wrong


def _soon_enough(verdicts: list[Verdict], latest: datetime) -> list[Verdict]:
    """The verdicts, with a refusal of what is to wait for years; the database's clock ends somewhere."""
    return [
        [Refused("eligible_at", "must not be more than 10 years ahead")]
        if isinstance(verdict, Admitted) and verdict.eligible_at is not None and verdict.eligible_at > latest
        else verdict
        for verdict in verdicts
    ]
