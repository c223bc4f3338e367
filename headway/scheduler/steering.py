"""What is done to tasks between their submission and their end, carried to where they are: to the line that one waits
in, or to the node that one runs on.

The promise: what the database says of a task is what happens to it, whoever changed it and whoever led then. So every
order is made from the database, and made again until the database says that it was carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from headway.core.feedback import deserves
from headway.core.lifecycle import Lane, State
from headway.core.nodes import Footprint
from headway.core.placement import NodeRoom, ceded
from headway.core.plan import Planner
from headway.core.queue import Line
from headway.core.resources import fits
from headway.scheduler.books import Books
from headway.scheduler.preempting import Order
from headway.scheduler.refill import Refill
from headway.scheduler.sessions import Session
from headway.store.database import Row
from headway.store.steering import Changed, SteeringStore
from headway.wire import (
    Bounds,
    Change,
    Checkpointed,
    Ending,
    Freeze,
    FromLeader,
    Hello,
    Key,
    Kill,
    Leave,
    Outcome,
    Thaw,
)

LOOK_SECONDS = 1.0
"""How soon is found what another process changed."""
STANDS = "stood still when its node came back"
UNWANTED = "was resumed while it was brought to a stand; goes on when there is room"
_log = structlog.get_logger("headway.scheduler")


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
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._planner = planner
        self._books = books
        self._refill = refill
        self._session_of = session_of
        self._wake = wake
        self._now = now
        self._whys: dict[Key, str] = {}
        """What was said of those that are paused for others, until they stand."""
        self._free_to_go: dict[Key, int] = {}
        """What stands still, by its node, and may go on as soon as there is room."""
        self.frozen = 0
        """How many attempts were brought to a stand for others so far."""
        self._news = asyncio.Event()

    def clear(self) -> None:
        """Forgets all: the leadership begins anew."""
        self._whys.clear()
        self._free_to_go.clear()

    @property
    def standing(self) -> int:
        """How many attempts wait where they stand for room to go on."""
        return len(self._free_to_go)

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
        self._whys = {key: why for key, why in self._whys.items() if self._books.feedback.run(key.task) is not None}
        self._free_to_go.clear()
        for key, node, state, leaves in await self._store.ordered():
            match state:
                case State.PAUSING | State.HELD if leaves:
                    self._say(node, Leave([key], must=False))
                case State.CANCELLING:
                    self._say(node, Kill([key]))
                case State.PAUSING:
                    self._say(node, Freeze([key]))
                case State.FROZEN:
                    self._free_to_go[key] = node
                case _:
                    pass
        self.let_go_on()

    def stop(self, key: Key, node: int) -> None:
        """Stops a cancelled attempt."""
        self._say(node, Kill([key]))

    # ── standing still, and going on ──────────────────────────────────────────────────────────────────────────────

    def carry_out(self, orders: list[Order]) -> None:
        """Pauses attempts for others, as the brain decided."""
        for order in orders:
            self._whys[order.key] = order.decision.message
            leaves = order.decision.how == "checkpoint"
            self._say(order.node, Leave([order.key], must=False) if leaves else Freeze([order.key]))

    async def stays(self, node: int, keys: list[Key], why: str) -> None:
        """A node says that attempts do not leave: who was to pause for that stands still instead."""
        mine = [key for key in keys if self._books.holding(node, *key) is not None]
        for key in mine:
            self._whys.pop(key, None)
            if await self._store.stays(key):
                _log.info("attempt_stays", task=key.task, why=why)
                self.soon()
            run = self._books.feedback.run(key.task)
            if run is not None:  # it may be asked again
                run.is_leaving = False

    def retold(self, endings: list[Ending]) -> list[Ending]:
        """Endings as they are to be told: who left for others says for whom."""
        if not self._whys:
            return endings
        return [self._retold(ending) for ending in endings]

    def _retold(self, ending: Ending) -> Ending:
        why = self._whys.pop(Key(ending.tenant, ending.task, ending.attempt), None)
        if why is None or ending.outcome != Outcome.YIELDED:
            return ending
        return msgspec.structs.replace(ending, code="preempted", message=why)

    async def stand(self, node: int, keys: list[Key]) -> None:
        """A node says that attempts stand still."""
        mine = [key for key in keys if self._books.holding(node, *key) is not None]
        said = [(key, self._whys.get(key, UNWANTED)) for key in mine]
        states = await self._store.freeze(said) if said else {}
        for key in mine:
            if self._books.holding(node, *key) is None:
                continue  # its node left meanwhile
            is_for_others = states.get(key) == State.FROZEN
            self._books.stand(self._planner, node, (key.tenant, key.task), paused=int(is_for_others))
            self._whys.pop(key, None)
            if is_for_others:
                self.frozen += 1
                self._free_to_go[key] = node
        self._wake()

    async def keep(self, node: int, said: Checkpointed) -> None:
        """What another attempt would begin from; who is to be paused is judged by what it would lose."""
        key = Key(said.tenant, said.task, said.attempt)
        if self._books.holding(node, *key) is None or not await self._store.keep_checkpoint(key, said.digest):
            return
        run = self._books.feedback.run(key.task)
        if run is not None:
            run.checkpoint_at = self._now()

    async def keep_last(self, node: int, endings: Sequence[Ending]) -> None:
        """What those wrote that left, before their ends are told."""
        for one in endings:
            if one.checkpoint is not None:
                await self.keep(node, Checkpointed(one.tenant, one.task, one.attempt, one.checkpoint))

    async def settle(self, hello: Hello, owned: Mapping[Key, Row]) -> None:
        """A node is back: what it says of who stands still holds."""
        brought, frozen = owned.keys() & set(hello.running), set(hello.frozen)
        moves, stands = (State.CLAIMED, State.RUNNING, State.PAUSING), (State.FROZEN, State.HELD)
        still = [(key, STANDS) for key in brought & frozen if owned[key]["state"] in moves]
        awake = [key for key in brought - frozen if owned[key]["state"] in stands]
        if still:
            await self._store.freeze(still)
        if awake:
            await self._store.thaw(awake)
        if brought:
            self.soon()

    async def went_on(self, node: int, keys: list[Key]) -> None:
        """A node says that attempts go on."""
        mine = [key for key in keys if self._books.holding(node, *key) is not None]
        states = await self._store.thaw(mine) if mine else {}
        if State.PAUSING in states.values():  # paused again meanwhile
            self.soon()

    def let_go_on(self, node: int | None = None) -> None:
        """Lets go on, on a node or anywhere, what stands still and has room again; what is pressing comes first."""
        for key, where in list(self._free_to_go.items()):
            room = self._planner.nodes.get(where)
            holding = self._books.holding(where, *key)
            if node not in (None, where) or room is None or holding is None or holding.awake is None:
                continue
            needs = ceded(self._planner.nodes.shape(holding.awake.shape).needs)
            if fits(needs, room.free) and not self._is_pressed(room) and self._say(where, Thaw([key])):
                del self._free_to_go[key]
                self._books.go_on(self._planner, where, (key.tenant, key.task))

    def _is_pressed(self, room: NodeRoom) -> bool:
        """Whether something waits for this room that others may be paused for."""
        policy, now = self._planner.policy, self._now()

        def presses(footprint: Footprint, line: Line) -> bool:
            is_urgent = line.key.lane == Lane.URGENT or line.first.start_by - policy.promotion_margin_seconds <= now
            return is_urgent or deserves(footprint, line, policy, now) is not None

        waiting = self._planner.without_room()
        return any(room.could_run(footprint.shape) and presses(footprint, line) for footprint, line in waiting)

    # ── other bounds ──────────────────────────────────────────────────────────────────────────────────────────────

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
