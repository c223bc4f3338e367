"""What fairness, quotas and concurrency keys cost: the same tasks through the same server, without and with them.

Without: one tenant, one tier. With: eight tenants on a plan with quotas, their tasks in three tiers with weights, and a
concurrency key in every task. Both in the same run, one after the other; the promise is about their ratio, so each
sample with them is told as the part of the last one without.
"""

from __future__ import annotations

import json
import urllib.request

from bench.contest import Contestant, Row
from bench.deployment import Dev, dev, worker
from bench.figures import Metric, Sample
from bench.programs import until
from bench.stage import DRAIN_SECONDS, Stage, flood, insist_on_once, watch

DRAIN = Metric("drain", "tasks/s", "more")
SUBMIT = Metric("submit", "tasks/s", "more")
DRAIN_PART = Metric("drain, of plain", "%", "more", 85)
SUBMIT_PART = Metric("submit, of plain", "%", "more", 85)
TENANTS = 8
QUOTA = {"running": 1_000_000, "cpu": 1_000_000}
SIZE = 2_000


def row(stage: Stage) -> Row:
    """Plain, then limited, in turn."""
    plain: dict[str, float] = {}
    contestants = [
        Contestant("headway, plain", lambda: _plain(stage, plain), "variant"),
        Contestant("headway, all of it", lambda: _limited(stage, plain)),
    ]
    title = f"{stage.counts.drain:,} no-op functions with {TENANTS} tenants, 3 tiers, quotas and keys, and without"
    return Row("policy", title, [DRAIN_PART, SUBMIT_PART, DRAIN, SUBMIT], contestants)


def _plain(stage: Stage, plain: dict[str, float]) -> Sample:
    sample = _measured(stage, limited=False)
    plain.update(sample.values)
    return sample


def _limited(stage: Stage, plain: dict[str, float]) -> Sample:
    sample = _measured(stage, limited=True)
    parts = {
        part.name: 100 * sample.values[whole.name] / plain[whole.name]
        for part, whole in ((DRAIN_PART, DRAIN), (SUBMIT_PART, SUBMIT))
    }
    return Sample({**sample.values, **parts}, sample.note)


def _measured(stage: Stage, *, limited: bool) -> Sample:
    count = stage.counts.drain
    with stage.place() as (directory, tally), dev(directory, tally, functions=False) as one:
        many = one._replace(key=",".join(_tenants(one))) if limited else one
        submitted = flood(many, count, size=SIZE, limited=limited)
        with worker(one, directory, tally):
            drained = watch(tally, count)
            ended = until("every end is durable", lambda: one.ended() >= count, DRAIN_SECONDS, 0.01)
        values = {DRAIN.name: drained.per_second(count, ended), SUBMIT.name: submitted.per_second}
        return Sample(values, insist_on_once(tally, count))


def _tenants(one: Dev) -> list[str]:
    """Tenants on a plan with quotas; answers a key of each."""
    _ask(one, "/v1/plans", {"name": "bounded", "quota": QUOTA})
    for number in range(TENANTS):
        _ask(one, "/v1/tenants", {"name": f"tenant-{number}", "plan": "bounded"})
    return [str(_ask(one, "/v1/keys", {"tenant": f"tenant-{number}"})["key"]) for number in range(TENANTS)]


def _ask(one: Dev, path: str, said: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(one.url + path, data=json.dumps(said).encode(), method="POST")
    request.add_header("Authorization", f"Bearer {one.key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
