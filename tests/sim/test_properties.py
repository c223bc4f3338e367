"""Of any pool and any work, whoever decides: nothing is over-committed, the books agree, and all can be repeated."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headway.sim.running import POLICIES, simulate
from tests.core.cases import cases
from tests.sim.scenarios import a_world

works = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([0.5, 1, 2, 4]),
        "memory": st.sampled_from(["256Mi", "1Gi", "3Gi"]),
        "median": st.sampled_from(["2s", "20s", "1m"]),
        "size": st.integers(1, 40),
        "tolerance": st.sampled_from(["1s", "30s", "10m", "1d"]),
        "off_peak": st.sampled_from(["allow", "require", "never"]),
        "preemptible": st.sampled_from(["true", "false"]),
        "more": st.sampled_from(["", "spread: s", "concurrency: [{key: k, limit: 2}]", "rates: [{key: r, rate: 5}]"]),
    }
)


def scenario(nodes: int, fails: bool, tenants: list[list[dict[str, object]]]) -> str:
    """A scenario of half an hour."""
    lines = ["name: any", "horizon: 30m", f"nodes: [{{count: {nodes}, resources: {{cpu: 4, memory: 4Gi}}}}]"]
    lines += ["failures: {mean_time_between: 10m, repair: 1m}"] if fails else []
    lines.append("tenants:")
    for number, work in enumerate(tenants):
        lines += [f"  - name: t{number}", f"    tier: {('basic', 'regular', 'premium')[number % 3]}", "    work:"]
        for which, one in enumerate(work):
            lines += [
                f"      - name: w{which}",
                f"        arrive: {{kind: bursts, every: 5m, size: {one['size']}, within: 20s}}",
                f"        duration: {{kind: lognormal, median: {one['median']}, sigma: 1, most: 5m}}",
                f"        resources: {{cpu: {one['cpu']}, memory: {one['memory']}}}",
                f"        execution_cap: {{times: 2}}\n        delay_tolerance: {one['tolerance']}",
                f"        off_peak: {one['off_peak']}\n        preemptible: {one['preemptible']}",
                f"        {one['more']}",
            ]
    return "\n".join(lines)


@cases(25)
@given(
    st.integers(1, 4),
    st.booleans(),
    st.lists(st.lists(works, min_size=1, max_size=2), min_size=1, max_size=3),
    st.sampled_from(list(POLICIES)),
)
def test_nothing_is_over_committed_the_books_agree_and_all_can_be_repeated(
    nodes: int, fails: bool, tenants: list[list[dict[str, object]]], policy: str
):
    text = scenario(nodes, fails, tenants)
    found = simulate(a_world(text), policy, checks=True)
    assert all(row.done + row.capped <= row.started <= row.arrived and row.missed <= row.arrived for row in found.rows)
    assert all(0.0 <= part <= 1.0 + 1e-9 for part in found.utilization.values())
    assert 0.0 < found.fairness_least <= found.fairness <= 1.0 + 1e-9
    assert msgspec.json.encode(simulate(a_world(text), policy)) == msgspec.json.encode(found)
