"""The terms under which a task starts, besides its size: where it likes to be, and what it must not collide with."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from headway.core.constraints import Constraint, contradictions, said
from headway.core.limits import Concurrency, Rate
from headway.core.quantity import duration_ms, rate_text
from headway.core.refusal import Refused

LIST_MAX = 16
KEY_CHARS_MAX = 200
RATE_SECONDS_MAX = 86_400.0


class SaidRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A dispatch rate as people say it: `rate: 60, per: 1m`, or all at once, `rate: "60 per minute"`."""

    key: str
    rate: int | str
    per: str | int | float | None = None
    """A minute when nothing else is said."""


class Terms(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True, gc=False):
    """As a submission says them; all empty is the usual case."""

    constraints: tuple[Constraint, ...] = ()
    preferred: tuple[Constraint, ...] = ()
    spread: str | None = None
    exclusive: bool = False
    concurrency: tuple[Concurrency, ...] = ()
    rates: tuple[Rate, ...] = ()
    preemptible: bool = False
    checkpoints: bool = False


NONE = Terms()
SAME_MAX = 4096
"""How many are remembered as checked: those of a batch are mostly the same few, again and again."""


def rates_of(said: tuple[SaidRate, ...]) -> tuple[Rate, ...] | list[Refused]:
    """The rates that were said, or everything that is wrong with how."""
    found = [_rate(f"rates[{number}]", one) for number, one in enumerate(said)]
    wrong = [one for one in found if isinstance(one, Refused)]
    return wrong or tuple(one for one in found if isinstance(one, Rate))


def _rate(path: str, said: SaidRate) -> Rate | Refused:
    if isinstance(said.rate, int):
        per = 60_000 if said.per is None else duration_ms(said.per, f"{path}.per")
        return per if isinstance(per, Refused) else Rate(said.key, said.rate, per / 1000)
    if said.per is not None:
        return Refused(f"{path}.per", "is said in the rate already; leave it out, or give the rate as a number")
    rate = rate_text(said.rate, f"{path}.rate")
    return rate if isinstance(rate, Refused) else Rate(said.key, rate[0], rate[1] / 1000)


@lru_cache(SAME_MAX)
def checked(terms: Terms) -> tuple[Terms, tuple[Refused, ...]]:
    """These terms, the same object for the same terms, and everything that is wrong with them."""
    return terms, tuple(_wrong_terms(terms))


def _wrong_terms(terms: Terms) -> list[Refused]:
    wrong = _wrong_constraints("constraints", terms.constraints)
    if not wrong:
        wrong += _contradicting(terms.constraints)
    wrong += _wrong_constraints("preferred", terms.preferred)
    for name, limits in (("concurrency", terms.concurrency), ("rates", terms.rates)):
        if len(limits) > LIST_MAX:
            wrong.append(Refused(name, f"must not exceed {LIST_MAX} keys"))
        if len({limit.key for limit in limits}) < len(limits):
            wrong.append(Refused(name, "names a key twice"))
    for number, limit in enumerate(terms.concurrency):
        wrong += _wrong_key(f"concurrency[{number}]", limit.key)
        if not 1 <= limit.limit <= 1_000_000:
            what = "must be from 1 to 1000000; 1 is mutual exclusion, and to hold tasks back, pause their name"
            wrong.append(Refused(f"concurrency[{number}].limit", what))
    for number, rate in enumerate(terms.rates):
        wrong += _wrong_key(f"rates[{number}]", rate.key)
        if not 1 <= rate.rate <= 1_000_000:
            wrong.append(
                Refused(f"rates[{number}].rate", "must be from 1 to 1000000; to hold tasks back, pause their name")
            )
        if not 0.001 <= rate.per <= RATE_SECONDS_MAX:
            wrong.append(Refused(f"rates[{number}].per", "must be from 1ms to 1d"))
    if terms.spread is not None:
        wrong += _wrong_key("spread", terms.spread, "")
    return wrong


def _wrong_key(path: str, key: str, field: str = ".key") -> list[Refused]:
    if 0 < len(key) <= KEY_CHARS_MAX:
        return []
    return [Refused(path + field, f"expected 1 to {KEY_CHARS_MAX} characters")]


def _wrong_constraints(name: str, constraints: tuple[Constraint, ...]) -> list[Refused]:
    if len(constraints) > LIST_MAX:
        return [Refused(name, f"must not exceed {LIST_MAX}")]
    wrong: list[Refused] = []
    for number, constraint in enumerate(constraints):
        values = len(constraint.values)
        wanted = {"exists": values == 0, "=": values == 1, "!=": values >= 1, "in": values >= 1}[constraint.op]
        if not wanted or values > LIST_MAX:
            wrong.append(Refused(f"{name}[{number}].values", f"{constraint.op} takes {_COUNTS[constraint.op]}"))
        elif any(len(value) > KEY_CHARS_MAX for value in constraint.values):
            wrong.append(Refused(f"{name}[{number}].values", f"expected at most {KEY_CHARS_MAX} characters each"))
        if not 0 < len(constraint.label) <= KEY_CHARS_MAX:
            wrong.append(Refused(f"{name}[{number}].label", f"expected 1 to {KEY_CHARS_MAX} characters"))
    return wrong


def _contradicting(constraints: tuple[Constraint, ...]) -> list[Refused]:
    return [
        Refused(
            f"constraints[{number}]",
            f"no label can be {said(constraints[number])!r} and {' and '.join(repr(said(one)) for one in others)}; "
            "drop one of them, or say what may be either as one `in`",
        )
        for number, others in contradictions(constraints)
    ]


_COUNTS = {"exists": "no value", "=": "one value", "!=": "one value or more", "in": "one value or more"}
