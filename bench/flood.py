"""A client process that submits as fast as its connections are answered: `python -m bench.flood …`.

One request a connection at a time, kept alive; everything is encoded before the clock starts. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import deque
from typing import cast

import uvloop

from bench import bodies


class Line(asyncio.Protocol):
    """A kept connection; sends the next request as soon as the last one is answered."""

    def __init__(self, left: deque[bytes], over: asyncio.Future[None]) -> None:
        self.accepted = 0
        self.seconds: list[float] = []
        self._left = left
        self._over = over
        self._answer = bytearray()
        self._asked_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self) -> None:
        """Sends the next request; without one it is over."""
        if self._left:
            assert self._transport is not None
            self._asked_at = time.perf_counter()
            self._transport.write(self._left.popleft())
        elif not self._over.done():
            self._over.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        try:
            body = bodies.complete(self._answer)
        except ValueError as error:
            if not self._over.done():
                self._over.set_exception(error)
            return
        if body is not None:
            self.seconds.append(time.perf_counter() - self._asked_at)
            self.accepted += bodies.accepted(body)
            self._answer.clear()
            self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            self._over.set_exception(ConnectionError(f"the server closed the connection: {exc}"))


async def flood(said: argparse.Namespace) -> dict[str, object]:
    """Submits everything; how long it took and what each call took."""
    host, port = os.environ["HEADWAY_URL"].removeprefix("http://").split(":")
    numbers = range(said.count)
    keys = os.environ["HEADWAY_KEY"].split(",")
    left = deque(bodies.requests(keys, said.job, numbers, said.size, said.form, limited=said.limited))
    loop = asyncio.get_running_loop()
    lines: list[Line] = []
    overs: list[asyncio.Future[None]] = []
    for _ in range(said.connections):
        overs.append(loop.create_future())
        line = Line(left, overs[-1])
        await loop.create_connection(lambda line=line: line, host, int(port))
        lines.append(line)
    began, used = time.perf_counter(), time.process_time()
    for line in lines:
        line.ask()
    await asyncio.gather(*overs)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    stored = sum(line.accepted for line in lines)
    if stored != said.count:
        raise SystemExit(f"{stored} of {said.count} tasks were accepted")
    return {"seconds": seconds, "client_cpu": used, "calls": [s for line in lines for s in line.seconds]}


def main() -> None:
    """Reads its arguments, submits, reports."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=("noop", "stamp", *bodies.PROGRAMS), default="noop")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--form", choices=("array", "lines"), default="array")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--limited", action="store_true", help="several tiers, and a concurrency key in every task")
    print(json.dumps(uvloop.run(flood(parser.parse_args()))))


if __name__ == "__main__":
    main()
