"""A call of a task's function as a submission, refused here when no worker could ever run it."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from headway.core.task import Submission
from headway.sdk.errors import SubmissionError

if TYPE_CHECKING:
    from headway.sdk.task import Options

CONTEXT = "ctx"
_encode = msgspec.json.Encoder().encode


def checked(
    fn: Callable[..., object],
    function: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    options: Options,
) -> Submission:
    """The submission of a call; raises SubmissionError when it does not fit the function or is no JSON."""
    if "<locals>" in function or "<lambda>" in function:
        raise SubmissionError(f"{function} is made inside another function; a worker can only find one at module level")
    signature = _signature(fn)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise SubmissionError(f"{function}{signature}: {error}") from None
    if (wrong := _unsendable(list(args), dict(kwargs))) is not None:
        named = _blame(signature, args, kwargs)
        raise SubmissionError(
            f"{function}: {named or wrong}\nSend plain data: None, bool, int, float, str, list, dict."
        )
    said = {name: value for name, value in options._asdict().items() if value is not None}
    return Submission(function=function, args=list(args), kwargs=dict(kwargs), **said)


@functools.lru_cache(maxsize=1024)
def _signature(fn: Callable[..., object]) -> inspect.Signature:
    signature = inspect.signature(fn)
    kept = [parameter for name, parameter in signature.parameters.items() if name != CONTEXT]
    return signature.replace(parameters=kept)


def _blame(signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
    """Which argument cannot be sent, and why."""
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if (wrong := _unsendable(value)) is not None:
            return f"argument {name!r} cannot be sent: {wrong}"
    return None


def _unsendable(*values: object) -> str | None:
    """Why values cannot travel as JSON and arrive as they are. msgspec alone would turn a date into a text
    and NaN into null without a word, the json module would let through what msgspec cannot encode: both must
    agree.
    """
    try:
        json.dumps(values, allow_nan=False)
        _encode(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return str(error)
    return None
