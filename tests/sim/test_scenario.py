"""Scenario files are read strictly: what is wrong is said with its line and what was meant."""

from __future__ import annotations

import pytest

from headway.sim.reading import ScenarioError
from tests.sim.scenarios import EXAMPLES, a_world, an_example

GOOD = """\
name: good
horizon: 1h
nodes: [{count: 2, resources: {cpu: 4, memory: 8Gi}}]
tenants:
  - name: shop
    work:
      - name: invoice
        arrive: {kind: poisson, rate: 5 per minute}
        duration: {kind: fixed, seconds: 3s}
        resources: {cpu: 1, memory: 1Gi}
"""


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.yml")))
def test_every_scenario_that_is_shipped_is_in_order(name: str):
    assert an_example(name).streams


@pytest.mark.parametrize(
    ("instead", "by", "says"),
    [
        ("horizon: 1h", "horizon: 1h\nhorzon: 2h", "scenario.yml:3: horzon: unknown key; did you mean horizon?"),
        ("rate: 5", "rat: 5", "scenario.yml:8: tenants[0].work[0].arrive.rat: unknown key; did you mean rate?"),
        ("kind: poisson", "kind: poison", "scenario.yml:8: tenants[0].work[0].arrive"),
        ("seconds: 3s", "seconds: 3 parsecs", "scenario.yml:9: tenants[0].work[0].duration.seconds: expected"),
        ("horizon: 1h", "horizon: -5", "scenario.yml:2: horizon: expected a duration"),
        ("horizon: 1h", "horizon: 100d", "scenario.yml:2: horizon: must not exceed 92 days"),
        ("count: 2", "count: 0", "scenario.yml:3: nodes[0].count: must be from 1 to"),
        ("rate: 5 per", "rate: 0 per", "scenario.yml:8: tenants[0].work[0].arrive.rate: must be more than 0"),
        ("cpu: 1,", "cpu: 9,", "scenario.yml:10: tenants[0].work[0].resources: fits no node: cpu of node, the nearest"),
        ("cpu: 1,", "cpu: -1,", "scenario.yml:10: tenants[0].work[0].resources.cpu: expected a number of at least 0"),
        ("name: shop", "name: shop\n    tier: golden", "tenants[0].work[0].tier: there is no tier 'golden'"),
        ("name: shop", "name: shop\n    urgent_share: 2", "scenario.yml:6: tenants[0].urgent_share: must be from"),
        ("name: good", "name: good\nname: bad", "scenario.yml:2: 'name' is said twice, first on line 1"),
        ("seconds: 3s", "seconds: &x 3s", "scenario.yml:9: anchors and aliases are not read"),
        ("kind: fixed, seconds: 3s", "kind: uniform, least: 9s, most: 3s", "duration.most: must be more than least"),
        ("kind: fixed, seconds: 3s", "kind: lognormal, median: 3s, sigma: 0", "duration.sigma: must be more than 0"),
        ("kind: poisson,", "kind: poisson, after: 2h,", "arrive.after: nothing would ever arrive"),
        ("name: good", "name: good\npolicy: {peak_line: 80}", "scenario.yml:2: policy.peak_line: must be from 0 to 1"),
        ("name: good", "version: 2\nname: good", "scenario.yml:1: version:"),
        ("memory: 1Gi}", "memory: 1Gi}\n        checkpoint_every: 1m", "only a preemptible task writes checkpoints"),
        ("memory: 1Gi}", "memory: 1Gi}\n        concurrency: [{key: k, limit: 0}]", "[0].limit: must be from 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_line(instead: str, by: str, says: str):
    assert instead in GOOD
    a_world(GOOD)
    with pytest.raises(ScenarioError) as refused:
        a_world(GOOD.replace(instead, by, 1))
    assert says in str(refused.value)


def test_nobody_and_nothing_are_no_scenario():
    for text, says in (("", "expected keys"), ("[]", "expected keys"), ("name: x", "missing required field")):
        with pytest.raises(ScenarioError, match=says):
            a_world(text)


def test_nodes_asked_for_are_shared_out_in_proportion():
    made = a_world(
        GOOD.replace("nodes: [", "nodes: [{count: 6, name: big, resources: {cpu: 8, memory: 8Gi}}, "), nodes=16
    )
    names = [site.name.rpartition("-")[0] for site in made.sites]
    assert (names.count("big"), names.count("node")) == (12, 4)
