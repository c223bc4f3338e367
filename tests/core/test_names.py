"""Paused names: what they hold, what they do not, and that nobody waits behind them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.explain import explain
from headway.core.names import PausedNames, by_tenant, covers, wrong_name
from headway.core.placement import Shape, number_of
from headway.core.policy import Policy
from headway.core.queue import LineKey
from tests.core.test_plan import SMALL, Cluster

HELD = msgspec.structs.replace(SMALL, hold=("encode-*",))
PAUSED = Policy(paused_names=frozenset({(1, "encode-*")}))


def test_a_name_and_a_beginning_hold_what_they_say():
    paused = PausedNames(["encode", "mail-*", "mail-7"])
    assert [name for name in ("encode", "encode2", "mail-", "mail-7", "nail-7") if paused.holds(name)] == [
        "encode", "mail-", "mail-7",
    ]  # fmt: skip
    assert paused.hold("mail-7") == ("mail-*", "mail-7")
    assert paused.hold("other") == ()
    assert PausedNames(["*"]).hold("anything") == ("*",)


@given(st.lists(st.sampled_from(["a", "a*", "ab", "ab*", "*", "b"])), st.text("ab", min_size=1, max_size=3))
def test_what_holds_a_name_is_what_covers_it(paused: list[str], name: str):
    assert set(PausedNames(paused).hold(name)) == {one for one in paused if covers(one, name)}


def test_names_are_apart_by_tenant():
    names = by_tenant([(1, "a"), (2, "b*")])
    assert names[1].holds("a") and not names[2].holds("a")


@pytest.mark.parametrize("name", ["", " a", "a\0", "a**", "x" * 201, "*a", "ü"])
def test_what_no_task_is_called_cannot_be_paused(name: str):
    assert [one.path for one in wrong_name(name)] == ["name"]


def test_a_shape_that_nothing_holds_keeps_its_number():
    assert "hold" not in number_of(SMALL)[1]
    assert number_of(HELD)[0] != number_of(SMALL)[0]


def test_what_a_paused_name_holds_waits_and_hides_nobody():
    cluster = Cluster(PAUSED).node(cpu=9000)
    cluster.ready(HELD, count=3, start_by=1.0)
    free = cluster.ready(SMALL, count=2)
    assert cluster.plan() == free
    assert cluster.plan() == []


def test_a_resumed_name_goes_on_and_another_tenants_never_waited():
    cluster = Cluster(PAUSED).node(cpu=9000)
    mine, theirs = cluster.ready(HELD, count=2), cluster.ready(HELD, tenant=2)
    assert cluster.plan() == theirs
    cluster.planner.set_policy(Policy())
    assert cluster.plan() == mine


def test_no_node_is_kept_for_what_is_paused():
    wide = Shape("command", {"cpu": 9000}, "basic", hold=("encode-*",))
    cluster = Cluster().node(cpu=9000)
    (runs,) = cluster.ready(SMALL, cap=60.0)
    assert cluster.plan() == [runs]
    cluster.ready(wide, cap=10.0)
    cluster.plan()
    cluster.ready(SMALL, cap=60.0)  # goes past it
    cluster.plan()
    for cluster.now in (1.0, 2.0):
        cluster.plan()
    assert cluster.planner.reservations.all()
    cluster.planner.set_policy(PAUSED)
    late = cluster.ready(SMALL, cap=6000.0)
    assert not cluster.planner.reservations.all()
    assert set(late) <= set(cluster.plan())


def test_the_reason_is_the_paused_name():
    cluster = Cluster(PAUSED).node(cpu=9000)
    cluster.ready(HELD)
    cluster.plan()
    key = LineKey(1, 2, cluster.numbers[repr(HELD)])
    line = cluster.planner.line(key)
    assert line is not None
    said = explain(cluster.planner, key, line.first, now=cluster.now)
    assert (said.code, "encode-*" in said.message, "headway name resume" in said.helps[0]) == (
        "name_paused",
        True,
        True,
    )
