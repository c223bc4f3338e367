"""What a task asks of a node's labels, and whether any label could ever satisfy it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec


class Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One demand: `zone in [a, b]`, `arch = arm64`, `spot != yes`, `ssd exists`."""

    label: str
    op: Literal["=", "!=", "in", "exists"] = "="
    values: tuple[str, ...] = ()


def holds(constraint: Constraint, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a constraint. A label that is not there equals nothing."""
    value = labels.get(constraint.label)
    match constraint.op:
        case "=" | "in":
            return value is not None and value in constraint.values
        case "!=":
            return value is None or value not in constraint.values
        case "exists":
            return value is not None


def said(constraint: Constraint) -> str:
    """A constraint as people write it: `zone = a`, `zone in a, b`, `ssd exists`."""
    return f"{constraint.label} {constraint.op} {', '.join(constraint.values)}".rstrip()


def contradictions(constraints: Sequence[Constraint]) -> list[tuple[int, tuple[Constraint, ...]]]:
    """Where what is demanded of a label leaves nothing, by the demand that closed it and those it contradicts."""
    found: list[tuple[int, tuple[Constraint, ...]]] = []
    for label in dict.fromkeys(constraint.label for constraint in constraints):
        about = [(number, one) for number, one in enumerate(constraints) if one.label == label]
        for position in range(1, len(about)):
            number, last = about[position]
            before = [one for _, one in about[:position]]
            if not _leaves_something([*before, last]):
                alone = [one for one in before if not _leaves_something([one, last])]
                found.append((number, tuple(alone[:1] or before)))
                break
    return found


def _leaves_something(demands: Sequence[Constraint]) -> bool:
    """Whether a value is left; where none is named, there is always another one."""
    wanted = next((one for one in demands if one.op in ("=", "in")), None)
    return wanted is None or any(all(holds(one, {wanted.label: value}) for one in demands) for value in wanted.values)
