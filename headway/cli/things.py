"""How the groups of administration (`tenant`, `plan`, `tier`, `pool`, `key`) show what they are about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

from headway.cli import output
from headway.cli.output import Column
from headway.core.quantity import SIZED, amount_text


def age(name: str) -> Column:
    """A column with how long ago a time was: 5s, 12m, 3h."""
    return "AGE", lambda item: output.ago(item.get(name), datetime.now(UTC))


AGE = age("created_at")


def text(name: str) -> Column:
    """A column with a field as it is."""
    return name.upper(), lambda item: _cell(item.get(name))


def seconds(name: str) -> Column:
    """A column with a duration: 90s, 30m, 6h."""
    return name.upper(), lambda item: _duration(item.get(name))


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case dict():
            amounts = cast("Mapping[str, object]", value)
            return ",".join(f"{name}={_size(name, amount)}" for name, amount in amounts.items())
        case list():
            return ",".join(str(one) for one in cast("list[object]", value))
        case str():
            return value
        case _:
            return json.dumps(value)


def _size(name: str, amount: object) -> str:
    return amount_text(name, amount) if name in SIZED and isinstance(amount, int) else str(amount)


def _duration(value: object) -> str:
    if not isinstance(value, int | float):
        return ""
    for unit, size in (("h", 3600), ("m", 60)):
        if value and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value:g}s"
