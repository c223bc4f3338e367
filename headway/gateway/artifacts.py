"""What attempts left, listed and downloaded: one file, or all of them as an archive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headway.gateway.auth import Authenticator, Caller
from headway.gateway.blobs import HEADERS, download
from headway.gateway.decoding import whole
from headway.gateway.problems import Problem
from headway.gateway.views import TaskView
from headway.store.artifacts import ArtifactStore, Kept
from headway.store.blobs import Blob, BlobStore
from headway.wire import LeftOut, Manifest

LIST_MAX = 1000
_manifest = msgspec.json.Decoder(Manifest).decode


class ArtifactView(msgspec.Struct, frozen=True):
    """A file that an attempt left."""

    path: str
    size: int


class ArtifactsView(msgspec.Struct, frozen=True):
    """What an attempt left, part by part; and what of it was not taken, with the reason."""

    attempt: int
    files: int
    bytes: int
    items: list[ArtifactView]
    left_out: list[LeftOut]
    left_out_count: int
    next_cursor: str | None


class ArtifactsApi:
    """The endpoints about artifacts. `view` shows a task of the caller's, `task_id` reads one off a request."""

    def __init__(
        self,
        *,
        artifacts: ArtifactStore,
        blobs: BlobStore,
        authenticator: Authenticator,
        view: Callable[[Caller, int], Awaitable[TaskView]],
        task_id: Callable[[Request], int],
    ) -> None:
        self._artifacts = artifacts
        self._blobs = blobs
        self._authenticator = authenticator
        self._view = view
        self._task_id = task_id

    async def list(self, request: Request) -> Response:
        """The files an attempt left, by path."""
        _, attempt, kept = await self._kept(request)
        limit = whole(request, "limit", LIST_MAX, least=1, most=LIST_MAX)
        manifest = Manifest([]) if kept is None else _manifest(kept.manifest)
        after = request.query_params.get("cursor", "")
        behind = sorted((file for file in manifest.files if file.path > after), key=lambda file: file.path)
        shown = behind[:limit]
        answer = ArtifactsView(
            attempt=attempt,
            files=len(manifest.files),
            bytes=sum(file.size for file in manifest.files),
            items=[ArtifactView(file.path, file.size) for file in shown],
            left_out=manifest.left_out,
            left_out_count=manifest.left_out_count,
            next_cursor=shown[-1].path if len(behind) > limit else None,
        )
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def read(self, request: Request) -> Response:
        """One file that an attempt left."""
        caller, attempt, kept = await self._kept(request)
        path: str = request.path_params["path"]
        files = [] if kept is None else _manifest(kept.manifest).files
        found = next((file for file in files if file.path == path), None)
        if kept is None or found is None:
            raise Problem("not_found", f"attempt {attempt} left no file {path[:200]!r}; the list says what it left")
        name = quote(path.rsplit("/", 1)[-1])
        headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return await download(await self._blob(caller, kept), request, headers, found.at, found.size)

    async def archive(self, request: Request) -> Response:
        """All that an attempt left, as a tar archive."""
        caller, attempt, kept = await self._kept(request)
        if kept is None:
            raise Problem("not_found", f"attempt {attempt} left no files")
        return await download(await self._blob(caller, kept), request, {**HEADERS, "ETag": f'"{kept.digest}"'})

    async def _kept(self, request: Request) -> tuple[Caller, int, Kept | None]:
        caller = await self._authenticator.caller(request.headers.get("authorization"), role="client")
        asked = whole(request, "attempt", 0, least=0, most=32767)
        task = self._task_id(request)
        view = await self._view(caller, task)
        if asked > view.attempt:
            raise Problem("not_found", f"task {task} has no attempt {asked}; its last one is {view.attempt}")
        attempt = asked or view.attempt
        return caller, attempt, await self._artifacts.find(caller.tenant, task, attempt)

    async def _blob(self, caller: Caller, kept: Kept) -> Blob:
        blob = await self._blobs.find(caller.tenant, kept.digest)
        if blob is None:
            raise Problem("not_found", "what the attempt left is kept no more")
        return blob
