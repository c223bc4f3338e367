"""Waiting for tasks at a terminal: what ended is said on stderr, and Ctrl-C leaves the tasks alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from headway.cli import output, trouble
from headway.sdk.client import Client
from headway.sdk.records import TaskRecord


def wait(client: Client, ids: Sequence[str], timeout: float | None, *, follow: bool = False) -> list[TaskRecord]:
    """Waits for all of `ids`; answers them in order."""
    pending = dict.fromkeys(ids)

    def ended(record: TaskRecord) -> None:
        pending.pop(record.id, None)
        said_on_stderr(record)

    try:
        if follow:
            follow_log(client, ids[0])
        final = client.all_finished(ids, timeout, ended)
    except TimeoutError:
        over = f"{_not_finished([*pending], len(set(ids)))} after {timeout or 0:g} s"
        raise trouble.Stopped(f"{over}. {_goes_on([*pending])}", trouble.TIMEOUT) from None
    except KeyboardInterrupt:
        raise trouble.Stopped(f"detached. {_goes_on(ids)}", trouble.INTERRUPTED) from None
    return [final[task_id] for task_id in ids]


def follow_log(client: Client, task_id: str, attempt: int | None = None, follow: bool = True) -> None:
    """Copies a log to stdout, byte for byte."""
    for piece in client.logs(task_id, attempt, follow):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def exit_code(records: Sequence[TaskRecord]) -> int:
    """What a shell learns of how tasks ended."""
    return trouble.of_statuses(record.status for record in records)


def said_on_stderr(record: TaskRecord) -> None:
    """Tells people of a task that ended."""
    why = f": {output.clean(record.reason.message)}" if record.reason and record.status != "done" else ""
    click.echo(f"{record.id} {record.status}{why}", err=True)


def _not_finished(pending: Sequence[str], of: int) -> str:
    if of == 1:
        return f"task {pending[0]} is not finished"
    return f"{len(pending)} of {of} tasks {'is' if len(pending) == 1 else 'are'} not finished"


def _goes_on(ids: Sequence[str]) -> str:
    it = "The task goes on" if len(ids) == 1 else "The tasks go on"
    shown = " ".join(ids[:5]) + (" …" if len(ids) > 5 else "")
    return f"{it}; `headway wait {shown}` waits again, `headway cancel {shown}` stops."
