"""What is said of where, how often and beside what a task starts; and what is refused of it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.constraints import Constraint, contradictions, holds
from headway.core.limits import Limits, Rate
from headway.core.ports import variables
from headway.core.quantity import rate_text
from headway.core.refusal import Refused
from headway.core.resources import nearest
from headway.core.task import Admitted, Spec, Submission, Tier, admit

TIERS = {"basic": Tier("basic", {"cpu": 500}, 300_000, 3_600_000)}
ZONE = "zone"


def verdict(**said: object) -> Admitted | list[Refused]:
    return admit(msgspec.convert({"command": ["x"], **said}, Submission), TIERS)


def admitted(**said: object) -> Admitted:
    found = verdict(**said)
    assert isinstance(found, Admitted), found
    return found


def refusals(**said: object) -> dict[str, str]:
    found = verdict(**said)
    assert isinstance(found, list), found
    return {one.path: one.message for one in found}


def a(op: str, *values: str, label: str = ZONE) -> dict[str, object]:
    return {"label": label, "op": op, "values": list(values)}


@pytest.mark.parametrize(
    ("constraints", "path", "named"),
    [
        ([a("=", "a"), a("=", "b")], "constraints[1]", ["'zone = b'", "'zone = a'"]),
        ([a("=", "a"), a("!=", "a")], "constraints[1]", ["'zone != a'", "'zone = a'"]),
        ([a("!=", "a", "b"), a("in", "b", "a")], "constraints[1]", ["'zone in b, a'", "'zone != a, b'"]),
        ([a("in", "a", "b"), a("exists", label="ssd"), a("=", "c")], "constraints[2]", ["'zone = c'", "in a, b"]),
        ([a("in", "a", "b"), a("!=", "a"), a("!=", "b")], "constraints[2]", ["zone != b", "in a, b", "zone != a"]),
    ],
)
def test_constraints_that_contradict_each_other_are_both_named(
    constraints: list[dict[str, object]], path: str, named: list[str]
):
    found = refusals(constraints=constraints)
    assert list(found) == [path]
    assert all(name in found[path] for name in [*named, "drop one"])


@pytest.mark.parametrize(
    "constraints",
    [
        [a("exists"), a("!=", "a")],
        [a("=", "a"), a("!=", "b"), a("in", "a", "b")],
        [a("=", "a"), a("=", "b", label="rack")],
        [a("!=", "a"), a("!=", "b")],
    ],
)
def test_constraints_that_can_hold_together_are_taken(constraints: list[dict[str, object]]):
    assert len(admitted(constraints=constraints).terms.constraints) == len(constraints)


def test_wishes_may_contradict_each_other():
    assert admitted(preferred=[a("=", "a"), a("=", "b")])


_demands = st.lists(
    st.builds(
        Constraint,
        st.just(ZONE),
        st.sampled_from(["=", "!=", "in", "exists"]),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple),
    ).map(lambda one: msgspec.structs.replace(one, values=()) if one.op == "exists" else one),
    max_size=5,
)


@given(_demands)
def test_a_contradiction_is_found_exactly_when_no_label_could_hold(demands: list[Constraint]):
    possible = [{}, *({ZONE: value} for value in "abcd")]
    satisfiable = any(all(holds(one, labels) for one in demands) for labels in possible)
    assert bool(contradictions(demands)) == (not satisfiable)


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ({"rate": 60}, Rate("api", 60, 60.0)),
        ({"rate": 60, "per": "1m"}, Rate("api", 60, 60.0)),
        ({"rate": 3, "per": 0.5}, Rate("api", 3, 0.5)),
        ({"rate": 3, "per": "250ms"}, Rate("api", 3, 0.25)),
        ({"rate": "60 per minute"}, Rate("api", 60, 60.0)),
        ({"rate": "60/m"}, Rate("api", 60, 60.0)),
        ({"rate": "5 / hour"}, Rate("api", 5, 3600.0)),
        ({"rate": "10 per 90s"}, Rate("api", 10, 90.0)),
        ({"rate": "7 per day"}, Rate("api", 7, 86_400.0)),
        ({"rate": "1/second"}, Rate("api", 1, 1.0)),
    ],
)
def test_a_rate_is_said_as_people_do(said: dict[str, object], rate: Rate):
    assert admitted(rates=[{"key": "api", **said}]).terms.rates == (rate,)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"rate": 0}, "rates[0].rate"),
        ({"rate": "0/m"}, "rates[0].rate"),
        ({"rate": -1}, "rates[0].rate"),
        ({"rate": "many"}, "rates[0].rate"),
        ({"rate": "60 per fortnight"}, "rates[0].rate"),
        ({"rate": "1.5/m"}, "rates[0].rate"),
        ({"rate": "6" * 10_000 + "/m"}, "rates[0].rate"),
        ({"rate": 1, "per": 0}, "rates[0].per"),
        ({"rate": 1, "per": "2d"}, "rates[0].per"),
        ({"rate": 1, "per": "soon"}, "rates[0].per"),
        ({"rate": "60/m", "per": "1m"}, "rates[0].per"),
        ({"rate": 1, "key": "k" * 10_240}, "rates[0].key"),
    ],
)
def test_a_rate_that_is_none_is_named_by_its_path(said: dict[str, object], path: str):
    assert list(refusals(rates=[{"key": "api", **said}])) == [path]


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_a_rate(text: str):
    assert isinstance(rate_text(text, "rate"), tuple | Refused)


def test_a_shorter_period_of_a_key_does_not_forget_what_a_longer_one_counts():
    limits, fast, slow = Limits(), Rate("api", 100, 1.0), Rate("api", 5, 60.0)
    limits.take(1, (), (slow,), 5, 0.0)
    assert limits.room(1, (), (fast,), 9, 30.0) == (9, None)
    assert limits.room(1, (), (slow,), 9, 30.0)[0] == 0
    assert limits.room(1, (), (slow,), 9, 60.0) == (5, limits.room(1, (), (slow,), 9, 60.0)[1])


def test_what_a_waiting_task_will_count_is_not_forgotten_before_it_asks():
    limits, fast, slow = Limits(), Rate("api", 1, 1.0), Rate("api", 2, 60.0)
    limits.heed(1, (slow,))
    for now in (0.0, 1.0):
        assert limits.room(1, (), (fast,), 9, now)[0] == 1
        limits.take(1, (), (fast,), 1, now)
    assert limits.room(1, (), (slow,), 9, 2.0)[0] == 0
    limits.tidy([(1, (slow,))], 100.0)
    limits.tidy([], 100.0)
    assert limits.room(1, (), (slow,), 9, 100.0)[0] == 2


def test_ports_are_counted_and_keep_their_names():
    named = admitted(resources={"ports": ["http", "admin"]})
    assert dict(named.needs)["ports"] == 2
    assert msgspec.json.decode(named.spec, type=Spec).ports == ["http", "admin"]
    counted = admitted(resources={"ports": 3})
    assert dict(counted.needs)["ports"] == 3
    assert msgspec.json.decode(counted.spec, type=Spec).ports == []
    assert "ports" not in dict(admitted(resources={"ports": []}).needs)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (["http", "http"], "resources.ports[1]"),
        (["HTTP"], "resources.ports[0]"),
        (["a-b"], "resources.ports[0]"),
        (["x" * 10_240], "resources.ports[0]"),
        ([f"p{n}" for n in range(101)], "resources.ports"),
        (101, "resources.ports"),
        (-1, "resources.ports"),
        (1.5, "resources.ports"),
        ("http", "resources.ports"),
    ],
)
def test_ports_that_are_none_are_refused(said: object, path: str):
    assert list(refusals(resources={"ports": said})) == [path]


def test_only_ports_have_names():
    assert list(refusals(resources={"cpu": ["a"], "gpu": ["b"], "memory": ["c"]})) == [
        "resources.cpu", "resources.gpu", "resources.memory",
    ]  # fmt: skip


def test_a_task_is_told_its_ports():
    told = variables(["http", "admin"], [20_001, 20_007])
    assert (told["HEADWAY_PORT_HTTP"], told["HEADWAY_PORT_ADMIN"]) == ("20001", "20007")
    assert json.loads(told["HEADWAY_PORTS"]) == {"http": 20_001, "admin": 20_007}
    assert variables([], [20_001])["HEADWAY_PORT_0"] == "20001"
    assert variables([], []) == {}


def test_the_nearest_node_lacks_the_least():
    nodes = {"wide": {"cpu": 8, "memory": 1}, "deep": {"cpu": 2, "memory": 8}}
    assert nearest({"cpu": 8, "memory": 4}, nodes) in (("wide", ["memory"]), ("deep", ["cpu"]))
    assert nearest({"cpu": 4, "memory": 8}, nodes) == ("deep", ["cpu"])
