"""The command line: one file per command, data on stdout, everything said about it on stderr.

`main` is the only place where an exception becomes an exit code (trouble.py has the table). A command is
imported when it is called, so `headway --help` costs no more than click.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and ends the process with its exit code."""
    sys.exit(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: Sequence[str]) -> int:
    """Runs a command line; answers its exit code."""
    import click

    from headway.cli import trouble
    from headway.cli.commands import root

    try:
        code = root.main(list(arguments), prog_name="headway", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return trouble.INTERRUPTED
    except BrokenPipeError:  # `headway ps | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except trouble.EXPECTED as error:
        click.echo(f"headway: {error}", err=True)
        return trouble.exit_code(error)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        click.echo(f"headway: the output cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest is tried again at the exit
        return trouble.ERROR
    return code if isinstance(code, int) else 0
