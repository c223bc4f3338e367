"""A container of a podman or Docker engine as a process: `python -I -m headway.agent.engine_process`.

It reads one `Order` from descriptor 3, has the engine make and start the container over its socket, passes its output
on, hands SIGTERM and what asks for checkpoints or warns to it, and ends with its exit status. What went wrong before
the task began, and whether it ran out of memory, goes to descriptor 4, where no task can write. The container is
removed however the task ends; when this process is killed, whoever killed it removes it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec

ORDER, TOLD = 3, 4
ANSWER_BYTES_MAX = 4 * 1024 * 1024
VERSION = "v1.40"
_FRAME = struct.Struct(">BxxxL")
NOT_STARTED = 125
REMOVE_AGAIN_SECONDS = (0.1, 0.3, 1.0, 0.0)
GONE = 404
DRAIN_SECONDS = 3.0
ASKED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGALRM, signal.SIGWINCH)
"""What a task may want to be warned or asked for a checkpoint by."""
ASK_AGAIN_SECONDS = 0.05


class Order(msgspec.Struct, frozen=True):
    """What the engine is to run."""

    socket: str
    name: str
    image: str
    may_pull: bool
    body: dict[str, Any]
    """Of `POST /containers/create`."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent has to know besides the exit status."""

    wrong: str = ""
    is_tasks_fault: bool = False
    is_out_of_memory: bool = False


class Failed(Exception):
    """The engine refused something."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("engine", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, method: str, where: str, body: object = None, seconds: float | None = 60.0) -> Any:
    """One request; its answer as JSON. Raises Failed and OSError."""
    connection = Connection(path, seconds)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, f"/{VERSION}{where}", text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        raw = answer.read(ANSWER_BYTES_MAX)
        if answer.status >= 400:
            raise Failed(answer.status, _message(raw))
        return json.loads(raw) if raw.strip().startswith((b"{", b"[")) and b"\n{" not in raw else None
    finally:
        connection.close()


def remove(path: str, name: str) -> None:
    """Ends and removes a container, if there is one. podman would first ask it to end, and wait for ten seconds."""
    with contextlib.suppress(Failed):  # it is gone or does not run: what follows says so
        ask(path, "POST", f"/containers/{quote(name)}/kill?signal=KILL")
    for pause in REMOVE_AGAIN_SECONDS:
        try:
            ask(path, "DELETE", f"/containers/{quote(name)}?force=1&v=1")
        except Failed as failed:
            if failed.status == GONE:
                return
            if not pause:
                raise
            time.sleep(pause)  # an engine in the middle of its end refuses, and so does one that removes it just now
        else:
            return


def run(order: Order) -> int:
    """Runs a container to its end; its exit status."""
    for number in ASKED:  # who is asked before it runs is not to end of it
        signal.signal(number, lambda number, _frame: _pass_on(order, number))
    _create(order)
    try:
        signal.signal(signal.SIGTERM, lambda number, _frame: _pass_on(order, number))
        ask(order.socket, "POST", f"/containers/{order.name}/start")
        following = threading.Thread(target=_follow, args=(order,), daemon=True)
        following.start()
        state = _ended(order)
        following.join(DRAIN_SECONDS)  # an engine may miss that there is nothing more to follow
        if state.get("OOMKilled"):
            tell(Told(is_out_of_memory=True))
        status = int(state["ExitCode"])
        return status if 0 <= status <= 255 else 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        remove(order.socket, order.name)


def tell(told: Told) -> None:
    """What goes to the agent and to nobody else."""
    os.pwrite(TOLD, msgspec.json.encode(told), 0)


def _create(order: Order) -> None:
    where = f"/containers/create?name={order.name}"
    try:
        ask(order.socket, "POST", where, order.body)
    except Failed as failed:
        if failed.status != 404 or not order.may_pull:
            raise
        ask(order.socket, "POST", f"/images/create?fromImage={quote(order.image, safe='')}", seconds=None)
        ask(order.socket, "POST", where, order.body)


def _ended(order: Order) -> Any:
    """How it ended. What `wait` answers is not taken for it: a busy engine may answer before it knows."""
    while True:
        ask(order.socket, "POST", f"/containers/{order.name}/wait", seconds=None)
        state = ask(order.socket, "GET", f"/containers/{order.name}/json")["State"]
        if state["Status"] in ("exited", "dead"):
            return state
        time.sleep(ASK_AGAIN_SECONDS)


def _pass_on(order: Order, number: int) -> None:
    try:
        name = signal.Signals(number).name
        ask(order.socket, "POST", f"/containers/{order.name}/kill?signal={name}", seconds=5.0)
    except (Failed, OSError):  # it has just ended, or will be killed
        return


def _follow(order: Order) -> None:
    """Passes its output on until it ends: frames of a kind, a length, and bytes."""
    connection = Connection(order.socket, None)
    with contextlib.suppress(OSError, http.client.HTTPException, struct.error):
        connection.request("GET", f"/{VERSION}/containers/{order.name}/logs?follow=1&stdout=1&stderr=1")
        answer = connection.getresponse()
        while header := answer.read(_FRAME.size):
            _, left = _FRAME.unpack(header)
            while left and (piece := answer.read(min(left, 65536))):
                left -= len(piece)
                os.write(1, piece)


def _message(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["message"])
    except (ValueError, KeyError, TypeError):
        return raw.decode(errors="replace")[:300]


def main() -> NoReturn:
    """Runs what was ordered."""
    with os.fdopen(ORDER, "rb") as file:
        order = msgspec.json.decode(file.read(), type=Order)
    try:
        sys.exit(run(order))
    except Failed as failed:
        tasks_fault = failed.status in (400, 404) or "executable file" in str(failed) or "no such file" in str(failed)
        tell(Told(wrong=str(failed), is_tasks_fault=tasks_fault))
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        tell(Told(wrong=f"{type(error).__name__}: {error}"))
    sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
