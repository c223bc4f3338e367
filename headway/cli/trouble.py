"""What an error means to a shell: one table from exceptions to exit codes."""

from __future__ import annotations

from collections.abc import Iterable

import click

from headway.sdk import errors

OK, ERROR, USAGE, AUTH, NOT_FOUND, CONFLICT, LIMIT, UNAVAILABLE = range(8)
TASK_FAILED, TASK_CANCELLED, TIMEOUT, INTERRUPTED = 10, 11, 124, 130

EXPECTED = (errors.HeadwayError, TimeoutError)
"""What may come out of a command; anything else is a bug and keeps its traceback."""

_CODES: list[tuple[type[Exception], int]] = [
    (errors.TaskFailed, TASK_FAILED),
    (errors.TaskCancelled, TASK_CANCELLED),
    (TimeoutError, TIMEOUT),
    (errors.Unauthorized, AUTH),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.Limited, LIMIT),
    (errors.Unavailable, UNAVAILABLE),
    (errors.DiscoveryError, UNAVAILABLE),
    (errors.SubmissionError, USAGE),
]


class Stopped(click.ClickException):
    """A command that cannot go on, with the exit code that says why."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # pyright: ignore[reportAttributeAccessIssue]  (click itself does so)


def exit_code(error: BaseException) -> int:
    """The exit code of an expected error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)


def of_statuses(statuses: Iterable[str]) -> int:
    """The exit code of a wait: the worst that happened to any of the tasks."""
    seen = set(statuses)
    return TASK_FAILED if "failed" in seen else TASK_CANCELLED if "cancelled" in seen else OK
