"""`headway submit`: a script, a manifest, or a file full of tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import click

from headway.cli import manifest, options, output, trouble
from headway.cli.submitted import report, wait_options
from headway.cli.wishes import sent, submission_options
from headway.core.task import Submission
from headway.sdk.client import Client
from headway.sdk.errors import said_by
from headway.sdk.records import Batch
from headway.sdk.submissions import submission

SCRIPT_BYTES_MAX = 1024 * 1024
BATCH_LINES = 5_000
BATCH_BYTES = 8 * 1024 * 1024


@click.command("submit", context_settings={"allow_interspersed_args": False})
@click.option("-f", "--file", "manifest_file", metavar="FILE", help="A manifest, YAML or JSON; - is stdin.")
@click.option("--jsonl", metavar="FILE", help="One submission per line, as JSON; - is stdin.")
@submission_options
@wait_options
@click.argument("script", required=False, metavar="[SCRIPT")
@click.argument("arguments", nargs=-1, metavar="ARGS…]", type=click.UNPROCESSED)
@options.client_options
def command(
    client: Client,
    manifest_file: str | None,
    jsonl: str | None,
    wishes: dict[str, object],
    script: str | None,
    arguments: tuple[str, ...],
    wait: bool,
    follow: bool,
    timeout: float | None,
    form: str | None,
) -> int:
    """Submit a script, a manifest, or a file full of tasks; prints the id of each.

    \b
    headway submit ./encode.sh in.mp4
    headway submit -f task.yml --wait
    headway submit --jsonl tasks.jsonl
    """
    if sum(one is not None for one in (manifest_file, jsonl, script)) != 1:
        raise click.UsageError("expected a script, or -f FILE, or --jsonl FILE")
    if jsonl is not None:
        if wishes or wait or follow:
            raise click.UsageError("--jsonl takes neither wishes nor --wait: each line says all of its task")
        return submit_lines(client, jsonl)
    if script is not None:
        said = {**sent(client, wishes), **uploaded(client, script, Path()), "args": list(arguments)}
        task = submission(said)
    else:
        task = from_manifest(client, manifest_file or "-", wishes)
    return report(client, client.submit(task), form, wait=wait, follow=follow, timeout=timeout)


def from_manifest(client: Client, name: str, wishes: dict[str, object]) -> Submission:
    """The submission a manifest describes, its script uploaded."""
    with opened(name) as file:
        read = manifest.parse(file.read(manifest.MANIFEST_BYTES_MAX + 1), "stdin" if name == "-" else name)
    for field in ("retry", "resources"):  # what the command says of them is laid over what the file says
        if isinstance(there := read.said.get(field), dict) and field in wishes:
            wishes = {**wishes, field: {**there, **cast("dict[str, object]", wishes[field])}}
    read.submission(**wishes)  # what is wrong is said before anything is uploaded
    beside = Path() if name == "-" else Path(name).parent
    bundle, script = read.said.get("bundle"), read.said.get("script")
    if "bundle" not in wishes and isinstance(bundle, str) and not bundle.startswith("sha256:"):
        wishes = {**wishes, "bundle": str(beside / bundle)}
    wishes = sent(client, wishes)
    if isinstance(script, str) and not script.startswith("sha256:"):
        wishes = {**wishes, **uploaded(client, script, beside)}
    return read.submission(**wishes)


def uploaded(client: Client, script: str, beside: Path) -> dict[str, object]:
    """Uploads a script; what a submission says of it then."""
    try:
        text = (beside / script).read_bytes()
    except OSError as error:
        raise trouble.Stopped(f"cannot read {beside / script}: {error.strerror}", trouble.USAGE) from None
    if len(text) > SCRIPT_BYTES_MAX:
        over = f"{beside / script} has {len(text):,} bytes; a script must not exceed 1 MiB"
        raise trouble.Stopped(f"{over}. Keep what is large elsewhere and fetch it.", trouble.USAGE)
    return {"script": client.upload(text).digest, "script_path": script}


def submit_lines(client: Client, name: str) -> int:
    """Submits a file of JSON lines batch by batch; prints the ids in order, refusals on stderr."""
    first, refused = 1, 0
    with opened(name) as file:
        for lines in batches(file):
            refused += _print_batch(client.submit_lines(b"\n".join(lines)), first)
            first += len(lines)
    if refused:
        lines_were = "line was" if refused == 1 else "lines were"
        click.echo(f"headway: {refused} {lines_were} refused; the others are submitted", err=True)
    return trouble.USAGE if refused else trouble.OK


def batches(file: IO[bytes]) -> Iterator[list[bytes]]:
    """The lines of a file that say something, as many at a time as one request may carry."""
    held: list[bytes] = []
    size = 0
    for raw in file:
        if line := raw.strip():
            held.append(line)
            size += len(line)
        if len(held) == BATCH_LINES or size > BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def opened(name: str) -> IO[bytes]:
    """A file by name, or stdin; a missing one ends the command."""
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise trouble.Stopped(f"cannot read {name}: {error.strerror}", trouble.USAGE) from None


def _print_batch(batch: Batch, first: int) -> int:
    for item in batch.items:
        if item.error is not None:
            click.echo(f"task {first + item.index}: {output.clean(said_by(item.error))}", err=True)
    click.echo("\n".join(item.id for item in batch.items if item.id), nl=batch.accepted > 0)
    return batch.rejected
