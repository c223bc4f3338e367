"""Task names that are paused: one name, or all that begin alike (`encode-*`).

A name is no part of what makes tasks interchangeable, so the planner never looks at one. What a paused name holds gets
shapes of its own, marked with what holds it, and the lines of those shapes are parked as long as it is paused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.core.refusal import Refused
from headway.core.task import NAME_CHARS_MAX

PAUSED_MAX = 1000
"""How many a tenant may have paused at a time."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@ +-]*\*?|\*")


class PausedNames:
    """What of a tenant is paused by name."""

    def __init__(self, paused: Iterable[str]) -> None:
        self._paused = tuple(sorted(paused))
        self.exact = frozenset(name for name in self._paused if not name.endswith("*"))
        self.prefixes = tuple(name[:-1] for name in self._paused if name.endswith("*"))

    def holds(self, name: str) -> bool:
        """Whether a task of that name is held."""
        return name in self.exact or name.startswith(self.prefixes)

    def hold(self, name: str) -> tuple[str, ...]:
        """All that holds a task of that name."""
        return tuple(paused for paused in self._paused if covers(paused, name)) if self.holds(name) else ()


def covers(paused: str, name: str) -> bool:
    """Whether what is paused holds a name, or everything that another beginning holds."""
    return name.startswith(paused[:-1]) if paused.endswith("*") else name == paused


def by_tenant(paused: Iterable[tuple[int, str]]) -> dict[int, PausedNames]:
    """What is paused, (tenant, name) each, by tenant."""
    names: dict[int, list[str]] = {}
    for tenant, name in paused:
        names.setdefault(tenant, []).append(name)
    return {tenant: PausedNames(said) for tenant, said in names.items()}


def wrong_name(name: str) -> list[Refused]:
    """Why that cannot be paused."""
    if len(name) <= NAME_CHARS_MAX and _NAME.fullmatch(name):
        return []
    return [Refused("name", f"expected the name of tasks, up to {NAME_CHARS_MAX} characters, or its beginning and a *")]
