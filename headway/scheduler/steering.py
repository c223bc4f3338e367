"""What is done to tasks between their submission and their end, carried to where they are: to the line that one waits
in, or to the node that one runs on.

The promise: what the database says of a task is what happens to it, whoever changed it and whoever led then. So every
order is made from the database, and made again until the database says that it was carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.core.lifecycle import State
from headway.core.plan import Planner
from headway.scheduler.books import Books
from headway.scheduler.refill import Refill
from headway.scheduler.sessions import Session
from headway.store.steering import Changed, SteeringStore
from headway.wire import Bounds, Change, FromLeader, Key, Kill

LOOK_SECONDS = 1.0
"""How soon is found what another process changed."""


class Steering:
    """Carries out what clients want of tasks that are on their way."""

    def __init__(
        self,
        *,
        store: SteeringStore,
        planner: Planner,
        books: Books,
        refill: Refill,
        session_of: Callable[[int], Session | None],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._planner = planner
        self._books = books
        self._refill = refill
        self._session_of = session_of
        self._wake = wake
        self._news = asyncio.Event()

    def soon(self) -> None:
        """A client of this process wants something."""
        self._news.set()

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            await self.run_once()

    async def run_once(self) -> None:
        """Takes in what was changed, and says again what is not done yet."""
        changed = [one for one in await self._store.changes() if self._take_in(one)]
        if changed:
            await self._store.taken_in(changed)
            self._wake()
        for key, node, state in await self._store.ordered():
            if state == State.CANCELLING:
                self._say(node, Kill([key]))

    def stop(self, key: Key, node: int) -> None:
        """Stops a cancelled attempt."""
        self._say(node, Kill([key]))

    def _take_in(self, changed: Changed) -> bool:
        """Whether a change is where it belongs; one whose node is away, or not told yet what to run, comes again."""
        if changed.state == State.READY:
            self._planner.drop([changed.key.task])
            self._refill.offer(changed.line, [changed.task])
        if changed.node is None:
            return True
        if self._books.holding(changed.node, *changed.key) is None:
            return False
        bounds = Bounds(*changed.key, changed.left_ms, changed.grace_ms)
        return self._say(changed.node, Change([bounds]))

    def _say(self, node: int, message: FromLeader) -> bool:
        session = self._session_of(node)
        if session is not None:
            session.send(message)
        return session is not None
