"""The other side of the agent's protocol: a leader that remembers everything and decides nothing by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from headway.agent.agent import Agent, AgentSettings
from headway.core.log import behind, said_of
from headway.core.task import Spec
from headway.wire import (
    FRAME_BYTES_MAX,
    Ack,
    Assignment,
    Blob,
    Dispatch,
    Ended,
    Ending,
    Fetch,
    FromAgent,
    FromLeader,
    Frozen,
    Heartbeat,
    Hello,
    Key,
    Kill,
    LogChunk,
    Logs,
    Renewed,
    Returned,
    Started,
    Thawed,
    Welcome,
    Windows,
    decode_from_agent,
    encode,
)


@dataclass
class FakeLeader:
    """Speaks wire.py on a real WebSocket. What it answers by itself is told by its switches."""

    lease_seconds: float = 30.0
    acks: bool = True
    renews: bool = True
    disown: list[Key] = field(default_factory=list)
    scripts: dict[str, bytes] = field(default_factory=dict)
    hellos: list[Hello] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    chunks: list[LogChunk] = field(default_factory=list)
    started: list[Key] = field(default_factory=list)
    returned: list[Key] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    frozen: set[Key] = field(default_factory=set)
    windows: dict[str, int] = field(default_factory=dict)
    port: int = 0

    def __post_init__(self) -> None:
        self._news = asyncio.Condition()
        self._socket: ServerConnection | None = None
        self._server: Server | None = None
        self._first: dict[Key, Ending] = {}

    async def listen(self) -> None:
        self._server = await serve(
            self._session, "127.0.0.1", self.port, max_size=FRAME_BYTES_MAX, compression=None, close_timeout=0.2
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        """Stops like a server that is killed."""
        assert self._server is not None
        self.drop()
        self._server.close()
        await self._server.wait_closed()

    def drop(self) -> None:
        if self._socket is not None:
            self._socket.transport.abort()
            self._socket = None

    async def say(self, message: FromLeader) -> None:
        assert self._socket is not None
        await self._socket.send(encode(message))

    async def run(self, *assignments: Assignment) -> list[Ending]:
        """Dispatches and waits for all endings."""
        return await self.run_without(None, list(assignments))

    async def dispatch(self, *assignments: Assignment) -> None:
        await self.say(Dispatch(list(assignments)))

    async def run_without(self, slow: Assignment | None, assignments: list[Assignment]) -> list[Ending]:
        """Dispatches all and waits for the endings of all but one. What the node gives back it gets again, as from any
        leader: its window may have closed, or its worker may not be there yet."""
        await self.dispatch(*assignments)
        given = {key_of(assignment): assignment for assignment in assignments}
        others = [key for key in given if slow is None or key != key_of(slow)]
        while missing := [key for key in others if self.ending(key) is None]:
            await self.until(
                lambda: not given.keys().isdisjoint(self.returned) or all(self.ending(key) for key in missing)
            )
            back = [key for key in self.returned if key in given]
            self.returned = [key for key in self.returned if key not in given]
            if back:
                await self.dispatch(*(given[key] for key in back))
        return [ending for key in others if (ending := self.ending(key)) is not None]

    async def run_one(self, assignment: Assignment) -> Ending:
        return (await self.run(assignment))[0]

    async def until(self, fact: Callable[[], object]) -> None:
        """A fact about the node, a process that is gone, comes without news: we look every 50 ms, too."""
        async with asyncio.timeout(20), self._news:
            while not fact():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.05)

    async def until_true(self, fact: Callable[[], object]) -> None:
        """Waits for a fact that no frame tells of."""
        async with asyncio.timeout(20):
            while not fact():
                await asyncio.sleep(0.005)

    def ending(self, key: Key) -> Ending | None:
        return self._first.get(key)

    def log(self, assignment: Assignment) -> bytes:
        mine = [c for c in self.chunks if (c.tenant, c.task, c.attempt) == key_of(assignment)]
        place, found = 0, b""
        for chunk in sorted(mine, key=lambda chunk: chunk.at):
            if (piece := behind(place, chunk.at, chunk.body)) is not None:
                found += (said_of(piece.missing) if piece.missing else b"") + piece.body
                place = piece.at + len(piece.body)
        return found

    async def _session(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.headers.append(socket.request.headers.get("Authorization", ""))
        try:
            async for frame in socket:
                assert isinstance(frame, bytes)
                answer = self._heard(decode_from_agent(frame))
                if isinstance(answer, Welcome):
                    self._socket = socket
                if answer is not None:
                    await socket.send(encode(answer))
                async with self._news:
                    self._news.notify_all()
        except ConnectionClosed:
            pass

    def _heard(self, message: FromAgent) -> FromLeader | None:
        match message:
            case Hello():
                self.hellos.append(message)
                self.windows = message.windows
                return Welcome(message.protocol, 1, self.lease_seconds, self.disown)
            case Heartbeat():
                return Renewed(message.sequence) if self.renews else None
            case Ended():
                self.ended.append(message)
                self.endings += message.endings
                for e in message.endings:
                    self._first.setdefault(Key(e.tenant, e.task, e.attempt), e)
                return Ack(message.sequence) if self.acks else None
            case Fetch():
                self.fetched.append(message.digest)
                return Blob(message.tenant, message.digest, self.scripts.get(message.digest))
            case Logs():
                self.chunks += message.chunks
            case Started():
                self.started += message.keys
            case Returned():
                self.returned += message.keys
            case Frozen():
                self.frozen |= set(message.keys)
            case Thawed():
                self.frozen -= set(message.keys)
            case Windows():
                self.windows = message.windows
        return None

    async def kill(self, *assignments: Assignment) -> None:
        await self.say(Kill([key_of(assignment) for assignment in assignments]))


_numbers = itertools.count(os.getpid() * 1_000_000)
"""No two tests that run side by side look for processes of the same task."""


def key_of(assignment: Assignment) -> Key:
    return Key(assignment.tenant, assignment.task, assignment.attempt)


def an_assignment(kind: str, spec: Spec, *, cap_ms: int = 60_000, grace_ms: int = 200, **needs: int) -> Assignment:
    needs = {"workers": 1} if kind == "function" else {"cpu": 100} | needs
    text = msgspec.json.encode(spec).decode()
    return Assignment(7, next(_numbers), 1, kind, needs, cap_ms, grace_ms, text)


def a_command(*argv: str, env: dict[str, str] | None = None, **how: int) -> Assignment:
    return an_assignment("command", Spec(command=list(argv), env=env or {}), **how)


def a_shell(line: str, **how: int) -> Assignment:
    return a_command("/bin/sh", "-c", line, env=None, **how)


def a_script(digest: str, *args: str) -> Assignment:
    return an_assignment("script", Spec(script=digest, args=list(args)))


def a_call(function: str, *args: object, **how: int) -> Assignment:
    return an_assignment("function", Spec(function=function, args=list(args)), **how)


def result_of(ending: Ending) -> object:
    return None if ending.result is None else json.loads(ending.result)


@asynccontextmanager
async def a_leader(**switches: object):
    leader = FakeLeader(**switches)  # pyright: ignore[reportArgumentType]
    await leader.listen()
    try:
        yield leader
    finally:
        await leader.vanish()


def sandboxed(assignment: Assignment) -> Assignment:
    return msgspec.structs.replace(assignment, profile="sandboxed")


def settings(
    leader: FakeLeader,
    data_dir: Path,
    *,
    app: str | None = None,
    workers: int = 2,
    sandbox: bool = False,
    shown: tuple[Path, ...] = (),
    **capacity: int,
):
    return AgentSettings(
        url=f"http://127.0.0.1:{leader.port}",
        key="node-key",
        node="n1",
        data_dir=data_dir,
        kinds=frozenset({"command", "script"} | ({"function"} if app else set())),
        app=app,
        workers=workers,
        capacity={"cpu": 4000} | capacity,
        has_sandbox=sandbox,
        shown=shown,
    )


@asynccontextmanager
async def an_agent(leader: FakeLeader, data_dir: Path, **how: object):
    """An agent that has said Hello. Leaving stops it as SIGTERM does."""
    agent = Agent(settings(leader, data_dir, **how))  # pyright: ignore[reportArgumentType]
    running = asyncio.create_task(agent.run())
    greeting = asyncio.create_task(leader.until(lambda: leader._socket is not None))
    done, _ = await asyncio.wait({running, greeting}, return_when=asyncio.FIRST_COMPLETED)
    if running in done:
        greeting.cancel()
        running.result()
    try:
        yield running
    finally:
        running.cancel()
        async with asyncio.timeout(20):
            await asyncio.gather(running, return_exceptions=True)
