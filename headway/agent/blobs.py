"""What a task needs from the server and what it leaves there: blobs, by addresses that the leader signs.

The promise: a blob that several attempts want at once is fetched once; what arrives is what its digest says; a server
that is away is asked again, as long as somebody still waits; and the agent's loop never waits for a disk or a network.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headway.agent.cache import Cache, Name, has_digest
from headway.agent.outbox import Outbox
from headway.agent.transfer import Said, TransferFault, download, measured, upload
from headway.wire import Blob, Fetch, Granted, Key, Offer

TRANSFERS_MAX = 4
"""At once; one fills most networks, and each keeps a core busy with its digest."""
TRIES_MAX = 6
BACKOFF_SECONDS = (0.2, 5.0)
T = TypeVar("T")
A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
Pieces = Callable[[], Iterable[bytes]]
"""A stream that can be read more than once."""


@dataclass(slots=True)
class _Fetching:
    task: asyncio.Task[None]
    waiters: int = 0


class Blobs:
    """The node's cache, and its transfers."""

    def __init__(self, cache: Cache, url: str, outbox: Outbox) -> None:
        self.cache = cache
        self._url = url
        self._outbox = outbox
        self._threads = ThreadPoolExecutor(TRANSFERS_MAX, "headway-blobs")
        self._stops: set[threading.Event] = set()
        self._fetches: dict[Name, _Fetching] = {}
        self._asked: dict[Name, asyncio.Future[Blob | Granted]] = {}
        self._offered: dict[tuple[Key, str], asyncio.Future[Granted]] = {}
        self._offers: dict[tuple[Key, str], Offer] = {}

    # ── what attempts do ──────────────────────────────────────────────────────────────────────────────────────────

    def lend(self, name: Name) -> Path | None:
        """A blob that is here, until `give_back`; None when it has to be fetched."""
        return self.cache.lend(name)

    def path(self, name: Name) -> Path:
        """Where a blob is that was lent."""
        return self.cache.path(name)

    def give_back(self, name: Name) -> None:
        """It is needed no more."""
        self.cache.give_back(name)

    async def borrow(self, name: Name) -> Path:
        """A blob, fetched when it is not here, until `give_back`. Raises TransferFault; code `missing`: the server has
        none."""
        while (path := self.cache.lend(name)) is None:
            if self.cache.doubtful(name):
                is_right = await self._in_thread(lambda _: has_digest(self.cache.path(name), name.digest))
                self.cache.checked(name, is_right=is_right)
                continue
            fetch = self._fetches.get(name)
            if fetch is None:
                fetch = self._fetches[name] = _Fetching(asyncio.ensure_future(self._fetch(name)))
            fetch.waiters += 1
            try:
                await asyncio.shield(fetch.task)
            finally:
                fetch.waiters -= 1
                if not fetch.waiters:
                    del self._fetches[name]
                    fetch.task.cancel()  # if it still goes on: nobody waits any more
        return path

    async def store(self, key: Key, pieces: Pieces) -> Said:
        """Makes what an attempt leaves a blob of its tenant; answers its digest and size. Raises TransferFault, or what
        `pieces` raises."""
        said = await self._in_thread(lambda stop: measured(pieces(), stop))
        await self._patiently(lambda: self._send(key, said, pieces))
        return said

    # ── what the session says ─────────────────────────────────────────────────────────────────────────────────────

    def heard(self, message: Blob | Granted) -> None:
        """The leader's answer to a question."""
        if isinstance(message, Granted) and message.method == "PUT":
            key = Key(message.tenant, message.task, message.attempt)
            offered = self._offered.get((key, message.digest))
            if offered is not None and not offered.done():
                offered.set_result(message)
            return
        asked = self._asked.get(Name(message.tenant, message.digest))
        if asked is not None and not asked.done():
            asked.set_result(message)

    def ask_again(self) -> None:
        """A new session: what was asked in the one before has to be asked anew."""
        for name in self._asked:
            self._outbox.ask(Fetch(name.tenant, name.digest))
        for offer in self._offers.values():
            self._outbox.ask(offer)

    def close(self) -> None:
        """Gives up what is under way."""
        for stop in self._stops:
            stop.set()
        for fetch in self._fetches.values():
            fetch.task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ── transfers ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _fetch(self, name: Name) -> None:
        await self._patiently(lambda: self._fetch_once(name))

    async def _fetch_once(self, name: Name) -> None:
        answer = await self._answer(self._asked, name, lambda: self._outbox.ask(Fetch(*name)))
        part = self.cache.part(name)
        if isinstance(answer, Blob):
            body = answer.body
            if body is None:
                raise TransferFault("missing", f"there is no {name.digest} on the server", may_pass=False)
            part.write_bytes(body)
            may_pass = False
        else:
            self.cache.make_room(answer.size)
            await self._in_thread(lambda stop: download(self._url, answer.path, answer.size, part, stop))
            may_pass = True
        if not await self._in_thread(lambda _: has_digest(part, name.digest)):
            part.unlink(missing_ok=True)
            raise TransferFault("wrong_content", f"what came is not {name.digest}", may_pass=may_pass)
        self.cache.keep(name, part)

    async def _send(self, key: Key, said: Said, pieces: Pieces) -> None:
        offer = Offer(*key, said.digest, said.size)
        place = (key, said.digest)
        self._offers[place] = offer
        try:
            granted = await self._answer(self._offered, place, lambda: self._outbox.ask(offer))
        finally:
            self._offers.pop(place, None)
        if not granted.path:
            raise TransferFault("refused", "the leader does not know the attempt any more", may_pass=False)
        await self._in_thread(lambda stop: upload(self._url, granted.path, said.size, pieces(), stop))

    async def _answer(self, open_questions: dict[K, asyncio.Future[A]], question: K, ask: Callable[[], None]) -> A:
        answer = open_questions[question] = asyncio.get_running_loop().create_future()
        ask()
        try:
            return await answer
        finally:
            open_questions.pop(question, None)

    async def _patiently(self, attempt: Callable[[], Awaitable[None]]) -> None:
        wait, most = BACKOFF_SECONDS
        for number in range(TRIES_MAX):
            try:
                await attempt()
                return
            except TransferFault as fault:
                if not fault.may_pass or number == TRIES_MAX - 1:
                    raise
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(wait * 2, most)

    async def _in_thread(self, work: Callable[[threading.Event], T]) -> T:
        """Work that ends soon when nobody waits for it any more."""
        stop = threading.Event()
        self._stops.add(stop)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, stop)
        finally:
            stop.set()
            self._stops.discard(stop)
