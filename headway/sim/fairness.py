"""How fair a stretch of time was: Jain's index of what each got over what max-min fairness would have given it.

In the reference, tiers share what was used by their weights and the tenants of a tier share alike; nobody is given more
than it asked for, and what one leaves goes to the others. 1 is as fair as can be; 1/n is one having everything.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from headway.core.fairness import jain

Unit = tuple[str, int]
"""A tier and a tenant in it."""
TRACE = 1e-9
_T = TypeVar("_T", bound=Hashable)


def index(got: Mapping[Unit, float], asked: Mapping[Unit, float], weights: Mapping[str, float]) -> float:
    """The index of a stretch in which each got and asked for so much; who asked for nothing does not count."""
    fair = fair_shares(asked, weights, sum(got.values()))
    return jain([got.get(unit, 0.0) / share for unit, share in fair.items() if share > TRACE])


def fair_shares(asked: Mapping[Unit, float], weights: Mapping[str, float], whole: float) -> dict[Unit, float]:
    """What each is due of the whole: among tiers by weight, within a tier equally, nobody more than it asked for."""
    tiers: dict[str, dict[Unit, float]] = {}
    for unit, amount in asked.items():
        tiers.setdefault(unit[0], {})[unit] = amount
    of_tiers = _filled(
        {tier: sum(units.values()) for tier, units in tiers.items()},
        {tier: weights.get(tier, 1.0) for tier in tiers},
        whole,
    )
    found: dict[Unit, float] = {}
    for tier, units in tiers.items():
        found.update(_filled(units, dict.fromkeys(units, 1.0), of_tiers[tier]))
    return found


def _filled(asked: Mapping[_T, float], weights: Mapping[_T, float], whole: float) -> dict[_T, float]:
    """Water filling: the level rises evenly by weight, and who has what it asked for drops out."""
    found: dict[_T, float] = {}
    left, weight = whole, sum(weights.values())
    for one in sorted(asked, key=lambda one: asked[one] / weights[one]):
        given = min(asked[one], left * weights[one] / weight if weight > 0 else 0.0)
        found[one] = given
        left -= given
        weight -= weights[one]
    return found
