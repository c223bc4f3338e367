"""`App`: the functions of a program that Headway may run, and the way to the server that runs them.

Workers import it too, so it pulls in nothing heavy: no HTTP, no event loop, no msgspec until the first
submission.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from headway.sdk.task import Options, Overrides, Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from weakref import WeakKeyDictionary

    from headway.sdk.client import AsyncClient, Client
    from headway.sdk.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """A named collection of tasks.

    `url` and `key` say where the server is; without them HEADWAY_URL/HEADWAY_KEY, the user's profile or a
    running `headway dev` do, and only when something is submitted.
    """

    def __init__(self, name: str, url: str | None = None, key: str | None = None) -> None:
        self.name = name
        self.tasks: dict[str, Task[..., Any]] = {}
        """By function name, `module:qualname`: what a worker of this app can run."""
        self._url, self._key = url, key
        self._client: Client | None = None
        self._async_clients: WeakKeyDictionary[object, _Held] | None = None

    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **said: Unpack[Overrides]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **said: Unpack[Overrides]) -> object:
        """Makes a task of a function; usable bare or with options."""
        options = Options().replaced(said)

        def decorate(fn: Callable[P, R]) -> Task[P, R]:
            return self._add(fn, options)

        return decorate if fn is None else decorate(fn)

    @property
    def client(self) -> Client:
        """The sync client, made at first use."""
        if self._client is None:
            from headway.sdk.client import Client
            from headway.sdk.discovery import discover

            server = discover(self._url, self._key)
            self._client = Client(server.url, server.key)
        return self._client

    async def async_client(self) -> AsyncClient:
        """The client of the running event loop; closed with the loop."""
        import asyncio
        from weakref import WeakKeyDictionary

        if self._async_clients is None:
            self._async_clients = WeakKeyDictionary()
        loop = asyncio.get_running_loop()
        held = self._async_clients.get(loop)
        if held is None:
            held = self._async_clients[loop] = _Held(self._new_async_client())
            await anext(held.until_closed)
        return held.client

    def handle(self, task_id: str) -> Handle[Any]:
        """The handle of a task that was submitted earlier, or elsewhere."""
        from headway.sdk.handle import Handle

        return Handle(self, task_id)

    def __repr__(self) -> str:
        return f"<headway.App {self.name!r}: {len(self.tasks)} tasks>"

    def _new_async_client(self) -> AsyncClient:
        from headway.sdk.client import AsyncClient
        from headway.sdk.discovery import discover

        server = discover(self._url, self._key)
        return AsyncClient(server.url, server.key)

    def _add(self, fn: Callable[P, R], options: Options) -> Task[P, R]:
        task = Task(self, fn, function_name(fn), options)
        if task.function in self.tasks:
            raise ValueError(f"there already is a task {task.function} in app {self.name!r}")
        self.tasks[task.function] = task
        return task


class _Held:
    """A client that lives as long as its loop: an event loop closes its async generators before it ends."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.until_closed = _until_closed(client)


async def _until_closed(client: AsyncClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


def function_name(fn: Callable[..., object]) -> str:
    """`module:qualname`, as a worker finds it: a program run as a script goes by the name it is imported
    under.
    """
    module = fn.__module__
    return f"{_importable(module) if module == '__main__' else module}:{fn.__qualname__}"


def _importable(module: str) -> str:
    main = sys.modules[module]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module, or python -m package
        return str(spec.name).removesuffix(".__main__")
    file: str | None = getattr(main, "__file__", None)
    return Path(file).stem if file else module
