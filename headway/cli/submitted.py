"""What `run` and `submit` do once a task is submitted: print it, and wait for it when asked to."""

from __future__ import annotations

import click

from headway.cli import options, output, trouble, waiting
from headway.sdk.client import Client
from headway.sdk.records import TaskRecord


def wait_options(command: options.Command) -> options.Command:
    """Adds --wait, --follow, --timeout and -o."""
    command = options.output_option(options.timeout_option(command))
    command = click.option("--follow", is_flag=True, help="Print its log while it runs, and wait.")(command)
    ends = "Wait for its end: exit code 0, 10 failed, 11 cancelled."
    return click.option("--wait", is_flag=True, help=ends)(command)


def report(
    client: Client, record: TaskRecord, form: str | None, *, wait: bool, follow: bool, timeout: float | None
) -> int:
    """Prints a submitted task, and waits for it when asked to; answers the exit code."""
    for warning in record.warnings:
        click.echo(f"headway: {warning.message} ({warning.code}); headway explain {record.id} says why", err=True)
    if follow:
        click.echo(f"task {record.id}", err=True)  # stdout belongs to the log
    elif form is None:
        click.echo(record.id)
    code = trouble.OK
    if wait or follow:
        (record,) = waiting.wait(client, [record.id], timeout, follow=follow)
        code = waiting.exit_code([record])
    if form is not None:
        output.print_item(record.raw, form)
    return code
