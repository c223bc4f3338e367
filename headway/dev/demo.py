"""What `headway dev --demo` shows: a script, a function and a bulk, each submitted, run and timed.

Runs as a process of its own beside the supervisor: `python -m headway.dev.demo`, with HEADWAY_URL and
HEADWAY_KEY set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import cast

from headway.core.task import Submission
from headway.dev import demo_app
from headway.sdk.client import Client
from headway.sdk.errors import HeadwayError

BULK = 1_000
WAIT_SECONDS = 60.0
SCRIPT = b"""#!/bin/sh
echo "task $HEADWAY_TASK_ID, attempt $HEADWAY_ATTEMPT, on $(uname -s)"
"""


def main() -> None:
    """Shows everything; says what failed and goes on."""
    say("")
    say("demo: three kinds of work on the node beside this server")
    failed = False
    for show in (a_script, a_function, a_bulk):
        try:
            show()
        except (HeadwayError, TimeoutError) as error:
            failed = True
            say(f"  {show.__name__.replace('_', ' ')}: {error}")
    say("")
    where_to_go_on()
    sys.exit(failed)


def a_script() -> None:
    """Uploads a shell script and prints what it said."""
    client = demo_app.app.client
    began = time.perf_counter()
    digest = client.upload(SCRIPT).digest
    is_trusted = not any("sandboxed" in cast("list[str]", node["profiles"]) for node in client.nodes())
    profile = "trusted" if is_trusted else None
    record = client.submit(Submission(name="demo-script", script=digest, script_path="demo.sh", profile=profile))
    record = client.finished(record.id, WAIT_SECONDS)
    took, said = milliseconds(began), first_line(client, record.id)
    where = ", trusted: without a sandbox" if is_trusted else ""
    say(f"  a shell script      {record.status} in {took}{where}   it said: {said}")


def a_function() -> None:
    """Runs a Python function on a worker."""
    began = time.perf_counter()
    handle = demo_app.primes_below.submit(1_000_000)
    result = handle.result(WAIT_SECONDS)
    say(f"  a Python function   done in {milliseconds(began)}   primes_below(1_000_000) = {result:,}")


def a_bulk() -> None:
    """Submits a thousand tasks in one request and gathers their results."""
    began = time.perf_counter()
    handles = demo_app.square.map(range(BULK))
    submitted = milliseconds(began)
    results = handles.results(WAIT_SECONDS)
    seconds = time.perf_counter() - began
    right = results == [n * n for n in range(BULK)]
    say(
        f"  {BULK:,} tasks at once  done in {seconds * 1000:.0f} ms   durable after {submitted}, "
        f"{BULK / seconds:,.0f} tasks/s end to end, results {'right' if right else 'WRONG'}"
    )


def where_to_go_on() -> None:
    """What to look at and what to type next."""
    url = demo_app.app.client.url
    lines: Sequence[tuple[str, str]] = (
        ("API", url),
        ("described at", f"{url}/openapi.json"),
        ("metrics", f"{url}/metrics"),
        ("key", sys.argv[1] if len(sys.argv) > 1 else "in ready.json of the data directory"),
    )
    for name, value in lines:
        say(f"  {name:<13} {value}")
    say("")
    say("  next: headway ps        headway run --follow -- echo hello        headway show ID")
    say("  in Python: from headway.dev.demo_app import square; square.submit(12).result()")
    say("  Ctrl-C stops everything; the data stays.")


def first_line(client: Client, task_id: str) -> str:
    """The first line of a task's log."""
    return b"".join(client.logs(task_id)).decode(errors="replace").partition("\n")[0]


def milliseconds(began: float) -> str:
    """The time since, for people."""
    return f"{(time.perf_counter() - began) * 1000:.0f} ms"


def say(text: str) -> None:
    """A line for whoever started the demo."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
