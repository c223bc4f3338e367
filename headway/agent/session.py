"""One WebSocket to the pool's leader, from Hello to the last frame.

The promise: what the agent owns and what the leader believes agree after every reconnect, and a lease that
cannot be renewed ends with everything dead. A session may end at any byte; nothing that must be said is lost
with it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from headway.agent.executor import Executor
from headway.agent.lease import Lease
from headway.agent.outbox import Outbox
from headway.wire import (
    FRAME_BYTES_MAX,
    PROTOCOL,
    Ack,
    Blob,
    Change,
    Dispatch,
    Freeze,
    FromLeader,
    Granted,
    Heartbeat,
    Hello,
    Kill,
    Leave,
    Refused,
    Renewed,
    Thaw,
    Welcome,
    decode_from_leader,
    encode,
)

OPEN_SECONDS = 10.0
"""How long the leader may take to answer the connection, and then the Hello."""
CLOSE_SECONDS = 1.0
LINGER_SECONDS, LINGER_SECONDS_MIN = 0.015, 0.001
LINGER_SHARE = 4
"""How long endings gather, at most, and of the time for which processes wait here, so that the node stays busy. Each
frame costs the leader a round to the database: at 1,200 processes a second one each was 0.5 ms of its and PostgreSQL's
time, several at once a tenth."""
HEARTBEATS_PER_LEASE = 4
LOOK_SECONDS = 1.0
"""How often the lease is compared with the clock at least: timers stand still while the machine sleeps."""
PATH = "/v1/agent/session"

_log = structlog.get_logger("headway.agent.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the agent is, in every Hello."""

    url: str
    key: str
    node: str
    incarnation: str
    home: str
    capacity: dict[str, int]
    labels: dict[str, str]
    kinds: list[str]
    degraded: dict[str, str]


class NotWelcome(Exception):
    """The leader refused the session, or answered something that is no Welcome."""


class Session:
    """Connects once at a time; `run_once` is one session."""

    def __init__(
        self,
        who: Identity,
        executor: Executor,
        outbox: Outbox,
        tell_guardian: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._who = who
        self._executor = executor
        self._outbox = outbox
        self._tell_guardian = tell_guardian
        self._clock = clock
        self._lease = Lease()
        self._socket: ClientConnection | None = None
        self.greeted = 0

    async def run_once(self) -> None:
        """One session. Returns when it is over; raises OSError, TimeoutError, InvalidHandshake or NotWelcome
        when it could not begin."""
        socket = await connect(
            websocket_url(self._who.url),
            additional_headers={"Authorization": f"Bearer {self._who.key}"},
            max_size=FRAME_BYTES_MAX,
            compression=None,
            ping_interval=None,  # heartbeats say more
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            proxy=None,
        )
        try:
            await self._greet(socket)
            self._socket = socket
            await self._talk(socket)
        finally:
            self._socket = None
            await socket.close()

    @property
    def is_on(self) -> bool:
        """Whether the leader hears us now."""
        return self._socket is not None

    def leave(self) -> None:
        """Ends the running session, if there is one."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def watch_lease(self) -> None:
        """Kills and forgets everything when the lease runs out, connected or not."""
        while True:
            left = self._lease.kill_at - self._clock()
            if left > 0:
                await asyncio.sleep(min(left, LOOK_SECONDS))
                continue
            if owned := self._executor.keys():
                _log.error("the lease ran out; everything that runs is killed", count=len(owned))
                self._executor.abandon()
            self._tell_guardian(math.inf)
            self.leave()
            await asyncio.sleep(max(self._lease.seconds / HEARTBEATS_PER_LEASE, LOOK_SECONDS / 4))

    # ── one session ─────────────────────────────────────────────────────────────────────────────────────────

    async def _greet(self, socket: ClientConnection) -> None:
        """Hello with the inventory, and what the leader makes of it."""
        self._executor.functions_changed.clear()
        asked_at = self._clock()
        await socket.send(encode(self._hello()))
        async with asyncio.timeout(OPEN_SECONDS):
            answer = _decoded(await socket.recv())
        match answer:
            case Welcome():
                self._welcomed(answer, asked_at)
            case Refused():
                raise NotWelcome(f"{answer.code}: {answer.message}")
            case _:
                raise NotWelcome(f"expected Welcome, not {type(answer).__name__}")

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            node=self._who.node,
            incarnation=self._who.incarnation,
            home=self._who.home,
            capacity=self._who.capacity,
            labels=self._who.labels,
            functions=self._executor.functions(),
            kinds=self._who.kinds,
            windows=self._executor.windows(),
            running=self._executor.keys() + self._outbox.ended_keys(),
            profiles=self._executor.profiles,
            degraded=self._who.degraded,
            frozen=self._executor.standing(),
        )

    def _welcomed(self, welcome: Welcome, asked_at: float) -> None:
        if welcome.protocol != PROTOCOL:
            raise NotWelcome(f"the leader speaks protocol {welcome.protocol}, this agent {PROTOCOL}; update the older")
        self.greeted += 1
        disowned = set(welcome.disown)
        if disowned:
            _log.warning("the leader disowned attempts; they are killed", count=len(disowned))
            self._executor.abandon(disowned)
        self._lease.grant(welcome.lease_seconds, asked_at=asked_at)
        self._owns_longer()
        self._outbox.rewind(disowned, self._executor.announced())
        self._executor.rejoin()
        _log.info("session began", epoch=welcome.epoch, lease_seconds=welcome.lease_seconds)

    async def _talk(self, socket: ClientConnection) -> None:
        """Sends, hears and keeps the lease until the connection ends."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send(socket))
                tasks.create_task(self._beat(socket))
                tasks.create_task(self._reoffer())
                await self._hear(socket)
        except* (ConnectionClosed, NotWelcome, OSError) as ended:
            _log.info("session ended", why=str(ended.exceptions[0]))

    async def _send(self, socket: ClientConnection) -> None:
        while True:
            await self._outbox.wait()
            if (seconds := linger(self._executor.fed_seconds)) > 0:
                await asyncio.sleep(seconds)
            for message in self._outbox.frames():
                await socket.send(encode(message))

    async def _beat(self, socket: ClientConnection) -> None:
        while True:
            await asyncio.sleep(self._lease.seconds / HEARTBEATS_PER_LEASE)
            sequence = self._lease.heartbeat(self._clock())
            self._outbox.heartbeat_sent(sequence)
            await socket.send(encode(Heartbeat(sequence, self._executor.load())))

    async def _reoffer(self) -> None:
        """There is no message for a change of the functions, so the session begins anew."""
        await self._executor.functions_changed.wait()
        self.leave()

    async def _hear(self, socket: ClientConnection) -> None:
        while True:
            self._heard(_decoded(await socket.recv()))

    def _heard(self, message: FromLeader) -> None:
        match message:
            case Dispatch():
                self._executor.dispatch(message.assignments)
            case Ack():
                self._outbox.acknowledged(message.sequence)
                self._executor.made_room()
            case Renewed():
                self._lease.renewed(message.sequence)
                self._owns_longer()
                self._outbox.renewed(message.sequence)
            case Kill():
                self._executor.kill(message.keys)
            case Leave():
                self._executor.leave(message.keys, must=message.must)
            case Freeze():
                self._executor.stand(message.keys)
            case Thaw():
                self._executor.go_on(message.keys)
            case Change():
                self._executor.change(message.bounds)
            case Blob() | Granted():
                self._executor.blob(message)
            case Welcome() | Refused():
                raise NotWelcome(f"{type(message).__name__} in the middle of a session")

    def _owns_longer(self) -> None:
        self._tell_guardian(self._lease.guard_at)
        self._executor.owns_until(self._lease.kill_at)


def linger(fed_seconds: float) -> float:
    """How long news may gather on a node that stays busy for so long without an answer."""
    seconds = min(fed_seconds / LINGER_SHARE, LINGER_SECONDS)
    return seconds if seconds >= LINGER_SECONDS_MIN else 0.0


def websocket_url(url: str) -> str:
    """Where the session is, from the server's http address."""
    return "ws" + url.removeprefix("http").rstrip("/") + PATH


def _decoded(frame: str | bytes) -> FromLeader:
    if isinstance(frame, str):
        raise NotWelcome("a text frame; expected binary")
    try:
        return decode_from_leader(frame)
    except msgspec.DecodeError as error:
        raise NotWelcome(f"a frame that is not of protocol {PROTOCOL}: {error}") from None


REFUSALS = (OSError, TimeoutError, InvalidHandshake, NotWelcome, ConnectionClosed)
"""How a session may fail to begin or be ended; the agent tries again."""
