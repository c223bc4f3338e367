"""Resources against demand: what is asked for counts as long as it would last, and no longer."""

from __future__ import annotations

from headway.core.demand import RATIO_MAX, Asked, Demand

NODE = {"cpu": 4000}


def ratio(demand: Demand, window: str, tier: str | None = None) -> float:
    return next(one.ratio for one in demand.ratios() if (one.window, one.tier) == (window, tier))


def test_a_pool_of_which_nothing_is_asked_has_more_than_enough_and_needs_no_node():
    demand = Demand()
    demand.observe(NODE, 1, {}, 0.0)
    assert ratio(demand, "1m") == RATIO_MAX
    assert demand.nodes_wanted(1.25) == 0


def test_twice_as_much_asked_as_there_is_wants_twice_the_nodes_and_what_the_target_adds():
    demand = Demand()
    for second in range(601):
        demand.observe(NODE, 1, {"basic": Asked({"cpu": 4000}, {"cpu": 4000}, 7200.0)}, float(second))
    assert [ratio(demand, window) for window in ("1m", "10m", "1h")] == [0.5, 0.5, 0.5]
    assert (demand.nodes_wanted(1.0), demand.nodes_wanted(1.25)) == (2, 3)


def test_a_million_tasks_of_a_millisecond_ask_for_little():
    demand = Demand()
    demand.observe(NODE, 1, {"basic": Asked({}, {"cpu": 500_000_000}, 0.001)}, 0.0)
    assert ratio(demand, "1m") < 1.0 < ratio(demand, "10m") < ratio(demand, "1h")


def test_each_window_forgets_at_its_own_pace():
    demand = Demand()
    demand.observe(NODE, 1, {"basic": Asked({"cpu": 4000}, {}, 0.0)}, 0.0)
    for second in range(1, 181):
        demand.observe(NODE, 1, {}, float(second))
    assert ratio(demand, "1m") > 15
    assert 1.2 < ratio(demand, "10m") < 1.6
    assert ratio(demand, "1h") < 1.1


def test_a_tier_has_what_the_others_leave_it():
    demand = Demand()
    asked = {"basic": Asked({"cpu": 3000}, {}, 0.0), "gold": Asked({"cpu": 1000}, {"cpu": 1000}, 7200.0)}
    demand.observe(NODE, 1, asked, 0.0)
    assert ratio(demand, "1m") == 0.8
    assert (ratio(demand, "1m", "basic"), ratio(demand, "1m", "gold")) == (1.0, 0.5)


def test_a_pool_that_lost_its_nodes_still_knows_how_large_they_were():
    demand = Demand()
    asked = {"basic": Asked({}, {"cpu": 8000}, 7200.0)}
    demand.observe(NODE, 1, asked, 0.0)
    for second in range(1, 900):
        demand.observe({}, 0, asked, float(second))
    assert ratio(demand, "1m") == 0.0
    assert demand.nodes_wanted(1.0) == 2


def test_tiers_that_are_gone_are_forgotten():
    demand = Demand()
    demand.observe(NODE, 1, {"once": Asked({"cpu": 10}, {}, 0.0)}, 0.0)
    demand.observe(NODE, 1, {}, 1e6)
    assert not [one for one in demand.ratios() if one.tier]
