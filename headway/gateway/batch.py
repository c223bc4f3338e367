"""Bulk submission: a JSON array, or NDJSON read as it streams in. Good items land; each bad one says why.

Items are checked while the body still arrives, but nothing is stored before its end: a call that is refused as a whole
(too long, cut off, not JSON) has changed nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import ClientDisconnect, Request

from headway.core.refusal import Refused
from headway.core.task import Submission
from headway.gateway.admission import Admission
from headway.gateway.auth import Caller
from headway.gateway.decoding import check_text, decode, expect_media_type, read_body
from headway.gateway.problems import Problem, ProblemDocument, refused
from headway.gateway.submitting import Submitting
from headway.store.rows import NewTask

ITEMS_MAX = 10_000
BATCH_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024
PIECE_ITEMS = 1000


class BatchItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one item: its id, or the problem with it."""

    index: int
    id: str | None = None
    error: ProblemDocument | None = None


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of a batch."""

    accepted: int
    rejected: int
    items: list[BatchItem]


_Piece = list[Submission | Problem]
_one = msgspec.json.Decoder(Submission)
_many = msgspec.json.Decoder(list[Submission])
_raw_many = msgspec.json.Decoder(list[msgspec.Raw])


async def submit_batch(request: Request, caller: Caller, admission: Admission, submitting: Submitting) -> BatchAnswer:
    """Stores what is in order and answers for every item."""
    media = expect_media_type(request, "application/json", "application/x-ndjson")
    pieces = _array_pieces(request) if media == "application/json" else _line_pieces(request)
    items: list[BatchItem] = []
    rows: list[NewTask] = []
    async for piece in pieces:
        rows += await _admit_piece(caller, piece, admission, items)
    if rows:
        parts = [rows[low : low + PIECE_ITEMS] for low in range(0, len(rows), PIECE_ITEMS)]
        await asyncio.gather(*(submitting.submit(part) for part in parts))
    return BatchAnswer(len(rows), len(items) - len(rows), items)


async def _admit_piece(caller: Caller, piece: _Piece, admission: Admission, items: list[BatchItem]) -> list[NewTask]:
    """Rows for what is in order; notes what becomes of every item."""
    good = [said for said in piece if not isinstance(said, Problem)]
    verdicts = iter(await admission.admit(caller, good))
    rows: list[NewTask] = []
    for index, said in enumerate(piece, len(items)):
        verdict = said if isinstance(said, Problem) else next(verdicts)
        if isinstance(verdict, Problem):
            items.append(BatchItem(index, error=verdict.document()))
        elif isinstance(verdict, list):
            items.append(BatchItem(index, error=refused(verdict).document()))
        else:
            items.append(BatchItem(index, str(verdict.id)))
            rows.append(verdict)
    return rows


async def _array_pieces(request: Request) -> AsyncIterator[_Piece]:
    raw = await read_body(request, BATCH_BYTES_MAX)
    items = _decode_array(raw)
    if len(items) > ITEMS_MAX:
        raise _too_many()
    for low in range(0, len(items), PIECE_ITEMS):
        yield items[low : low + PIECE_ITEMS]


def _decode_array(raw: bytes) -> _Piece:
    """All items at once when all are in order, which is the rule; else one by one."""
    try:
        items = _many.decode(raw)
        check_text(raw)
        return list(items)
    except (Problem, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_decode_item(bytes(item)) for item in decode_raw_array(raw)]


def decode_raw_array(raw: bytes) -> list[msgspec.Raw]:
    """The items of an array, undecoded; raises the Problem when it is no JSON array."""
    try:
        return _raw_many.decode(raw)
    except msgspec.ValidationError:
        raise refused([Refused("", "expected a JSON array of tasks")]) from None
    except msgspec.DecodeError as fault:
        raise Problem("malformed_json", str(fault)) from None
    except RecursionError:
        raise Problem("malformed_json", "the JSON is nested too deeply") from None


def _decode_item(raw: bytes) -> Submission | Problem:
    try:
        return decode(raw, _one)
    except Problem as problem:
        return problem


async def _line_pieces(request: Request) -> AsyncIterator[_Piece]:
    piece: _Piece = []
    count = 0
    async for line in _lines(request):
        count += 1
        if count > ITEMS_MAX:
            raise _too_many()
        piece.append(_decode_item(line))
        if len(piece) == PIECE_ITEMS:
            yield piece
            piece = []
    if piece:
        yield piece


async def _lines(request: Request) -> AsyncIterator[bytes]:
    """The lines of the body that hold something, none longer than the bound."""
    rest = b""
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            *whole, rest = (rest + part).split(b"\n")
            if size > BATCH_BYTES_MAX or len(rest) > LINE_BYTES_MAX:
                raise Problem("too_large", f"a line must not exceed {LINE_BYTES_MAX} bytes, a body {BATCH_BYTES_MAX}")
            for line in whole:
                if line.strip():
                    yield line
    except ClientDisconnect:
        raise Problem("malformed_json", "the connection ended before the body did") from None
    if rest.strip():
        yield rest


def _too_many() -> Problem:
    return Problem(
        "too_many_items",
        f"a call takes at most {ITEMS_MAX} tasks; nothing was stored; send them in several calls",
    )
