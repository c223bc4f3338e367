"""How long attempts run: the warning before the cap, the cap, and the time they stand still, which does not count."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from headway.agent.runners import standing
from headway.agent.runners.attempt import Attempt
from headway.core.quantity import duration_ms
from headway.wire import Bounds, bounded


class Timing:
    """Keeps one timer an attempt; `over` is told when its cap is."""

    def __init__(
        self,
        *,
        marker: str,
        clock: Callable[[], float],
        tell: Callable[[Attempt, signal.Signals], None],
        over: Callable[[Attempt], None],
    ) -> None:
        self._marker = marker
        self._clock = clock
        self._tell = tell
        self._over = over
        self._loop = asyncio.get_running_loop()

    def arm(self, attempt: Attempt) -> None:
        """Sees to its cap, and to the warning before it."""
        if attempt.timer is not None:
            attempt.timer.cancel()
        left = attempt.assignment.cap_ms / 1000 - attempt.ran(self._clock())
        warning = attempt.words.cap_warning
        if warning is None or attempt.was_warned or not attempt.pid:
            attempt.timer = self._loop.call_later(max(left, 0.0), self._over, attempt)
            return
        before = duration_ms(warning.before, "before")
        lead = before / 1000 if isinstance(before, int) else 0.0
        attempt.timer = self._loop.call_later(max(left - lead, 0.0), self._warn, attempt)

    def change(self, attempt: Attempt, bounds: Bounds) -> None:
        """Lets it run longer, or shorter; one that is being stopped stays so."""
        attempt.assignment = bounded(attempt.assignment, bounds)
        attempt.was_warned = False
        if attempt.stop is None and attempt.stood_at is None:
            self.arm(attempt)

    def stand(self, attempt: Attempt) -> None:
        """Has it stand still."""
        if attempt.stood_at is None:
            assert attempt.timer is not None
            attempt.timer.cancel()
            standing.stand(attempt, self._marker, self._clock())

    def go_on(self, attempt: Attempt) -> None:
        """Has it go on where it stood."""
        standing.go_on(attempt, self._marker, self._clock())
        self.arm(attempt)

    def _warn(self, attempt: Attempt) -> None:
        attempt.was_warned = True
        if attempt.words.cap_warning is not None:
            self._tell(attempt, signal.Signals[attempt.words.cap_warning.signal])
        self.arm(attempt)
