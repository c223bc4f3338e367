"""How fast the planner decides, alone on one core: a pool that is full and stays so, every tenant with work waiting.

Tasks of 1,000 tenants in three tiers end here and there, and each end is followed by the decision who starts in that
room: the hardest case, for hardly two starts in a row are alike. A decision is charged with all that the planner does
for it, from the room given back to the room booked. Offering the tasks to it is told apart; so is a round in which
nothing can start. Garbage is collected as rarely as in a server.
"""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

from bench.contest import Contestant, Row
from bench.figures import Metric, Sample
from bench.stage import Stage
from headway.app.server import collect_rarely
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency
from headway.core.nodes import Nodes
from headway.core.placement import NodeRoom, Shape
from headway.core.plan import Planner
from headway.core.policy import Plan, Policy
from headway.core.queue import LineKey, ReadyTask

SMALL = Metric("1,000 nodes", "decisions/s", "more", 50_000)
LARGE = Metric("10,000 nodes", "decisions/s", "more", 30_000)
LIVES = Metric("· with offers", "tasks/s", "more")
IDLE = Metric("idle round", "µs", "less", 50)
TENANTS = 1_000
WAITING = 40
"""Of each tenant; the planner never looks past the first."""
ROUND = 1_000
CPU, MEMORY = 16_000, 64 * 2**30
WEIGHTS = {"basic": 1.0, "regular": 2.0, "premium": 4.0}
IDLE_ROUNDS = 2_000


def row(stage: Stage) -> Row:
    """Without limits, and with a quota for every tenant and a key for every second one."""
    rounds = stage.counts.decided // ROUND
    contestants = [
        Contestant("headway", lambda: _measured(rounds, limited=False)),
        Contestant("headway, quotas and keys", lambda: _measured(rounds, limited=True), "variant"),
    ]
    title = f"{rounds * ROUND:,} decisions, {TENANTS:,} tenants, the planner alone on one core"
    return Row("brain", title, [SMALL, LIVES, LARGE, IDLE], contestants)


def _measured(rounds: int, *, limited: bool) -> Sample:
    with _collecting_as_a_server_does():
        small = _Pool(1_000, limited=limited)
        values = {SMALL.name: small.decides(rounds), LIVES.name: small.lives, IDLE.name: small.idles()}
        return Sample({**values, LARGE.name: _Pool(10_000, limited=limited).decides(rounds)})


@contextlib.contextmanager
def _collecting_as_a_server_does() -> Iterator[None]:
    thresholds = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


class _Pool:
    """A full pool."""

    def __init__(self, nodes: int, *, limited: bool) -> None:
        self._chance = random.Random(1)
        self._ids = count(1)
        self._now = 0.0
        self._spent: dict[str, float] = {"decide": 0.0, "offer": 0.0}
        self.lives = 0.0
        quota = Plan(quota={"running": 10**6, "cpu": 10**9}) if limited else Plan()
        policy = Policy(weights=WEIGHTS, plans=dict.fromkeys(range(TENANTS), quota))
        self._planner = Planner(Nodes(), policy, running_on=lambda node: [])
        for number in range(nodes):
            self._planner.join(_node(number), 0.0)
        for number, shape in enumerate(_shapes(limited=limited)):
            self._planner.nodes.learn(number, shape)
        for tenant in range(TENANTS):
            self._offer(_key(tenant, limited=limited), WAITING)
        self._running: deque[tuple[int, LineKey]] = deque()
        self._fill()

    def decides(self, rounds: int) -> float:
        """Decisions a second."""
        for _ in range(rounds):
            self._now += 0.02
            ended = [self._running.popleft() for _ in range(ROUND)]
            placed = self._timed("decide", lambda ended=ended: self._end_and_plan(ended))
            self._timed("offer", lambda ended=ended: self._offer_anew(ended))
            assert placed == ROUND, f"{placed} of {ROUND} found room"
        self.lives = rounds * ROUND / sum(self._spent.values())
        return rounds * ROUND / self._spent["decide"]

    def idles(self) -> float:
        """Microseconds of a round in which nothing can start."""
        spent: list[float] = []
        for _ in range(IDLE_ROUNDS):
            began = time.perf_counter()
            placed = self._planner.plan(self._now, most=ROUND)
            spent.append(time.perf_counter() - began)
            assert not placed
        return statistics.median(spent) * 1e6

    def _fill(self) -> None:
        """Until nothing fits any more; then in whatever order it will end."""
        while placed := self._planner.plan(self._now, most=ROUND):
            for placement in placed:
                self._running.extend((placement.node, placement.key) for _ in placement.tasks)
                self._offer(placement.key, len(placement.tasks))
        started = list(self._running)
        self._chance.shuffle(started)
        self._running = deque(started)

    def _end_and_plan(self, ended: list[tuple[int, LineKey]]) -> int:
        for node, key in ended:
            self._planner.ended(node, key, 1, self._now, express=False)
        placed = self._planner.plan(self._now, most=ROUND)
        for placement in placed:
            self._running.extend((placement.node, placement.key) for _ in placement.tasks)
        return sum(len(placement.tasks) for placement in placed)

    def _offer_anew(self, ended: list[tuple[int, LineKey]]) -> None:
        for _, key in ended:
            self._offer(key, 1)

    def _offer(self, key: LineKey, number: int) -> None:
        due, ids = self._now + 1_000.0, self._ids
        tasks = [ReadyTask(due + self._chance.random(), 60_000, next(ids)) for _ in range(number)]
        self._planner.offer(key, tasks)

    def _timed(self, what: str, work: Callable[[], int | None]) -> int | None:
        began = time.process_time()  # of one core, whoever else is at the other
        answer = work()
        self._spent[what] += time.process_time() - began
        return answer


def _node(number: int) -> NodeRoom:
    capacity = {"cpu": CPU, "memory": MEMORY, "disk": 2**40, "workers": 16, "ports": 100}
    return NodeRoom(number, f"n{number}", capacity=capacity, kinds=["command"], functions=[], windows={})


def _shapes(*, limited: bool) -> list[Shape]:
    """One for each tier, and the same once more with a key."""
    plain = [Shape("command", {"cpu": 1_000, "memory": 2 ** (30 + n)}, tier) for n, tier in enumerate(WEIGHTS)]
    keyed = [Shape("command", one.needs, one.tier, concurrency=(Concurrency("k", 10**6),)) for one in plain]
    return plain + keyed if limited else plain


def _key(tenant: int, *, limited: bool) -> LineKey:
    tier, is_keyed = tenant % len(WEIGHTS), limited and tenant % 2
    return LineKey(tenant, Lane.NORMAL, tier + len(WEIGHTS) if is_keyed else tier)
