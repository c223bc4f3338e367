"""The event loop: arrivals, ends, losses and repairs under a virtual clock, and rounds of decisions between them.

A round takes place when something happened, and no sooner than `round` seconds after the last one; while anything
waits, also every second, for slack shrinks by itself. What was decided is carried out here as nodes would: caps end
what overstays, a node takes with it what it ran, frozen tasks keep their memory until there is room to go on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from math import ceil
from random import Random

from headway.core.feedback import Run as FeedbackRun
from headway.core.queue import LineKey, ReadyTask
from headway.core.reservation import Running
from headway.core.retry import again_after_loss_ms
from headway.sim.brain import Brain
from headway.sim.chance import seconds
from headway.sim.measures import Account, Measures
from headway.sim.pausing import Pausing
from headway.sim.stream import Stream
from headway.sim.task import Run, Task
from headway.sim.world import Site, World

BEAT_SECONDS = 1.0
NEVER = float("inf")
INSTANT = 1e-6
"""What windows of equal length may miss the horizon by."""
PATIENCE = 4
"""After so many horizons, what has not started never will."""

Event = tuple[float, int, "Run | Callable[[], None]"]
BrainMaker = Callable[[Callable[[int], list[Running]]], Brain]


class Simulation:
    """A world, what decides in it, and what came of it so far."""

    def __init__(self, world: World, brain: BrainMaker, *, checks: bool = False) -> None:
        self.world = world
        self.now = 0.0
        self.measures = Measures(world)
        self.rounds = 0
        self.brain = brain(self._running_on)
        self.tasks: dict[int, Task] = {}
        """Everything that waits or runs."""
        self.on_node: dict[int, dict[int, Run]] = {}
        self._checks = checks
        self._sites: dict[int, Site] = dict(enumerate(world.sites, start=1))
        self._ids = count(1)
        self._serials = count()
        self._later: list[Event] = []
        self._arrivals: list[tuple[float, int, Iterator[float]]] = []
        self._fresh: dict[LineKey, list[ReadyTask]] = {}
        self._planned_at = -NEVER
        self._due = NEVER
        self._caps: dict[int, tuple[float, float]] = {}
        self._draws: dict[int, Random] = {}
        self._unready = 0
        """Tasks that wait for a pause to be over before they are ready again."""
        self._pausing = Pausing(self)
        for stream in world.streams:
            self._let_flow(stream)
        for node in self._sites:
            self._come(node)
        self.at(self.measures.window_seconds, self._end_window)

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, progress: Callable[[float], None] = lambda now: None) -> None:
        """Until all that arrived has started; `progress` is told what time it is, now and then."""
        arrivals, later = self._arrivals, self._later
        ended = 0
        while True:
            at = later[0][0] if later else NEVER
            if arrivals and arrivals[0][0] < at:
                at = arrivals[0][0]
            if self._due <= at:
                if self._due == NEVER:
                    return
                self.now = self._due
                self._decide()
                ended += 1
                if not ended & 1023:
                    progress(self.now)
                continue
            self.now = at
            if at > self.world.horizon + INSTANT and self._is_over():
                return
            if later and later[0][0] <= at:
                self._happen(heapq.heappop(later)[2])
            else:
                self._arrive()

    def _is_over(self) -> bool:
        """Whether nothing is left to start, or nothing of it ever will."""
        if self._arrivals and self._arrivals[0][0] < self.world.horizon:
            return False
        waiting = len(self.brain) + len(self._fresh) + self._unready + self._pausing.frozen
        return not waiting or self.now >= PATIENCE * self.world.horizon

    def at(self, when: float, what: Run | Callable[[], None]) -> None:
        """Lets something happen later."""
        heapq.heappush(self._later, (when, next(self._serials), what))

    def wake(self) -> None:
        """Something changed: there is something to decide."""
        earliest = self._planned_at + self.world.round
        due = earliest if earliest > self.now else self.now
        if due < self._due:
            self._due = due

    def _happen(self, what: Run | Callable[[], None]) -> None:
        if isinstance(what, Run):
            if not what.is_over:
                self._end(what)
        else:
            what()

    def _decide(self) -> None:
        brain, now = self.brain, self.now
        self.rounds += 1
        self._planned_at, self._due = now, NEVER
        for key, tasks in self._fresh.items():
            brain.offer(key, tasks, now)
        self._fresh.clear()
        if self._pausing.frozen:
            self._pausing.resume()
        self._start(now)
        for preemption in brain.pauses(now):
            self._pausing.carry_out(preemption)
        if self._pausing.has_made_room():
            self._start(now)
        if len(brain):
            self._due = now + max(BEAT_SECONDS, self.world.round)
            opens = brain.opens_at()
            if opens is not None:
                self._due = max(min(self._due, opens), now + self.world.round)
        if self._checks:
            self._check()

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _let_flow(self, stream: Stream) -> None:
        """Lets the tasks of a stream arrive."""
        if not self.brain.nodes.knows(stream.key.shape):
            self.brain.nodes.learn(stream.key.shape, stream.shape)
        times = iter(stream.arrive)
        first = next(times, None)
        if first is not None:
            heapq.heappush(self._arrivals, (first, stream.number, times))
        self._draws[stream.number] = self.world.chance(f"{stream.tenant}/{stream.number}/tasks")
        if stream.cap is not None:
            self._caps[stream.number] = (stream.cap.times - 1.0, seconds(stream.cap.least, ""))

    def _arrive(self) -> None:
        """One task, or all of those of its stream that arrive at the same moment."""
        at, number, times = self._arrivals[0]
        account = self.measures.accounts[number]
        following: float | None = at
        while following is not None and following <= at:
            self._make(account, at)
            following = next(times, None)
        if following is None:
            heapq.heappop(self._arrivals)
        else:
            heapq.heapreplace(self._arrivals, (following, number, times))
        self.wake()

    def _make(self, account: Account, at: float) -> None:
        stream = account.stream
        draw = self._draws[stream.number]
        left = stream.draw(draw)
        cap_ms, guess = stream.cap_ms, self._caps.get(stream.number)
        if guess is not None:
            cap_ms = ceil(max(left * (1.0 + guess[0] * draw.random()), guess[1]) / 60.0) * 60_000
        elif stream.caps is not None:
            cap_ms = next(stream.caps) or cap_ms
        task = Task(next(self._ids), account, at, cap_ms, left)
        self.tasks[task.id] = task
        self.measures.arrived(account, at)
        self._offer(task, at + stream.tolerance)

    def _offer(self, task: Task, start_by: float) -> None:
        task.start_by = start_by
        key = task.account.stream.key
        waiting = self._fresh.get(key)
        if waiting is None:
            waiting = self._fresh[key] = []
        waiting.append(ReadyTask(start_by, task.cap_ms, task.id))

    def offer_again(self, task: Task, start_by: float) -> None:
        """A task is ready once more."""
        self.measures.waits_again(task.account, self.now)
        self._offer(task, start_by)
        self.wake()

    def _start(self, now: float) -> None:
        """What the brain decides to start, starts."""
        tasks, measures = self.tasks, self.measures
        for placement in self.brain.plan(now):
            for ready in placement.tasks:
                task = tasks[ready.id]
                measures.began(task.account, now)
                if not task.has_started:
                    task.has_started = True
                    measures.started_first(task.account, now - task.arrived, now - task.start_by)
                self.launch(Run(task, placement.node, now, placement.express))

    def launch(self, run: Run) -> None:
        """A task runs from now on."""
        task, node = run.task, run.node
        on_node = self.on_node.get(node)
        if on_node is None:
            on_node = self.on_node[node] = {}
        on_node[task.id] = run
        heapq.heappush(self._later, (run.began + min(task.left, task.cap_left), next(self._serials), run))
        shape = task.account.stream.shape
        if shape.preemptible:
            key = task.account.stream.key
            self.brain.began(
                FeedbackRun(task.id, key, node, began=run.began, ran_before=task.ran, paused_before=task.paused)
            )

    def stop(self, run: Run) -> None:
        """A task does not run any more; what it did is remembered."""
        task, now = run.task, self.now
        run.is_over = True
        del self.on_node[run.node][task.id]
        task.ran += now - run.began
        self.measures.stopped(task.account, now)
        self.brain.ended(run.node, task.account.stream.key, task.id, now, express=run.express)

    def _end(self, run: Run) -> None:
        """It is done, or its cap is over."""
        task = run.task
        self.stop(run)
        tally = task.account.tally
        if task.left <= task.cap_left:
            tally.done += 1
        else:
            tally.capped += 1
        del self.tasks[task.id]
        self.wake()

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _come(self, node: int) -> None:
        """A node is there (again)."""
        site = self._sites[node]
        self.brain.join(site.room(node), self.now)
        self.measures.node(site.capacity, 1, self.now)
        self.wake()
        if site.spare is not None:
            chance = self.world.chance(f"node/{node}/{self.now}")
            fails = self.now + chance.expovariate(1 / site.spare.mean_time_between)
            if fails < self.world.horizon:
                back = chance.expovariate(1 / site.spare.repair)
                self.at(fails, lambda: self._fail(node, back))

    def _fail(self, node: int, back_in: float) -> None:
        """A node dies, with all that it runs."""
        self.brain.leave(node, self.now)
        self.measures.node(self._sites[node].capacity, -1, self.now)
        for run in list(self.on_node.get(node, {}).values()):
            self.stop(run)
            self._lose(run)
        self._pausing.lose(node)
        self.at(self.now + back_in, lambda: self._come(node))
        self.wake()

    def _lose(self, run: Run) -> None:
        """Its node died under a task: another attempt, from where its work was safe."""
        task, every = run.task, run.task.account.stream.checkpoint_every
        ran = self.now - run.began
        safe = ran - ran % every if every is not None else 0.0
        self.measures.lost_seconds += ran - safe
        task.left -= safe
        self.lose_task(task)

    def lose_task(self, task: Task) -> None:
        """A task lost its node."""
        task.losses += 1
        task.account.tally.lost += 1
        task.cap_left = task.cap_ms / 1000
        after = again_after_loss_ms(losses=task.losses)
        if after is None:
            task.account.tally.gave_up += 1
            del self.tasks[task.id]
            return
        self._unready += 1
        self.at(self.now + after / 1000, lambda: self._ready_again(task))

    def _ready_again(self, task: Task) -> None:
        self._unready -= 1
        self.offer_again(task, task.start_by)

    def _running_on(self, node: int) -> list[Running]:
        return [
            Running(run.began + run.task.cap_left, run.task.account.stream.key.shape)
            for run in self.on_node.get(node, {}).values()
        ]

    # ── looking on ────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_window(self) -> None:
        self.measures.end_window(self.now)
        following = self.now + self.measures.window_seconds
        if following <= self.world.horizon + INSTANT:
            self.at(following, self._end_window)

    def _check(self) -> None:
        """Nothing holds more than there is: counted from what runs, not from the planner's books."""
        for node, runs in self.on_node.items():
            used: dict[str, int] = {}
            for shape in [run.task.account.stream.shape for run in runs.values()] + self._pausing.kept(node):
                for name, need in shape.needs.items():
                    used[name] = used.get(name, 0) + need
            over = {name: amount for name, amount in used.items() if amount > self._sites[node].capacity.get(name, 0)}
            assert not over, f"at {self.now}: {self._sites[node].name} is over-committed: {over}"
