"""What a simulation measured: counters, histograms and a series of windows; nothing that grows with the tasks."""

from __future__ import annotations

from collections import Counter

from headway.core.lifecycle import Lane
from headway.sim.fairness import Unit, index
from headway.sim.histogram import Histogram
from headway.sim.stream import Stream
from headway.sim.world import World

WINDOWS = 240
WINDOW_LEAST = 30.0
CONTENDED = 0.01
"""A window counts for fairness when waiting was at least this part of running."""


class Tally:
    """What became of the tasks of one group in one lane."""

    __slots__ = ("arrived", "capped", "done", "gave_up", "late", "lost", "missed", "slack", "started", "waits")

    def __init__(self) -> None:
        self.arrived = self.started = self.done = self.missed = 0
        self.capped = 0
        """Ended by their caps."""
        self.lost = 0
        """Attempts that went with a node."""
        self.gave_up = 0
        """Tasks that lost too many nodes."""
        self.waits = Histogram()
        self.late = Histogram()
        """Of those that started late: by how much."""
        self.slack = Histogram()
        """Waiting as a part of what was tolerated: above 1 is late."""


class Account:
    """What the tasks of a stream do at the moment, and what they did since the window began."""

    __slots__ = ("needs", "part", "ran", "running", "since", "stream", "tally", "unit", "waited", "waiting")

    def __init__(self, stream: Stream, part: float, tally: Tally) -> None:
        self.stream = stream
        self.part = part
        """Of the pool that one task is: the dominant one."""
        self.needs = stream.shape.needs
        self.unit: Unit = (stream.tier, stream.tenant)
        self.tally = tally
        self.waiting = self.running = 0
        self.since = self.waited = self.ran = 0.0

    def advance(self, now: float) -> None:
        """Lets time pass."""
        past = now - self.since
        if past > 0.0:
            self.ran += self.running * past
            self.waited += self.waiting * past
            self.since = now


class Window:
    """A stretch of a simulation."""

    __slots__ = (
        "checkpoints", "ends_at", "fairness", "freezes", "is_contended", "missed", "nodes", "running", "started",
        "used", "waiting", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ends_at = 0.0
        self.used: dict[str, float] = {}
        """By resource, the part of the capacity that was there."""
        self.fairness = 1.0
        self.is_contended = False
        self.running = self.waiting = 0.0
        self.nodes = 0.0
        self.started = self.missed = self.freezes = self.checkpoints = 0
        self.waits: dict[Lane, float] = {}
        """By lane, the 99th percentile of those that started."""


class Measures:
    """Everything that is counted while a simulation runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.window_seconds = max(world.horizon / WINDOWS, min(WINDOW_LEAST, world.horizon))
        self.capacity: Counter[str] = Counter()
        for site in world.sites:
            self.capacity.update(site.capacity)
        self.tallies: dict[tuple[str, Lane], Tally] = {}
        self.accounts = [self._account(stream) for stream in world.streams]
        self.windows: list[Window] = []
        self.freezes = self.checkpoints = self.resumes = 0
        self.lost_seconds = 0.0
        """Work that was done and has to be done again."""
        self.there: Counter[str] = Counter()
        self._there_since = 0.0
        self._offered: dict[str, float] = {}
        self._offered_in_all: dict[str, float] = {}
        self._used_in_all: dict[str, float] = {}
        self._waits = {lane: Histogram() for lane in Lane}
        self._before = (0, 0, 0, 0)
        self._nodes = 0
        self._node_seconds = 0.0
        self.started = self.missed = 0

    def account(self, stream: Stream) -> Account:
        """The account of a stream that was found later on."""
        while len(self.accounts) <= stream.number:
            self.accounts.append(self._account(stream))
        return self.accounts[stream.number]

    def _account(self, stream: Stream) -> Account:
        parts = [need / self.capacity[name] for name, need in stream.shape.needs.items() if self.capacity[name]]
        tally = self.tallies.setdefault((stream.group, stream.lane), Tally())
        return Account(stream, max(parts, default=0.0), tally)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def arrived(self, account: Account, now: float) -> None:
        """A task is ready for the first time."""
        account.advance(now)
        account.waiting += 1
        account.tally.arrived += 1

    def waits_again(self, account: Account, now: float) -> None:
        """A task that was lost or paused is ready again."""
        account.advance(now)
        account.waiting += 1

    def began(self, account: Account, now: float) -> None:
        """A task leaves the queue."""
        account.advance(now)
        account.waiting -= 1
        account.running += 1

    def resumed(self, account: Account, now: float) -> None:
        """A frozen task goes on."""
        account.advance(now)
        account.running += 1
        self.resumes += 1

    def started_first(self, account: Account, waited: float, late: float) -> None:
        """It was its first start."""
        tally, tolerance = account.tally, account.stream.tolerance
        tally.started += 1
        self.started += 1
        tally.waits.add(waited)
        self._waits[account.stream.lane].add(waited)
        tally.slack.add(waited / tolerance if tolerance > 0 else 2.0 if late > 0 else 0.0)
        if late > 0.0:
            tally.missed += 1
            self.missed += 1
            tally.late.add(late)

    def stopped(self, account: Account, now: float) -> None:
        """A task does not run any more, for whatever reason."""
        account.advance(now)
        account.running -= 1

    def node(self, capacity: dict[str, int], there: int, now: float) -> None:
        """A node came (1) or went (-1)."""
        self._let_capacity_pass(now)
        self._nodes += there
        for name, amount in capacity.items():
            self.there[name] += amount * there

    def _let_capacity_pass(self, now: float) -> None:
        past, self._there_since = now - self._there_since, now
        if past > 0.0:
            for name, amount in self.there.items():
                self._offered[name] = self._offered.get(name, 0.0) + amount * past
            self._node_seconds += self._nodes * past

    # ── windows ───────────────────────────────────────────────────────────────────────────────────────────────────

    def end_window(self, now: float) -> None:
        """A window is over."""
        self._let_capacity_pass(now)
        window, seconds = Window(), now - (self.windows[-1].ends_at if self.windows else 0.0)
        window.ends_at = now
        used: dict[str, float] = {}
        got: dict[Unit, float] = {}
        asked: dict[Unit, float] = {}
        for account in self.accounts:
            account.advance(now)
            ran, waited = account.ran, account.waited
            if ran or waited:
                self._harvest(account, window, used, got, asked)
                window.running += ran / seconds
                window.waiting += waited / seconds
        self._note_use(window, used)
        self._note_fairness(window, got, asked)
        window.nodes = self._node_seconds / seconds
        self._node_seconds = 0.0
        self._note_counts(window)
        self.windows.append(window)

    def _harvest(
        self, account: Account, window: Window, used: dict[str, float], got: dict[Unit, float], asked: dict[Unit, float]
    ) -> None:
        """Takes what an account gathered in the window."""
        ran, waited, unit = account.ran, account.waited, account.unit
        account.ran = account.waited = 0.0
        for name, need in account.needs.items():
            used[name] = used.get(name, 0.0) + need * ran
        shape = account.stream.shape
        is_free = not (shape.concurrency or shape.rates or self._world.policy.plan(account.stream.tenant).quota)
        if account.stream.lane == Lane.OFFPEAK or not is_free:
            waited = 0.0  # it agreed to wait, or waits for a limit of its own
        got[unit] = got.get(unit, 0.0) + ran * account.part
        asked[unit] = asked.get(unit, 0.0) + (ran + waited) * account.part

    def _note_use(self, window: Window, used: dict[str, float]) -> None:
        for name, amount in self._offered.items():
            if amount > 0:
                window.used[name] = used.get(name, 0.0) / amount
        for sums, ones in ((self._offered_in_all, self._offered), (self._used_in_all, used)):
            for name, amount in ones.items():
                sums[name] = sums.get(name, 0.0) + amount
        self._offered.clear()

    def _note_fairness(self, window: Window, got: dict[Unit, float], asked: dict[Unit, float]) -> None:
        whole = sum(got.values())
        window.is_contended = len(asked) > 1 and sum(asked.values()) > whole * (1 + CONTENDED)
        if window.is_contended:
            window.fairness = index(got, asked, self._world.policy.weights)

    def _note_counts(self, window: Window) -> None:
        now = (self.started, self.missed, self.freezes, self.checkpoints)
        window.started, window.missed, window.freezes, window.checkpoints = (
            after - before for after, before in zip(now, self._before, strict=True)
        )
        self._before = now
        for lane, waits in self._waits.items():
            if waits.count:
                window.waits[lane] = waits.quantile(0.99)
                self._waits[lane] = Histogram()

    # ── in all ────────────────────────────────────────────────────────────────────────────────────────────────────

    def utilization(self) -> dict[str, float]:
        """By resource, the part of what was there that was used."""
        return {
            name: self._used_in_all.get(name, 0.0) / amount
            for name, amount in self._offered_in_all.items()
            if amount > 0
        }

    def fairness(self) -> tuple[float, float, int]:
        """The mean and the lowest index of the windows in which some had to wait, and how many there were."""
        found = [window.fairness for window in self.windows if window.is_contended]
        return (sum(found) / len(found), min(found), len(found)) if found else (1.0, 1.0, 0)
