"""Ports that a task asks for: how many, what they are called, and how their numbers reach it.

A submission says names (`[http, admin]`) or a number. The planner counts them like any other resource; the agent picks
the numbers, and tells the task by variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from headway.core.refusal import Refused

Said = str | int | float | list[str]
PORTS_MAX = 100
"""What one task may ask for."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def ports_wanted(said: Said, path: str) -> int | Refused:
    """How many ports, or why that is none."""
    if isinstance(said, list):
        return _named(names_of(said), path)
    if isinstance(said, int) and not isinstance(said, bool) and 0 <= said <= PORTS_MAX:
        return said
    return Refused(path, f"expected names such as [http, admin], or a whole number from 0 to {PORTS_MAX}")


def names_of(said: Said) -> list[str]:
    """The names in what was said; none when ports were only counted."""
    return said if isinstance(said, list) else []


def variables(names: Sequence[str], numbers: Sequence[int]) -> dict[str, str]:
    """What a process is told of its ports: one variable each, and all of them as JSON."""
    if not numbers:
        return {}
    called = names or [str(place) for place in range(len(numbers))]
    by_name = dict(zip(called, numbers, strict=True))
    each = {f"HEADWAY_PORT_{name.upper()}": str(number) for name, number in by_name.items()}
    return {**each, "HEADWAY_PORTS": json.dumps(by_name)}


def _named(names: list[str], path: str) -> int | Refused:
    if len(names) > PORTS_MAX:
        return Refused(path, f"must not exceed {PORTS_MAX} ports")
    for place, name in enumerate(names):
        if not _NAME.fullmatch(name):
            what = "expected a name of up to 31 lower-case letters, digits and _, such as http"
            return Refused(f"{path}[{place}]", what)
        if name in names[:place]:
            return Refused(f"{path}[{place}]", f"{name!r} is there already; each port has a name of its own")
    return len(names)
