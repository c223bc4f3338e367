"""The leader's end of the agents' WebSockets: one session a node.

A session turns frames into calls on the leader and the leader's orders into frames. It sends from its own task, so that
no slow agent ever holds the planner up; one that falls too far behind is cut off and comes back with its inventory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from headway.wire import (
    PROTOCOL,
    Ack,
    Ended,
    FromAgent,
    FromLeader,
    Hello,
    Refused,
    Welcome,
    decode_from_agent,
    encode,
)

HELLO_SECONDS = 10.0
UNSENT_BYTES_MAX = 64 * 1024 * 1024
_log = structlog.get_logger("headway.scheduler")


class Session:
    """One connected agent."""

    def __init__(self, socket: WebSocket, hello: Hello) -> None:
        self.hello = hello
        self.node = 0
        self._socket = socket
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._wake = asyncio.Event()
        self._over = asyncio.Event()
        self._outstanding: deque[list[int]] = deque()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.hello.node

    def send(self, message: FromLeader) -> None:
        """Queues a frame; the connection is given up when too much is queued."""
        frame = encode(message)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        self._wake.set()
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            _log.warning("agent_too_slow", node=self.name, unsent_bytes=self._unsent_bytes)
            self.close()

    def close(self) -> None:
        """Ends the session from this side."""
        self._over.set()
        self._wake.set()

    def expect(self, sequence: int) -> None:
        """Notes that an `Ended` frame came and is not durable yet."""
        self._outstanding.append([sequence, 0])

    def settle(self, sequence: int) -> None:
        """Acknowledges in order, however the frames became durable."""
        last = None
        for entry in self._outstanding:
            if entry[0] == sequence:
                entry[1] = 1
                break
        while self._outstanding and self._outstanding[0][1]:
            last = self._outstanding.popleft()[0]
        if last is not None:
            self.send(Ack(last))

    async def pump(self) -> None:
        """Sends what is queued until the session is over."""
        while not self._over.is_set():
            await self._wake.wait()
            self._wake.clear()
            while self._unsent and not self._over.is_set():
                frame = self._unsent.popleft()
                self._unsent_bytes -= len(frame)
                await self._socket.send_bytes(frame)

    async def receive(self) -> FromAgent:
        """The next message."""
        return decode_from_agent(await self._socket.receive_bytes())

    async def over(self) -> None:
        """Returns when this side ended the session."""
        await self._over.wait()


class Scheduling(Protocol):
    """What a session needs of the leader."""

    async def welcome(self, session: Session) -> Welcome | Refused:
        """Begins a node's session."""
        ...

    async def hear(self, session: Session, message: FromAgent) -> None:
        """Takes a message in."""
        ...

    async def farewell(self, session: Session) -> None:
        """A session ended."""
        ...


async def serve_agent(socket: WebSocket, leader: Scheduling) -> None:
    """One agent's connection from hello to goodbye."""
    await socket.accept()
    session = await _greet(socket)
    if session is None:
        return
    answer = await leader.welcome(session)
    if isinstance(answer, Refused):
        await _refuse(socket, answer)
        return
    try:
        await socket.send_bytes(encode(answer))
        await _converse(session, leader)
    except _ORDINARY as fault:
        _log.info("agent_gone_before_welcome", node=session.name, why=str(fault))
    finally:
        await leader.farewell(session)
    with suppress(RuntimeError, WebSocketDisconnect):  # the other side may have closed it
        await socket.close(1012)


async def _greet(socket: WebSocket) -> Session | None:
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = decode_from_agent(await socket.receive_bytes())
    except (TimeoutError, msgspec.DecodeError, KeyError, WebSocketDisconnect):
        await _refuse(socket, Refused("no_hello", f"expected a hello frame within {HELLO_SECONDS:g} s"))
        return None
    if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
        why = f"this server speaks protocol {PROTOCOL}; install the agent of the same version of Headway"
        await _refuse(socket, Refused("wrong_protocol", why))
        return None
    return Session(socket, hello)


async def _refuse(socket: WebSocket, refusal: Refused) -> None:
    try:
        await socket.send_bytes(encode(refusal))
        await socket.close(1008, refusal.code)
    except (RuntimeError, WebSocketDisconnect):
        pass  # nobody is listening any more


async def _converse(session: Session, leader: Scheduling) -> None:
    """Hears and sends until either side ends it."""
    tasks = [
        asyncio.create_task(_hear_all(session, leader)),
        asyncio.create_task(session.pump()),
        asyncio.create_task(session.over()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, Exception) and not isinstance(outcome, _ORDINARY):
            _log.error("session_failed", node=session.name, exc_info=outcome)


_ORDINARY = (WebSocketDisconnect, msgspec.DecodeError, KeyError, RuntimeError, OSError)
"""How a connection ends: closed, or saying something that is no frame."""


async def _hear_all(session: Session, leader: Scheduling) -> None:
    while True:
        message = await session.receive()
        if isinstance(message, Ended):
            session.expect(message.sequence)
        await leader.hear(session, message)
