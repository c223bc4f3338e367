"""`headway run`: a command as a task."""

from __future__ import annotations

from pathlib import Path

import click

from headway.cli import options
from headway.cli.submit import uploaded
from headway.cli.submitted import report, wait_options
from headway.cli.wishes import sent, submission_options
from headway.sdk.client import Client
from headway.sdk.submissions import submission


@click.command("run", context_settings={"allow_interspersed_args": False})
@submission_options
@wait_options
@click.argument("words", nargs=-1, metavar="-- CMD …", type=click.UNPROCESSED)
@options.client_options
def command(
    client: Client,
    wishes: dict[str, object],
    words: tuple[str, ...],
    wait: bool,
    follow: bool,
    timeout: float | None,
    form: str | None,
) -> int:
    """Run a command as a task; prints the task's id.

    \b
    headway run -- echo hello
    headway run -- ./encode.sh in.mp4
    headway run --cpu 2 --memory 1Gi --cap 10m --follow -- make test
    headway run --image busybox:1.36 -- uname -a
    """
    if not words and "image" not in wishes:
        raise click.UsageError("Missing argument '-- CMD …'.")
    said = {"command": list(words)} if words else {}
    if words and _is_script(words[0]) and not wishes.keys() & {"image", "bundle"}:
        said = {**uploaded(client, words[0], Path()), "args": list(words[1:])}
    record = client.submit(submission({**sent(client, wishes), **said}))
    return report(client, record, form, wait=wait, follow=follow, timeout=timeout)


def _is_script(word: str) -> bool:
    """Whether it means a file here, beside whoever calls: no node has that."""
    return "/" in word and not word.startswith("/") and Path(word).is_file()
