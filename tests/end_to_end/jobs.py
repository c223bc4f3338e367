"""Functions that the end-to-end and fault tests run."""

from __future__ import annotations

import fcntl
import os
import time

import headway

app = headway.App("jobs")


@app.task()
def double(number: int) -> int:
    return number * 2


@app.task()
def fail(why: str) -> None:
    raise ValueError(why)


@app.task(execution_cap="0.5s", cap_grace="0.2s")
def overstay() -> None:
    while True:
        time.sleep(0.05)


@app.task()
def note(path: str, task: str, seconds: float, *, ctx: headway.Context) -> str:
    """Writes when it began and when it ended, each in one append."""
    with open(path, "ab", buffering=0) as file:
        file.write(f"{ctx.task_id} {ctx.attempt} begin {time.monotonic()} {os.getpid()}\n".encode())
        time.sleep(seconds)
        file.write(f"{ctx.task_id} {ctx.attempt} end {time.monotonic()} {os.getpid()}\n".encode())
    return task


@app.task()
def hold(path: str, seconds: float, *, ctx: headway.Context) -> None:
    """Holds its task's lock while it runs, and writes if somebody else holds it. The kernel unlocks for the dead."""
    with open(f"{path}.{ctx.task_id}.lock", "wb") as lock, open(path, "ab", buffering=0) as file:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.write(f"{ctx.task_id} {ctx.attempt} twice\n".encode())
        file.write(f"{ctx.task_id} {ctx.attempt} begin\n".encode())
        time.sleep(seconds)
        file.write(f"{ctx.task_id} {ctx.attempt} end\n".encode())


@app.task(retry=headway.Retry(max_attempts=3, initial="10ms"))
def heal(path: str, *, ctx: headway.Context) -> int:
    """Fails until its third attempt."""
    if ctx.attempt < 3:
        raise RuntimeError(f"attempt {ctx.attempt}")
    return ctx.attempt
