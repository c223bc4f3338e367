"""What can go wrong between a client and a server, one class per way out.

Every message says what happened, why, and what to do next; `code` is the server's stable problem code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast


class HeadwayError(Exception):
    """Anything the SDK raises on purpose."""


class DiscoveryError(HeadwayError):
    """There is nothing that says where the server is, or what says it cannot be read."""


class SubmissionError(HeadwayError, TypeError):
    """A submission that cannot be: an argument that is no JSON, a call that does not fit the function."""


class ApiError(HeadwayError):
    """The server refused."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Invalid(ApiError, SubmissionError):
    """What was sent is not in order; the message lists every place."""


class Unauthorized(ApiError):
    """The key is missing, wrong, or may not do this."""


class NotFound(ApiError):
    """There is no such thing (of this tenant)."""


class Conflict(ApiError):
    """It is too late, or somebody else was first."""


class Limited(ApiError):
    """A rate or a quota of the plan is used up."""


class Unavailable(ApiError):
    """No server answered, or it cannot work now."""


class TaskFailed(HeadwayError):
    """The task ended without success; `tail` is the end of its last attempt's log."""

    def __init__(self, task_id: str, code: str, message: str, tail: str = "") -> None:
        shown = f"task {task_id} failed: {message or code} ({code})" if code else f"task {task_id} failed"
        super().__init__(shown + (f"\n--- end of its log ---\n{tail.rstrip()}" if tail.strip() else ""))
        self.task_id = task_id
        self.code = code
        self.message = message
        self.tail = tail


class TaskCancelled(HeadwayError):
    """The task was cancelled before it could finish."""

    def __init__(self, task_id: str, message: str = "") -> None:
        super().__init__(f"task {task_id} was cancelled" + (f": {message}" if message else ""))
        self.task_id = task_id


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Limited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}

_NEXT: dict[type[ApiError], str] = {
    Unauthorized: "Check the key: --key, HEADWAY_KEY, or the profile in ~/.config/headway/config.toml.",
    Limited: "Send less at a time, or ask the operator for a larger plan.",
    Unavailable: "Try again shortly; `headway doctor` says what is wrong on this machine.",
}


def refusal(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer that is none of 2xx."""
    problem = _problem(body)
    kind = _BY_STATUS.get(status, ApiError)
    lines = [said_by(problem) or f"the server answered {status}"]
    if kind in _NEXT:
        lines.append(_NEXT[kind])
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    if seconds is not None:
        lines.append(f"The server asks to wait {seconds:g} s.")
    return kind("\n".join(lines), status=status, code=str(problem.get("code", "")), retry_after=seconds)


def said_by(problem: Mapping[str, object]) -> str:
    """A problem document as lines of text."""
    lines = [str(problem.get("detail") or problem.get("title") or problem.get("code") or "")]
    errors = problem.get("errors")
    if isinstance(errors, Sequence) and not isinstance(errors, str):
        for error in cast("Sequence[object]", errors):
            if isinstance(error, Mapping):
                said = cast("Mapping[str, object]", error)
                line = f"{said.get('path', '?')}: {said.get('message', '')}"
                if line != lines[0]:  # a single error is the detail as well
                    lines.append(f"  {line}")
    return "\n".join(lines).strip()


def _problem(body: bytes) -> dict[str, object]:
    try:
        said = json.loads(body)
    except ValueError:
        return {"detail": body[:200].decode(errors="replace").strip()}
    return cast("dict[str, object]", said) if isinstance(said, dict) else {}
