"""Programs the bench starts: each in a process group of its own, tethered to the bench, stopped by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.contest import Unmeasurable

ROOT = Path(__file__).parents[1]
STOP_SECONDS = 30.0
LAST_LINES = 3
LAST_CHARS = 300

Process = subprocess.Popen[bytes]


@contextmanager
def running(words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Generator[Process]:
    """A program for as long as the block lasts. What it says goes to `log`."""
    with log.open("ab") as said:
        process = _start(words, env, stdout=said, stderr=said)
    try:
        yield process
    finally:
        stop(process)


def finished(words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end and answers what it printed."""
    process = _start(words, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said, trouble = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Unmeasurable(f"{_name(words)} did not end within {seconds:g} s") from None
    finally:
        stop(process)
    if process.returncode != 0:
        raise Unmeasurable(f"{_name(words)} ended with {process.returncode}: {last_words(trouble.decode())}")
    return said.decode()


def until(what: str, condition: Callable[[], Any], seconds: float, pause: float = 0.005) -> float:
    """Looks every `pause` seconds; answers when it was so, on the monotonic clock, or gives up."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            raise Unmeasurable(f"{what}: not so within {seconds:g} s")
        time.sleep(pause)
    return time.monotonic()


def stop(process: Process) -> None:
    """Ends a program and what is left of its group; politely first."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def environment(**more: str) -> dict[str, str]:
    """Ours without what would lead a program to another server, and with the way to this package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWAY_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def last_words(text: str) -> str:
    """The end of what a program said, on one line."""
    return " | ".join(line.strip() for line in text.strip().splitlines()[-LAST_LINES:])[-LAST_CHARS:]


def _start(words: Sequence[str], env: Mapping[str, str] | None, stdout: Any, stderr: Any) -> Process:
    # A group of its own: Ctrl-C is for the bench, which stops everything in order.
    tethered = [sys.executable, "-m", "bench.tethered", str(os.getpid()), *words]
    given = environment() if env is None else env
    return subprocess.Popen(
        tethered, cwd=ROOT, env=given, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, process_group=0
    )


def _name(words: Sequence[str]) -> str:
    named = [word for word in words[1:4] if word != "-m"] or words[:1]
    return " ".join(Path(word).name if "/" in word else word for word in named)
