"""`Task`: a function that can run here, by a plain call, or on a worker, by `submit` and `map`.

What is submitted is checked where it is written: a call that does not fit the function or an argument that is
no JSON fails at once and says which argument.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast

from headway.sdk.errors import SubmissionError, said_by

if TYPE_CHECKING:
    from headway.core.checkpoints import CheckpointRule
    from headway.core.context import Context
    from headway.core.task import RetryRule, Submission
    from headway.sdk.app import App
    from headway.sdk.handle import Handle, Handles

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

CONTEXT = "ctx"
"""A parameter of this name is given the Context of the attempt."""


class Overrides(TypedDict, total=False):
    """What can be said of one submission in place of what the decorator says."""

    name: str | None
    tier: str | None
    delay_tolerance: str | float | None
    execution_cap: str | float | None
    cap_grace: str | float | None
    retry: RetryRule | None
    env: Mapping[str, str] | None
    tags: Mapping[str, str] | None
    preemptible: bool | None
    checkpoint: CheckpointRule | None


class Options(NamedTuple):
    """How a task wants to be run; None leaves it to the server."""

    name: str | None = None
    tier: str | None = None
    delay_tolerance: str | float | None = None
    execution_cap: str | float | None = None
    cap_grace: str | float | None = None
    retry: RetryRule | None = None
    env: Mapping[str, str] | None = None
    tags: Mapping[str, str] | None = None
    preemptible: bool | None = None
    checkpoint: CheckpointRule | None = None

    def replaced(self, said: Mapping[str, object]) -> Options:
        """These options with some said anew."""
        if unknown := said.keys() - set(self._fields):
            raise TypeError(f"there is no option {sorted(unknown)[0]!r}; there are: {', '.join(self._fields)}")
        return self._replace(**cast("dict[str, Any]", said))


class Task(Generic[P, R]):
    """A function of an app. A plain call runs it here; `submit` has it run by a worker."""

    def __init__(self, app: App, fn: Callable[P, R], function: str, options: Options) -> None:
        self.app = app
        self.fn = fn
        self.function = function
        self.wants_context = _wants_context(fn)
        self._options = options
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.wants_context and CONTEXT not in kwargs:
            kwargs[CONTEXT] = _local_context()
        return self.fn(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Hands one call to the server; durable when this returns."""
        from headway.sdk.handle import Handle

        return Handle(self.app, self.app.client.submit(self.submission(args, kwargs)).id)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`submit` for a running event loop."""
        from headway.sdk.handle import Handle

        client = await self.app.async_client()
        return Handle(self.app, (await client.submit(self.submission(args, kwargs))).id)

    def map(self, items: Iterable[object]) -> Handles[R]:
        """One call per item, with the item as its only argument; sent 10,000 at a time."""
        return self.starmap((item,) for item in items)

    def starmap(self, calls: Iterable[Sequence[object]]) -> Handles[R]:
        """One call per item, with the item's members as its arguments; sent 10,000 at a time."""
        from headway.sdk.conversations import chunks
        from headway.sdk.handle import Handles

        ids: list[str] = []
        for said in chunks(self.submission(tuple(args), {}) for args in calls):
            ids += _accepted(self.app, said, len(ids))
        return Handles(self.app, ids)

    def options(self, **said: Unpack[Overrides]) -> Self:
        """The same task, to be run differently: `charge.options(tier="premium").submit(42)`."""
        return type(self)(self.app, self.fn, self.function, self._options.replaced(said))

    def submission(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Submission:
        """What `submit` sends, checked as far as a client can."""
        from headway.sdk.calls import checked

        return checked(self.fn, self.function, args, kwargs, self._options)

    def __get__(self, instance: object, owner: object = None) -> Self:
        return self  # a function in a class stays one task; it is not bound to an object a worker does not have

    def __repr__(self) -> str:
        return f"<headway.Task {self.function}>"


def _accepted(app: App, said: list[Submission], before: int) -> list[str]:
    """The ids of a batch; raises with the first refusals when there is one."""
    from headway.sdk.handle import BatchRefused

    items = app.client.submit_batch(said).items
    ids = [item.id for item in items if item.id is not None]
    refused = [item for item in items if item.error is not None]
    if refused:
        first = "\n".join(f"item {before + item.index}: {said_by(item.error or {})}" for item in refused[:3])
        raise BatchRefused(f"{len(refused)} of {len(said)} calls were refused\n{first}", app, ids)
    return ids


def _wants_context(fn: Callable[..., object]) -> bool:
    """Whether the function takes a Context. Read off its code: `inspect` would cost a worker 10 ms of
    import.
    """
    while hasattr(fn, "__wrapped__"):
        fn = getattr(fn, "__wrapped__")  # noqa: B009 (types know nothing of it)
    code = getattr(fn, "__code__", None)
    if code is None:
        raise SubmissionError(f"{fn!r} is no function; only functions can be tasks")
    positional: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    keyword: tuple[str, ...] = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if CONTEXT in positional:
        raise SubmissionError(
            f"{fn.__qualname__} takes {CONTEXT} by position, but gets it by name: write "
            f"def {fn.__name__}(…, *, {CONTEXT})"
        )
    return CONTEXT in keyword


def _local_context() -> Context:
    from headway.core.context import Context

    return Context(tenant=0, task=0, attempt=1, cap_at=math.inf, now=time.monotonic)
