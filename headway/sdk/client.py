"""The two faces of the one client: `Client` for ordinary code, `AsyncClient` for a running event loop.

What can be asked is written once, in conversations.py; a face only carries bytes and sleeps. The sync face is
http.client over kept connections and the async face httpx2, because through httpx2 one submission costs 0.43
ms of client (0.87 ms when an event loop in a thread serves a sync caller) and 200 ms of import, against 0.19
ms and 25 ms.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from headway.sdk import administration, bundles, conversations, errors
from headway.sdk.connections import PIECE_BYTES, Connections
from headway.sdk.conversations import PATIENCE_SECONDS, Conversation, Lost, Pause, Request, Response
from headway.sdk.streams import EVENTS, LogReader

if TYPE_CHECKING:
    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[P, T]):
    """One thing to ask, with a face for each kind of client: a method, or a coroutine method."""

    def __init__(self, converse: Callable[P, Conversation[T]]) -> None:
        self._converse = converse
        self.__doc__ = converse.__doc__

    @overload
    def __get__(self, client: Client, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: object = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> Self: ...
    def __get__(self, client: Client | AsyncClient | None, owner: object = None) -> object:
        return self if client is None else partial(client.hold, self._converse)


class Operations:
    """What both clients can do."""

    submit = Operation(conversations.submit)
    submit_batch = Operation(conversations.submit_batch)
    submit_lines = Operation(conversations.submit_lines)
    upload = Operation(conversations.upload)
    task = Operation(conversations.task)
    tasks = Operation(conversations.tasks)
    attempts = Operation(conversations.attempts)
    explain = Operation(conversations.explain)
    change = Operation(conversations.change)
    pause = Operation(conversations.pause)
    resume = Operation(conversations.resume)
    events = Operation(conversations.events)
    cancel = Operation(conversations.cancel)
    finished = Operation(conversations.finished)
    all_finished = Operation(conversations.all_finished)
    outcome = Operation(conversations.outcome)
    outcomes = Operation(conversations.outcomes)
    upload_bundle = Operation(conversations.upload_bundle)
    artifacts = Operation(conversations.artifacts)
    artifact_list = Operation(conversations.artifact_list)
    nodes = Operation(conversations.nodes)
    me = Operation(conversations.me)
    create_tenant = Operation(administration.create_tenant)
    tenants = Operation(administration.tenants)
    tenant = Operation(administration.tenant)
    change_tenant = Operation(administration.change_tenant)
    create_plan = Operation(administration.create_plan)
    plans = Operation(administration.plans)
    plan = Operation(administration.plan)
    change_plan = Operation(administration.change_plan)
    tiers = Operation(administration.tiers)
    tier = Operation(administration.tier)
    keep_tier = Operation(administration.keep_tier)
    pools = Operation(administration.pools)
    pool = Operation(administration.pool)
    change_pool = Operation(administration.change_pool)
    pause_pool = Operation(administration.pause_pool)
    resume_pool = Operation(administration.resume_pool)
    names = Operation(administration.names)
    pause_name = Operation(administration.pause_name)
    resume_name = Operation(administration.resume_name)
    node = Operation(administration.node)
    cordon_node = Operation(administration.cordon_node)
    uncordon_node = Operation(administration.uncordon_node)
    drain_node = Operation(administration.drain_node)
    node_events = Operation(administration.node_events)
    stats = Operation(administration.stats)
    create_key = Operation(administration.create_key)
    keys = Operation(administration.keys)
    revoke_key = Operation(administration.revoke_key)


class Client(Operations):
    """Talks to a Headway server. Safe to share between threads; survives a fork."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._connections = Connections(self.url, key)

    def hold(self, converse: Callable[P, Conversation[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Holds a conversation to its end."""
        talk = converse(*args, **kwargs)
        try:
            step = next(talk)
            while True:
                step = talk.send(self._perform(step))
        except StopIteration as end:
            return end.value

    def logs(self, task_id: str, attempt: int | None = None, follow: bool = False) -> Generator[bytes, None, None]:
        """The log of an attempt (of the last one), piece by piece; with `follow` until the task has ended."""
        request = conversations.log_request(task_id, attempt, follow)
        return self._connections.follow(LogReader(request)) if follow else self._connections.stream(request)

    def bundle(self, folder: Path | str) -> str:
        """Sends a folder, less what its .headwayignore names; answers the digest to submit as `bundle`."""
        with bundles.bundled(folder) as packed:
            return self.upload_bundle(packed)

    def artifact(self, task_id: str, path: str, attempt: int | None = None) -> Generator[bytes, None, None]:
        """A file that an attempt (the last one) left, piece by piece."""
        return self._connections.stream(conversations.download_request(task_id, path, attempt))

    def download(self, task_id: str, to: Path | str, path: str | None = None, attempt: int | None = None) -> None:
        """Writes what an attempt (the last one) left into a folder: one file, or all."""
        pieces = self._connections.stream(conversations.download_request(task_id, path, attempt))
        if path is None:
            bundles.unpacked(pieces, to)
        else:
            bundles.saved(pieces, to, path)

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _perform(self, step: Request | Pause) -> Response | Lost | None:
        if isinstance(step, Request):
            return self._connections.exchange(step)
        time.sleep(step.seconds)
        return None


class AsyncClient(Operations):
    """Talks to a Headway server from within one event loop."""

    def __init__(self, url: str, key: str) -> None:
        import httpx2  # 200 ms that no worker and no command line has to pay

        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            headers={"authorization": f"Bearer {key}"},
            limits=httpx2.Limits(max_connections=256, max_keepalive_connections=32),
            trust_env=False,  # HTTP_PROXY would catch the loopback address
        )

    async def hold(self, converse: Callable[P, Conversation[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Holds a conversation to its end."""
        talk = converse(*args, **kwargs)
        try:
            step = next(talk)
            while True:
                step = talk.send(await self._perform(step))
        except StopIteration as end:
            return end.value

    async def logs(self, task_id: str, attempt: int | None = None, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """The log of an attempt (of the last one), piece by piece; with `follow` until the task has ended."""
        request = conversations.log_request(task_id, attempt, follow)
        async for piece in self._follow(LogReader(request)) if follow else self._stream(request):
            yield piece

    async def _follow(self, reader: LogReader) -> AsyncGenerator[bytes, None]:
        import asyncio

        lost_at: float | None = None
        while not reader.is_over:
            request = reader.request()
            try:
                async for piece in self._stream(request, reader):
                    lost_at = None
                    yield piece
            except errors.Unavailable:
                if lost_at is None and not reader.has_begun:
                    raise
            lost_at = lost_at if lost_at is not None else time.monotonic()
            if not reader.is_over:
                if time.monotonic() - lost_at > PATIENCE_SECONDS:
                    raise conversations.unanswered(Lost("the log ended before the task did", met=True), request)
                await asyncio.sleep(0.2)

    async def _stream(self, request: Request, reader: LogReader | None = None) -> AsyncGenerator[bytes, None]:
        import httpx2

        try:
            headers = dict(request.headers) or None
            async with self._http.stream("GET", self.url + request.path, headers=headers, timeout=None) as answer:
                if answer.status_code >= 300:
                    raise errors.refusal(answer.status_code, await answer.aread())
                are_events = reader is not None and answer.headers.get("content-type", "").startswith(EVENTS)
                async for piece in answer.aiter_bytes():
                    if are_events:
                        assert reader is not None
                        for part in reader.feed(piece):
                            yield part
                    else:
                        yield piece
                if reader is not None and not are_events:
                    reader.is_over = True
        except httpx2.TransportError as error:
            raise conversations.unanswered(_lost(error), request) from error

    async def bundle(self, folder: Path | str) -> str:
        """Sends a folder, less what its .headwayignore names; answers the digest to submit as `bundle`."""
        import asyncio

        packing = bundles.bundled(folder)
        packed = await asyncio.to_thread(packing.__enter__)
        try:
            return await self.upload_bundle(packed)
        finally:
            await asyncio.to_thread(packing.__exit__, None, None, None)

    async def artifact(self, task_id: str, path: str, attempt: int | None = None) -> AsyncGenerator[bytes, None]:
        """A file that an attempt (the last one) left, piece by piece."""
        async for piece in self._stream(conversations.download_request(task_id, path, attempt)):
            yield piece

    async def download(self, task_id: str, to: Path | str, path: str | None = None, attempt: int | None = None) -> None:
        """Writes what an attempt (the last one) left into a folder: one file, or all."""
        import asyncio
        import tempfile

        with tempfile.TemporaryFile() as file:
            async for piece in self._stream(conversations.download_request(task_id, path, attempt)):
                file.write(piece)
            file.seek(0)
            pieces = iter(lambda: file.read(PIECE_BYTES), b"")
            if path is None:
                await asyncio.to_thread(bundles.unpacked, pieces, to)
            else:
                await asyncio.to_thread(bundles.saved, pieces, to, path)

    async def aclose(self) -> None:
        """Closes the connections that are kept."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _perform(self, step: Request | Pause) -> Response | Lost | None:
        import asyncio

        import httpx2

        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        headers = {"content-type": step.content_type} if step.body or step.file is not None else {}
        if step.file is not None:
            headers["content-length"] = str(step.file.stat().st_size)
        try:
            answer = await self._http.request(
                step.method,
                self.url + step.path,
                content=_read_slowly(step.file) if step.file is not None else step.body or None,
                headers=headers or None,
                timeout=step.timeout,
            )
        except httpx2.TransportError as error:
            return _lost(error)
        return Response(answer.status_code, answer.content, answer.headers.get("retry-after"))


async def _read_slowly(path: Path) -> AsyncGenerator[bytes, None]:
    """A file while it is sent."""
    import asyncio

    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


def _lost(error: httpx2.TransportError) -> Lost:
    import httpx2

    refused = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
    return Lost(str(error) or type(error).__name__, met=not refused)
