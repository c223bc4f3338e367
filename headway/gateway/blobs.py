"""Blobs over HTTP: uploaded by their digest, asked for, and downloaded, by a key of their tenant or a signed address.

What one tenant has says nothing to another: each has blobs of its own, also of the same content.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Literal, NamedTuple

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from headway.core.refusal import Refused
from headway.files.signing import PARAMETERS, Signer
from headway.gateway.auth import Authenticator
from headway.gateway.decoding import refuse_body, refuse_unknown
from headway.gateway.problems import Problem, refused
from headway.store.blobs import BLOB_BYTES_MAX, Blob, BlobStore, WrongContent
from headway.store.shelf import NoRoom, ShelfFault

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")
HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment", "Accept-Ranges": "bytes"}
_SIGNED = frozenset(PARAMETERS)
_UNSIGNED = frozenset[str]()
_log = structlog.get_logger("headway.gateway")


class Door(NamedTuple):
    """Whose blobs a request may touch, and how large one may be that it writes."""

    tenant: int
    most: int
    by_grant: bool


class BlobsApi:
    """The endpoints about blobs. `quota_of` says how many bytes a tenant may store."""

    def __init__(
        self,
        *,
        blobs: BlobStore,
        authenticator: Authenticator,
        signer: Callable[[], Signer],
        quota_of: Callable[[int], Awaitable[int]],
    ) -> None:
        self._blobs = blobs
        self._authenticator = authenticator
        self._signer = signer
        self._quota_of = quota_of

    async def put(self, request: Request) -> Response:
        """Keeps what the body holds, if it has the digest of the address."""
        digest = _digest(request)
        door = await self._door(request, digest, "PUT")
        size = _declared(request)
        if size is not None and size > door.most:
            await refuse_body(request, door.most)
        most = min(door.most, await self._room(door.tenant, size or 0))
        try:
            kept = await self._blobs.keep(door.tenant, digest, request.stream(), most=most)
        except WrongContent as fault:
            raise Problem("wrong_content", f"{fault}; nothing was kept") from None
        except NoRoom as fault:
            raise Problem("no_room", f"{fault}; the operator must make room, then send it again") from None
        except ShelfFault as fault:
            raise _away(fault) from None
        except ClientDisconnect:
            raise Problem("malformed_json", "the connection ended before the body did") from None
        body = msgspec.json.encode({"digest": digest, "size": kept})
        return Response(body, 201, media_type="application/json")

    async def get(self, request: Request) -> Response:
        """A blob, or the part of it that `Range` asks for; to `HEAD`, only whether it is here."""
        digest = _digest(request)
        door = await self._door(request, digest, "GET")
        headers = {**HEADERS, "ETag": f'"{digest}"'}
        if request.method == "HEAD":
            size = await self._blobs.touch(door.tenant, digest)
            if size is None:
                raise _none(digest)
            return Response(None, 200, {**headers, "Content-Length": str(size)}, "application/octet-stream")
        blob = await self._blobs.find(door.tenant, digest)
        if blob is None:
            raise _none(digest)
        return await download(blob, request, headers)

    async def _door(self, request: Request, digest: str, method: Literal["GET", "PUT"]) -> Door:
        """Whose blobs these are: by the address when it is signed, else by the key."""
        if "mac" not in request.query_params:
            refuse_unknown(request, _UNSIGNED)
            caller = await self._authenticator.caller(request.headers.get("authorization"), role="client")
            return Door(caller.tenant, BLOB_BYTES_MAX, by_grant=False)
        refuse_unknown(request, _SIGNED)
        grant = self._signer().checked(method, digest, dict(request.query_params), now=time.time())
        if grant is None:
            raise Problem("forbidden", "the address was not signed here for this, or is too old; ask for a new one")
        return Door(grant.tenant, grant.size, by_grant=True)

    async def _room(self, tenant: int, size: int) -> int:
        """How many bytes more the tenant may store; raises the Problem when that is less than it wants to."""
        quota, stored = await self._quota_of(tenant), await self._blobs.total(tenant)
        if stored + size > quota:
            said = f"{stored} bytes are stored, and {size} more would exceed the {quota} that the plan allows"
            raise Problem("over_quota", f"{said}; what no task needs goes after a day")
        return quota - stored


async def download(blob: Blob, request: Request, headers: dict[str, str], start: int = 0, size: int = -1) -> Response:
    """A blob, or the stretch of `size` bytes from `start` on of it, as far as the request's `Range` asks for it."""
    size = blob.size if size < 0 else size
    first, end = _range(request, size)
    try:
        await blob.check()
    except ShelfFault as fault:
        raise _away(fault) from None
    headers = {**headers, "Content-Length": str(end - first)}
    if (first, end) != (0, size):
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    status = 200 if (first, end) == (0, size) else 206
    body = _ending_with_connection(blob.read(start + first, start + end))
    return StreamingResponse(body, status, headers, "application/octet-stream")


async def _ending_with_connection(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """When the shelf fails in the middle the answer stays shorter than it said: the client sees that."""
    try:
        async for piece in pieces:
            yield piece
    except ShelfFault as fault:
        _log.error("blob_not_read", why=str(fault))


def _range(request: Request, size: int) -> tuple[int, int]:
    """From where up to where; all of it when nothing, or nothing that is served, is asked for."""
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None:
        return 0, size
    first, last = int(match[1]), int(match[2]) if match[2] else size - 1
    if first >= size or last < first:
        raise Problem("bad_range", f"there are {size} bytes, from 0 on")
    return first, min(last + 1, size)


def _digest(request: Request) -> str:
    digest: str = request.path_params["digest"]
    if not DIGEST.fullmatch(digest):
        raise refused([Refused("digest", "expected sha256: and 64 hexadecimal digits in lower case")])
    return digest


def _declared(request: Request) -> int | None:
    said = request.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 20 else None


def _none(digest: str) -> Problem:
    return Problem("not_found", f"there is no blob {digest}; upload it with PUT")


def _away(fault: ShelfFault) -> Problem:
    _log.error("blob_shelf_failed", why=str(fault))
    return Problem("unavailable", f"the place where blobs are kept does not answer as it should: {fault}")
