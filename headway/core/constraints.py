"""What a task asks of a node's labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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
