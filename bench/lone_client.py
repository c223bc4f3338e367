"""One client that submits one task at a time: `python -m bench.lone_client …`, by the SDK or by a bare socket."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from bench import bodies, one_by_one
from bench.tally import Tally


def by_sdk(job: bodies.Job) -> Callable[[int], object]:
    """What a program writes: `noop.submit(7)`."""
    from bench import jobs

    return {"noop": jobs.noop, "stamp": jobs.stamp}[job].submit


def by_socket(job: bodies.Job) -> Callable[[int], object]:
    """The least a client can do: bytes out, bytes in."""
    host, port = os.environ["HEADWAY_URL"].removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    key = os.environ["HEADWAY_KEY"]

    def submit(number: int) -> None:
        line.sendall(bodies.request(key, "/v1/tasks", "application/json", bodies.single(job, number)))
        answer = bytearray()
        while bodies.complete(answer) is None:
            piece = line.recv(65536)
            if not piece:
                raise ConnectionError("the server closed the connection")
            answer += piece

    return submit


async def measure(said: argparse.Namespace) -> list[float]:
    """Milliseconds of each call, or of each start when there is a tally to read them from."""
    job: bodies.Job = "stamp" if said.tally else "noop"
    plain = by_sdk(job) if said.by == "sdk" else by_socket(job)

    async def submit(number: int) -> None:
        plain(number)

    if said.tally is None:
        return await one_by_one.calls(submit, said.count)
    return await one_by_one.starts(submit, Tally(said.tally), said.count)


def main() -> None:
    """Reads its arguments, measures, reports."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--by", choices=("sdk", "socket"), required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--tally", type=Path)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
