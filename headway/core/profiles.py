"""How closed in a process runs: the profiles, and which is stricter than which."""

from __future__ import annotations

from typing import Literal

Profile = Literal["trusted", "sandboxed", "container", "hostile"]

TRUSTED: Profile = "trusted"
SANDBOXED: Profile = "sandboxed"
CONTAINER: Profile = "container"
HOSTILE: Profile = "hostile"
STRICTNESS: dict[str, int] = {"trusted": 0, "sandboxed": 1, "container": 1, "hostile": 2}


def is_looser(profile: str, than: str) -> bool:
    """Whether a task could do more under `profile`."""
    return STRICTNESS[profile] < STRICTNESS[than]
