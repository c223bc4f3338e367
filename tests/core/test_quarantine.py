"""Which nodes are shut out: those that fail what ends well elsewhere, never all of them, and not for ever."""

from __future__ import annotations

from headway.core.quarantine import HALF_LIFE_SECONDS, Quarantine

NODES = [1, 2, 3]


def judged(suspicion: Quarantine, *, now: float = 0.0, nodes: list[int] | None = None, closed: int = 0) -> list[int]:
    return [one.node for one in suspicion.judge(nodes or NODES, now, closed=closed)]


def fails(suspicion: Quarantine, node: int, times: int, *, shape: int = 7, own: bool = False, now: float = 0.0) -> None:
    for _ in range(times):
        suspicion.failed(node, shape, now, own_fault=own)


def test_what_fails_here_and_ends_well_elsewhere_suspects_the_node():
    suspicion = Quarantine()
    suspicion.ended_well(2, {7: 3}, 0.0)
    fails(suspicion, 1, 5)
    (found,) = suspicion.judge(NODES, 0.0, closed=0)
    assert found.node == 1
    assert "5 of 5 attempts failed here that end well elsewhere" in found.why


def test_what_fails_everywhere_is_nobodys_fault():
    suspicion = Quarantine()
    for node in NODES:
        suspicion.ended_well(node, {8: 1}, 0.0)
        fails(suspicion, node, 50)
    assert judged(suspicion) == []


def test_a_few_failures_among_many_good_ends_are_chance():
    suspicion = Quarantine()
    suspicion.ended_well(2, {7: 1}, 0.0)
    suspicion.ended_well(1, {7: 30}, 0.0)
    fails(suspicion, 1, 20)
    assert judged(suspicion) == []
    fails(suspicion, 1, 10)
    assert judged(suspicion) == [1]


def test_a_node_that_says_itself_that_it_could_not_needs_no_comparison():
    suspicion = Quarantine()
    fails(suspicion, 3, 5, own=True)
    assert judged(suspicion) == [3]


def test_the_last_node_is_never_shut_out_nor_more_than_a_third():
    suspicion = Quarantine()
    fails(suspicion, 1, 9, own=True)
    assert judged(suspicion, nodes=[1]) == []
    for node in NODES:
        fails(suspicion, node, 9, own=True)
    assert judged(suspicion) == [1]
    assert judged(suspicion, nodes=[2, 3], closed=1) == []


def test_old_failures_are_forgiven():
    suspicion = Quarantine()
    fails(suspicion, 1, 6, own=True)
    assert judged(suspicion, now=HALF_LIFE_SECONDS) == []


def test_what_ended_well_long_ago_accuses_nobody():
    suspicion = Quarantine()
    suspicion.ended_well(2, {7: 1}, 0.0)
    fails(suspicion, 1, 9, now=2 * HALF_LIFE_SECONDS)
    assert judged(suspicion, now=2 * HALF_LIFE_SECONDS) == []


def test_one_that_was_judged_begins_anew():
    suspicion = Quarantine()
    fails(suspicion, 1, 5, own=True)
    assert judged(suspicion) == [1]
    fails(suspicion, 1, 4, own=True)
    assert judged(suspicion) == []
