"""Resources as people write them ({"cpu": 0.5, "memory": "4Gi"}) and as integers: milli-cpu, bytes, counts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.core.quantity import counted
from headway.core.refusal import Refused

Said = str | int | float
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


def integers(said: Mapping[str, Said], path: str) -> dict[str, int] | list[Refused]:
    """The vector that was said, or everything that is wrong with it."""
    amounts = {name: _integer(name, value, f"{path}.{name}") for name, value in said.items()}
    wrong = [one for one in amounts.values() if isinstance(one, Refused)]
    return wrong or {name: one for name, one in amounts.items() if isinstance(one, int)}


def written(vector: Mapping[str, int]) -> dict[str, int | float]:
    """A vector as it may be said again."""
    return {name: _cpus(value) if name == "cpu" else value for name, value in vector.items()}


def _cpus(value: int) -> int | float:
    return value // 1000 if value % 1000 == 0 else value / 1000


def _integer(name: str, value: Said, path: str) -> int | Refused:
    if not _NAME.fullmatch(name):
        return Refused(path, "expected a name of lower-case letters, digits and any of _.-")
    return counted(name, value, path)
