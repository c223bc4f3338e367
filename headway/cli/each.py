"""Doing the same to several tasks: one that it cannot be done to does not keep it from the others."""

from __future__ import annotations

from collections.abc import Callable

import click

from headway.cli import output, trouble
from headway.cli.ps import COLUMNS
from headway.sdk.errors import Conflict, NotFound
from headway.sdk.records import TaskRecord


def each(do: Callable[[str], TaskRecord], ids: tuple[str, ...], form: str | None) -> int:
    """Does it, prints the tasks, and answers the exit code."""
    done: list[TaskRecord] = []
    worst = trouble.OK
    for task_id in ids:
        try:
            done.append(do(task_id))
        except (Conflict, NotFound) as error:
            click.echo(f"headway: {task_id}: {error}", err=True)
            worst = trouble.exit_code(error)
    output.print_items([record.raw for record in done], form or "name", COLUMNS)
    return worst
