"""The lines that wait for something other than their turn or room: each by the very thing it waits for."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.limits import Blocker
from headway.core.queue import Line


class Parking:
    """Lines out of everybody's way, by what must go away before they take part again."""

    def __init__(self) -> None:
        self._parked: dict[Blocker, set[Line]] = {}

    def __bool__(self) -> bool:
        return bool(self._parked)

    def blockers(self) -> list[Blocker]:
        """Everything that is waited for."""
        return list(self._parked)

    def park(self, line: Line, blocker: Blocker) -> None:
        """The line waits for that from now on."""
        if line:
            line.park(blocker)
            self._parked.setdefault(blocker, set()).add(line)

    def leave(self, line: Line) -> None:
        """The line is empty, or waits no longer."""
        blocker = line.parked
        parked = self._parked.get(blocker) if blocker is not None else None
        if parked is None or blocker is None:
            return
        parked.discard(line)
        if not parked:
            del self._parked[blocker]
        line.park(None)

    def release(self, blockers: Iterable[Blocker]) -> list[Line]:
        """What was waited for is gone: the lines that take part again, in the order they came to be."""
        back = [line for blocker in blockers for line in self._parked.pop(blocker, ())]
        for line in back:
            line.park(None)
        return sorted(back)
