"""Resources as people write them ({"cpu": 0.5, "memory": "4Gi"}) and as integers: milli-cpu, bytes, counts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.core.quantity import milli, size_bytes
from headway.core.refusal import Refused

Said = str | int | float
COUNT_MAX = 1_000_000_000
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
_SIZED = frozenset({"memory", "disk", "storage"})
_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def integers(said: Mapping[str, Said], path: str) -> dict[str, int] | list[Refused]:
    """The vector that was said, or everything that is wrong with it."""
    amounts = {name: _integer(name, value, f"{path}.{name}") for name, value in said.items()}
    wrong = [amount for amount in amounts.values() if isinstance(amount, Refused)]
    return wrong or {name: amount for name, amount in amounts.items() if isinstance(amount, int)}


def written(vector: Mapping[str, int]) -> dict[str, int | float]:
    """A vector as it may be said again."""
    return {name: _cpus(amount) if name == "cpu" else amount for name, amount in vector.items()}


def for_people(name: str, amount: int) -> str:
    """One amount in a sentence."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name in _SIZED:
        return next((f"{amount // size}{unit}" for unit, size in _UNITS if amount and amount % size == 0), str(amount))
    return str(amount)


def _cpus(amount: int) -> int | float:
    return amount // 1000 if amount % 1000 == 0 else amount / 1000


def _integer(name: str, value: Said, path: str) -> int | Refused:
    if not _NAME.fullmatch(name):
        return Refused(path, "expected a name of lower-case letters, digits and any of _.-")
    if name in _SIZED:
        return size_bytes(value, path)
    if name == "cpu":
        return milli(value, path)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX:
        return value
    return Refused(path, f"expected a whole number from 0 to {COUNT_MAX}")
