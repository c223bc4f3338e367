"""The leader of a pool: elected by a lease row, crash-only.

Whatever goes wrong with the database or the lease, the answer is one: drop the sessions and everything in memory, and
begin again as if newly elected. Agents keep running what they own and come back with an inventory; what was accepted is
in the database; what ended and was not acknowledged is repeated.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from headway.core.lifecycle import Lane
from headway.core.nodes import Nodes
from headway.core.placement import NodeRoom
from headway.core.plan import Planner
from headway.core.policy import Policy
from headway.core.queue import LineKey, ReadyTask
from headway.scheduler.books import Books, Holding
from headway.scheduler.dispatch import Dispatching
from headway.scheduler.endings import Endings, sound
from headway.scheduler.files import Files
from headway.scheduler.hello import bounds_of, join, name_taken, wrong_hello
from headway.scheduler.insight import Insight
from headway.scheduler.leases import NODE_LEASE_SECONDS, NodeLeases
from headway.scheduler.names import Names
from headway.scheduler.policies import Policies
from headway.scheduler.preempting import Preempting
from headway.scheduler.refill import Refill
from headway.scheduler.sessions import Session
from headway.scheduler.steering import Steering
from headway.scheduler.timekeeper import Timekeeper
from headway.scheduler.upkeep import Upkeep
from headway.store.cluster import ClusterStore
from headway.store.database import GONE, Row
from headway.store.nodes import NodeStore
from headway.store.outlook import OutlookStore
from headway.store.queue import QueueStore
from headway.store.steering import SteeringStore
from headway.store.tasks import TaskStore
from headway.wire import (
    PROTOCOL,
    Change,
    Checkpointed,
    Ended,
    Ending,
    Fetch,
    FromAgent,
    Frozen,
    Heartbeat,
    Hello,
    Key,
    LogChunk,
    Logs,
    Offer,
    Outcome,
    Refused,
    Returned,
    Started,
    Stays,
    Thawed,
    Welcome,
    Windows,
)

LEADER_LEASE_SECONDS = 10.0
POLL_SECONDS = 1.0
"""How soon work is found whose announcement was lost."""
REAP_SECONDS = 1.0
ELECTION_SECONDS = 3.0
FAULT_SECONDS = 1.0
_log = structlog.get_logger("headway.scheduler")


class LeadershipLost(Exception):
    """Another server leads the pool now."""


class Leader:
    """Leads its pool when elected; otherwise stands by."""

    def __init__(
        self,
        *,
        server: str,
        cluster: ClusterStore,
        queue_store: QueueStore,
        steering_store: SteeringStore,
        node_store: NodeStore,
        task_store: TaskStore,
        files: Files,
        policies: Policies,
        outlooks: OutlookStore,
        ended: Callable[[list[tuple[int, int]]], None],
        printed: Callable[[list[LogChunk]], None],
        chance: random.Random,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._cluster = cluster
        self._queue_store = queue_store
        self._task_store = task_store
        self._files = files
        self._printed = printed
        self._policies = policies
        self._now = now
        nodes = Nodes()
        self.books = Books(nodes, now)
        self.planner = Planner(nodes, Policy(), running_on=self.books.running_on)
        self.preempting = Preempting(planner=self.planner, books=self.books, now=now)
        self._sessions: dict[int, Session] = {}
        self._refill = Refill(queue_store, self.planner)
        self.planner.deferral.behind = self._refill.behind
        self._names = Names(queue_store, task_store, self.planner, self._refill)
        self.endings = Endings(queue_store, steering_store, ended=ended, chance=chance)
        self.dispatching = Dispatching(
            queue_store=queue_store, task_store=task_store, planner=self.planner, books=self.books,
            refill=self._refill, names=self._names, session_of=self._sessions.get, now=now,
        )  # fmt: skip
        self.steering = Steering(
            store=steering_store, planner=self.planner, books=self.books, refill=self._refill,
            session_of=self._sessions.get, wake=self.dispatching.wake.set, now=now,
        )  # fmt: skip
        self.upkeep = Upkeep(
            store=node_store, planner=self.planner, books=self.books, session_of=self._sessions.get,
            wake=self.dispatching.wake.set, now=now,
        )  # fmt: skip
        self.leases = NodeLeases(cluster, self._sessions.get)
        self.preempting.carry_out = self.steering.carry_out
        self.timekeeper = Timekeeper(
            queue_store, self._refill, retried=self.endings.retried, wake=self.dispatching.wake.set
        )
        self.insight = Insight(
            planner=self.planner, books=self.books, refill=self._refill, dispatching=self.dispatching, store=outlooks,
            now=now,
        )  # fmt: skip
        self.epoch = 0
        """The epoch led, 0 while standing by."""
        self._leads = asyncio.Event()
        self._poll_now = asyncio.Event()
        self._settling: set[str] = set()
        """Names of nodes whose session begins or whose attempts are being taken away: one thing at a time."""
        self._heard: dict[int, float] = {}

    # ── being elected, and losing it ──────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Stands by, leads, and begins again, for ever."""
        while True:
            try:
                epoch = await self._cluster.elect(self._server, LEADER_LEASE_SECONDS)
                if epoch is not None:
                    await self._lead(epoch)
            except* (LeadershipLost, *GONE) as faults:
                _log.warning("leadership_interrupted", why=str(faults.exceptions[0]))
            except* Exception as faults:  # noqa: BLE001
                # A fault of ours. To begin anew is what this class does best; to end the server would end the API too.
                _log.error("leadership_failed", exc_info=faults)
                await asyncio.sleep(FAULT_SECONDS)
            await asyncio.sleep(0.2)

    async def _lead(self, epoch: int) -> None:
        _log.info("leading", epoch=epoch)
        self._forget_everything()
        self.epoch = self.dispatching.epoch = epoch
        try:
            self._policies.clear()
            await self._heed_policy()
            await self.upkeep.run_once()
            await self._know_what_runs()
            await self._refill.discover()
            self.dispatching.wake.set()
            self._leads.set()
            async with asyncio.TaskGroup() as group:
                for duty in (
                    self._keep_lease, self._names.run, self.dispatching.run, self.preempting.run, self.steering.run,
                    self.endings.run, self.timekeeper.run, self.upkeep.run, self._poll, self._reap, self.leases.run,
                    lambda: self.insight.run(epoch),
                ):  # fmt: skip
                    group.create_task(duty())
        finally:
            self.epoch = 0
            self._leads.clear()
            self._forget_everything()
            await self._resign(epoch)

    async def _know_what_runs(self) -> None:
        """What runs on nodes that are not back yet holds keys, quotas and shares as well."""
        rows = await self._cluster.owned_by([row["node"] for row in await self._cluster.nodes()])
        await self._learn(rows)
        for row in rows:
            self._adopt(row["node"], Key(row["tenant"], row["id"], row["attempt"]), row)

    def _forget_everything(self) -> None:
        for session in self._sessions.values():
            session.close()
        for room in list(self.planner.nodes.all()):
            self.planner.leave(room.node, self._now())
        self._sessions.clear()
        self.planner.clear()
        self.books.clear()
        self.endings.clear()
        self.steering.clear()
        self.upkeep.clear()
        self._refill.clear()
        self._names.clear()
        self.leases.clear()
        self._heard.clear()

    async def _resign(self, epoch: int) -> None:
        """So that the next leader, most often this one, need not wait for the lease to run out."""
        try:
            async with asyncio.timeout(1):
                await self._cluster.resign(epoch)
        except (*GONE, TimeoutError):
            pass  # then the lease runs out by itself

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(LEADER_LEASE_SECONDS / 4)
            async with asyncio.timeout(LEADER_LEASE_SECONDS / 2):
                if not await self._cluster.renew(self.epoch, LEADER_LEASE_SECONDS):
                    raise LeadershipLost("another server took the pool over")

    # ── what becomes ready ────────────────────────────────────────────────────────────────────────────────────────

    def offer(self, key: LineKey, tasks: list[ReadyTask]) -> None:
        """Takes in tasks just stored by this process's gateway; a hint, without which the poll would find them."""
        if self.epoch and self._refill.offer(key, tasks):
            self.dispatching.wake.set()

    def poll_soon(self) -> None:
        """Another process announced work."""
        self._poll_now.set()

    async def _poll(self) -> None:
        """Polling is the truth; announcements only make it faster."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._poll_now.wait()
            said = self._poll_now.is_set()
            self._poll_now.clear()
            await self._heed_policy()
            if await self._refill.discover(everything=said) or len(self.planner):
                self.dispatching.wake.set()  # time alone may have made a task pressing, or a reservation due

    async def heed(self) -> None:
        """What an operator has just changed counts from the next round on; if the database does not answer, soon."""
        self.poll_soon()
        if self._leads.is_set():
            with suppress(*GONE):
                await self._heed_policy()

    async def _heed_policy(self) -> None:
        policy = await self._policies.changed()
        if policy is not None:
            self.planner.set_policy(policy)
            self._names.heed(policy.paused_names)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def welcome(self, session: Session) -> Welcome | Refused:
        """Begins a node's session: settles what it says it runs against what the database says it owns."""
        if not await self._is_leading():
            return Refused("not_leader", "this server does not lead the pool; try again, or another server")
        if wrong := wrong_hello(session.hello):
            return Refused("bad_hello", wrong)
        if session.hello.node in self._settling:
            return Refused("name_taken", f"another session of {session.hello.node!r} is being settled; try again")
        self._settling.add(session.hello.node)
        try:
            return await self._begin(session)
        finally:
            self._settling.discard(session.hello.node)

    async def _begin(self, session: Session) -> Welcome | Refused:
        hello, epoch = session.hello, self.epoch
        rival = next((other for other in self._sessions.values() if other.name == hello.node), None)
        if rival is not None:
            if rival.hello.incarnation != hello.incarnation:
                return Refused(
                    "name_taken",
                    f"an agent named {hello.node!r} is connected; give this one another --node name",
                )
            await self.farewell(rival)
            rival.close()
        before = await self._cluster.find_node(hello.node)
        is_another = before is not None and before.home != hello.home and before.lease_seconds > 0
        if before is not None and is_another and await self._cluster.owned_by([before.node]):
            return Refused("name_taken", name_taken(hello.node, before.lease_seconds))
        session.node = await join(self._cluster, hello)
        rows = await self._cluster.owned_by([session.node])
        same = before is not None and before.incarnation == hello.incarnation
        owned = {Key(row["tenant"], row["id"], row["attempt"]): row for row in rows}
        await self._learn(rows)
        await self._settle_missing([key for key in owned if key not in set(hello.running)], owned, same=same)
        await self.steering.settle(hello, owned)
        if self.epoch != epoch:
            return Refused("not_leader", "the leadership changed while the session began; try again")
        disown = self._open_for_work(session, owned)
        _log.info("node_joined", node=hello.node, runs=len(hello.running), disowned=len(disown))
        return Welcome(PROTOCOL, epoch, NODE_LEASE_SECONDS, disown)

    async def _is_leading(self) -> bool:
        """Gives an election under way the time to end: at a start the agents are often there first."""
        try:
            async with asyncio.timeout(ELECTION_SECONDS):
                await self._leads.wait()
        except TimeoutError:
            pass
        return self.epoch > 0

    def _open_for_work(self, session: Session, owned: dict[Key, Row]) -> list[Key]:
        """Offers the node's room, less what it already runs; answers what it must stop. Decides without waiting."""
        hello, brought = session.hello, set(session.hello.running)
        self.books.strike_node(self.planner, session.node)
        self.planner.join(
            NodeRoom(
                session.node,
                hello.node,
                capacity=hello.capacity,
                kinds=hello.kinds,
                functions=hello.functions,
                windows=hello.windows,
                labels=hello.labels,
                profiles=hello.profiles,
            ),
            self._now(),
        )
        kept = owned.keys() & brought
        for key in kept:
            self._adopt(session.node, key, owned[key])
        for key in kept.intersection(hello.frozen):
            self.books.stand(self.planner, session.node, (key.tenant, key.task))
        if kept:  # somebody may have changed them while nobody could say so
            session.send(Change([bounds_of(key, owned[key]) for key in kept]))
        self._sessions[session.node] = session
        self.upkeep.heed()
        self._heard[session.node] = asyncio.get_running_loop().time()
        self.dispatching.wake.set()
        return [key for key in brought if key not in owned]

    def _adopt(self, node: int, key: Key, row: Row) -> None:
        """Takes an attempt that the node brought along into the books."""
        line = LineKey(key.tenant, row["lane"], row["shape"])
        express = line.lane == Lane.URGENT  # of one that was promoted nobody knows it any more
        self.planner.adopt(node, line, 1, self._now(), express=express)
        began = row["claimed_at"].timestamp()
        ends_by = began + (row["execution_cap_ms"] - row["used_ms"]) / 1000
        self.books.enter(
            node, (key.tenant, key.task),
            Holding(
                key.attempt, row["claims"], line, express=express, ends_by=ends_by, began=began,
                ran_before=row["used_ms"] / 1000, paused_before=row["pauses"],
            ),
        )  # fmt: skip

    async def _settle_missing(self, missing: list[Key], owned: dict[Key, Row], *, same: bool) -> None:
        """What the node owns and does not have. The same agent never got it, or gave it back: it costs nothing. Another
        start of the agent lost it: it may have begun."""
        unbegun = [key for key in missing if same and owned[key]["started_at"] is None]
        lost = [key for key in missing if key not in set(unbegun)]
        if unbegun:
            for line, task in await self._queue_store.release([(*key[:2], owned[key]["claims"]) for key in unbegun]):
                self._refill.offer(line, [task])
        if lost:
            await self._lose(lost, owned, "the agent was restarted under it")

    async def _learn(self, rows: list[Row]) -> None:
        missing = {(row["tenant"], row["shape"]) for row in rows if not self.planner.nodes.knows(row["shape"])}
        if missing:
            await self.dispatching.learn(sorted(missing))

    async def farewell(self, session: Session) -> None:
        """A session ended. What the node runs goes on, and holds its keys and quotas, until its lease is over."""
        if self._sessions.get(session.node) is session:
            del self._sessions[session.node]
            self.planner.leave(session.node, self._now())
            self._heard.pop(session.node, None)
            _log.info("node_left", node=session.name)
            try:
                await self._cluster.leave_node(session.node, session.hello.incarnation)
            except GONE as fault:
                _log.warning("node_not_marked_left", node=session.name, why=str(fault))

    async def hear(self, session: Session, message: FromAgent) -> None:
        """Takes a message of an agent in; one that lost its session is not listened to."""
        if self._sessions.get(session.node) is not session:
            return
        self._heard[session.node] = asyncio.get_running_loop().time()
        match message:
            case Ended():
                await self._files.keep_artifacts(self.books, session.node, message.endings)
                await self.steering.keep_last(session.node, message.endings)
                self._end(session, message)
            case Windows():
                self._resize(session, message.windows)
            case Heartbeat():
                self.leases.beat(session.node, message.sequence)
            case Started():
                if keys := [key for key in message.keys if self.books.holding(session.node, *key)]:
                    await self._queue_store.start(keys)
            case Logs():
                mine = [c for c in message.chunks if self.books.holding(session.node, c.tenant, c.task, c.attempt)]
                if mine:
                    self._printed(mine)  # what a follower saw comes again if it is not kept
                    await self._task_store.keep_logs(mine)
            case Frozen():
                await self.steering.stand(session.node, message.keys)
            case Thawed():
                await self.steering.went_on(session.node, message.keys)
            case Stays():
                await self.steering.stays(session.node, message.keys, message.why)
            case Checkpointed():
                await self.steering.keep(session.node, message)
            case Returned():
                await self._take_back(session, message.keys)
            case Fetch():
                session.send(await self._files.fetch(self.books, session.node, message))
            case Offer():
                session.send(self._files.store(self.books, session.node, message))
            case Hello():
                session.close()

    def _end(self, session: Session, message: Ended) -> None:
        mine = self.books.strike(self.planner, [(e.tenant, e.task, e.attempt) for e in message.endings], session.node)
        endings = [sound(e) for e, holding in zip(message.endings, mine, strict=True) if holding is not None]
        self.upkeep.note(session.node, message.endings, mine)
        endings = self.steering.retold(self.upkeep.retold(session.node, endings))
        self.endings.add(endings, session, message.sequence)
        if self.steering.standing:
            self.steering.let_go_on(session.node)
        self.dispatching.wake.set()

    def _resize(self, session: Session, windows: dict[str, int]) -> None:
        self.planner.resize_window(session.node, windows)
        self.dispatching.wake.set()

    async def _take_back(self, session: Session, keys: list[Key]) -> None:
        mine = self.books.strike(self.planner, [(key.tenant, key.task, key.attempt) for key in keys], session.node)
        back = [(*key[:2], one.claims) for key, one in zip(keys, mine, strict=True) if one is not None]
        if back:
            for line, task in await self._queue_store.release(back):
                self._refill.offer(line, [task])
        self.dispatching.wake.set()

    def stop_soon(self, cancelled: list[tuple[Key, int]], dropped: list[int]) -> None:
        """Stops cancelled attempts on their nodes and forgets waiting ones."""
        self.planner.drop(dropped)
        for key, node in cancelled:
            self.steering.stop(key, node)

    def look_after_nodes(self) -> None:
        """An operator closed a node, or opened it."""
        self.upkeep.soon()

    def steer_soon(self) -> None:
        """A client changed something about a task that is on its way."""
        self.steering.soon()
        self.timekeeper.expect_due()

    async def _reap(self) -> None:
        """Gives up on nodes that fell silent, and takes from them what they have by now stopped themselves."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            now = asyncio.get_running_loop().time()
            for node, heard in list(self._heard.items()):
                if now - heard > NODE_LEASE_SECONDS and node in self._sessions:
                    silent = self._sessions[node]
                    silent.close()
                    await self.farewell(silent)
            await self._take_from_lapsed()
            self.planner.tidy(self.books.shapes() | self.dispatching.shapes(), self._now())

    async def _take_from_lapsed(self) -> None:
        """Gives what lapsed nodes owned another attempt. No node comes back while that happens to it."""
        for node, name in await self._cluster.lapsed_nodes(list(self._sessions)):
            if name in self._settling or node in self._sessions:
                continue
            self._settling.add(name)
            try:
                rows = await self._cluster.owned_by([node])
                self.books.strike_node(self.planner, node)
                owned = {Key(row["tenant"], row["id"], row["attempt"]): row for row in rows}
                await self._lose(list(owned), owned, "its node fell silent")
            finally:
                self._settling.discard(name)

    async def _lose(self, keys: list[Key], owned: dict[Key, Row], why: str) -> None:
        _log.warning("attempts_lost", attempts=len(keys), why=why)
        await self.endings.record(
            (Ending(*key, Outcome.LOST.value, code="lost", message=why), owned[key]["node"]) for key in keys
        )
