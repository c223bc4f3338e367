"""`Handle` and `Handles`: what a submission gives back, to wait for results and to cancel."""

from __future__ import annotations

import html
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, cast, overload

from headway.sdk.errors import HeadwayError, SubmissionError

if TYPE_CHECKING:
    from pathlib import Path

    from headway.sdk.app import App
    from headway.sdk.records import Artifact, TaskRecord

R = TypeVar("R")


class Handle(Generic[R]):
    """One submitted task. Nothing but its id is kept here: a handle can be made anew anywhere,
    `app.handle(id)`.
    """

    def __init__(self, app: App, task_id: str) -> None:
        self._app = app
        self.id = task_id

    def record(self) -> TaskRecord:
        """All that the server knows of the task."""
        return self._app.client.task(self.id)

    def status(self) -> str:
        """waiting, running, done, failed or cancelled."""
        return self.record().status

    def result(self, timeout: float | None = None) -> R:
        """What the function returned; raises TaskFailed, TaskCancelled, or TimeoutError after `timeout`
        seconds.
        """
        return cast("R", self._app.client.outcome(self.id, timeout))

    async def aresult(self, timeout: float | None = None) -> R:
        """`result` for a running event loop."""
        client = await self._app.async_client()
        return cast("R", await client.outcome(self.id, timeout))

    def cancel(self) -> None:
        """Stops the task, or sees to it that it never starts; raises Conflict when it has finished
        already.
        """
        self._app.client.cancel(self.id)

    def change(self, **said: object) -> None:
        """Other bounds, also while it runs: `execution_cap`, `delay_tolerance`, `cap_grace`, `off_peak`; raises
        Conflict when it has finished already.
        """
        self._app.client.change(self.id, **said)

    def pause(self, release: bool = False) -> None:
        """Keeps the task from starting, or has it stand still where it runs, or with `release` write a checkpoint and
        leave its node; raises Conflict when it has finished.
        """
        self._app.client.pause(self.id, release)

    def resume(self) -> None:
        """Lets it take part again, or go on where it stands; raises Conflict when it has finished."""
        self._app.client.resume(self.id)

    def logs(self, attempt: int | None = None, follow: bool = False) -> Generator[bytes, None, None]:
        """The log of the last attempt, piece by piece; with `follow` until the task has ended."""
        return self._app.client.logs(self.id, attempt, follow)

    def artifacts(self, attempt: int | None = None) -> list[Artifact]:
        """The files that the last attempt left in $HEADWAY_ARTIFACTS."""
        return self._app.client.artifacts(self.id, attempt)

    def download(self, to: Path | str, path: str | None = None, attempt: int | None = None) -> None:
        """Writes what the last attempt left into a folder: one file, or all."""
        self._app.client.download(self.id, to, path, attempt)

    def __repr__(self) -> str:
        return f"<headway.Handle {self.id}>"

    def _repr_html_(self) -> str:
        try:
            record = self.record()
        except HeadwayError:
            return f"<code>{html.escape(self.id)}</code>"
        why = record.reason.message if record.reason else ""
        shown = f"{record.name}: <b>{html.escape(record.status)}</b> {html.escape(why)}".strip()
        return f"<code>{html.escape(self.id)}</code> {shown}"


class Handles(Sequence[Handle[R]]):
    """The tasks of a `map`, in the order of its items."""

    def __init__(self, app: App, ids: Sequence[str]) -> None:
        self._app = app
        self.ids = list(ids)

    def results(self, timeout: float | None = None) -> list[R]:
        """What the calls returned, in order; raises for the first that has no result, once all have ended."""
        return cast("list[R]", self._app.client.outcomes(self.ids, timeout))

    async def aresults(self, timeout: float | None = None) -> list[R]:
        """`results` for a running event loop."""
        client = await self._app.async_client()
        return cast("list[R]", await client.outcomes(self.ids, timeout))

    def records(self, timeout: float | None = None) -> list[TaskRecord]:
        """The finished tasks in order, whether they have a result or not."""
        final = self._app.client.all_finished(self.ids, timeout)
        return [final[task_id] for task_id in self.ids]

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Handle[R]]:
        return (Handle(self._app, task_id) for task_id in self.ids)

    @overload
    def __getitem__(self, index: int) -> Handle[R]: ...
    @overload
    def __getitem__(self, index: slice) -> Handles[R]: ...
    def __getitem__(self, index: int | slice) -> Handle[R] | Handles[R]:
        if isinstance(index, slice):
            return Handles(self._app, self.ids[index])
        return Handle(self._app, self.ids[index])

    def __repr__(self) -> str:
        return f"<headway.Handles of {len(self)} tasks>"


class BatchRefused(SubmissionError):
    """Some calls of a `map` were refused; `handles` are those the server took, also of this batch."""

    def __init__(self, message: str, app: App, ids: Sequence[str]) -> None:
        super().__init__(message)
        self.handles: Handles[object] = Handles(app, ids)
