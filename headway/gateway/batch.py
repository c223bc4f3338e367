"""Bulk submission: a JSON array, or NDJSON read as it streams in. Good items land; each bad one says why.

Items are checked while the body still arrives, but nothing is stored before its end: a call that is refused as a whole
(too long, cut off, not JSON) has changed nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
from starlette.requests import ClientDisconnect, Request

from headway.core.task import Submission
from headway.gateway.admission import Admission
from headway.gateway.arrays import item_bounds
from headway.gateway.auth import Caller
from headway.gateway.decoding import check_text, decode, expect_media_type, raise_if_no_json, read_body
from headway.gateway.lateness import Warning
from headway.gateway.problems import Problem, ProblemDocument, refused
from headway.gateway.submitting import Submitting
from headway.store.rows import NewTask

ITEMS_MAX = 10_000
BATCH_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024
PIECE_ITEMS = 1000
CHEAP_BYTES = 4 * 1024 * 1024
CHEAP_VALUES = 200_000
PIECE_BYTES = 1024 * 1024
"""What is worked through before others get a turn."""


class BatchItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one item: its id, or the problem with it."""

    index: int
    id: str | None = None
    error: ProblemDocument | None = None
    warnings: list[Warning] = []


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of a batch."""

    accepted: int
    rejected: int
    items: list[BatchItem]


_Piece = list[Submission | Problem]
_one = msgspec.json.Decoder(Submission)
_many = msgspec.json.Decoder(list[Submission])
_array = msgspec.json.Decoder(list[object])


async def submit_batch(request: Request, caller: Caller, admission: Admission, submitting: Submitting) -> BatchAnswer:
    """Stores what is in order and answers for every item."""
    media = expect_media_type(request, "application/json", "application/x-ndjson")
    pieces = _array_pieces(request) if media == "application/json" else _line_pieces(request)
    items: list[BatchItem] = []
    rows: list[NewTask] = []
    async for piece in pieces:
        rows += await _admit_piece(caller, piece, admission, items)
        await asyncio.sleep(0)  # others get a turn
    if rows:
        parts = [rows[low : low + PIECE_ITEMS] for low in range(0, len(rows), PIECE_ITEMS)]
        await asyncio.gather(*(submitting.submit(part) for part in parts))
    return BatchAnswer(len(rows), len(items) - len(rows), items)


async def _admit_piece(caller: Caller, piece: _Piece, admission: Admission, items: list[BatchItem]) -> list[NewTask]:
    """Rows for what is in order; notes what becomes of every item."""
    good = [said for said in piece if not isinstance(said, Problem)]
    verdicts = iter(await admission.admit(caller, good))
    rows: list[NewTask] = []
    first = len(items)
    for index, said in enumerate(piece, first):
        verdict = said if isinstance(said, Problem) else next(verdicts)
        if isinstance(verdict, Problem):
            items.append(BatchItem(index, error=verdict.document()))
        elif isinstance(verdict, list):
            items.append(BatchItem(index, error=refused(verdict).document()))
        else:
            items.append(BatchItem(index, str(verdict.id)))
            rows.append(verdict)
    if rows and (warnings := await admission.warnings(rows)):
        _warn(items, first, rows, warnings)
    return rows


def _warn(items: list[BatchItem], first: int, rows: list[NewTask], warnings: dict[int, Warning]) -> None:
    """Adds to what was accepted of a piece what its client should know."""
    accepted = [number for number in range(first, len(items)) if items[number].id is not None]
    for number, row in zip(accepted, rows, strict=True):
        warning = warnings.get(id(row.template))
        if warning is not None:
            items[number] = msgspec.structs.replace(items[number], warnings=[warning])


async def _array_pieces(request: Request) -> AsyncIterator[_Piece]:
    """The items of an array, as many at a time as cost a few milliseconds. None is decoded before they are counted."""
    raw = await read_body(request, BATCH_BYTES_MAX)
    items = _decode_all(raw) if _is_cheap(raw) else None
    if items is not None:
        if len(items) > ITEMS_MAX:
            raise _too_many()
        for low in range(0, len(items), PIECE_ITEMS):
            yield [*items[low : low + PIECE_ITEMS]]
        return
    expect_array(raw)
    bounds: list[tuple[int, int]] = []
    begun = 0
    for start, end in item_bounds(raw, bytes_max=LINE_BYTES_MAX):
        bounds.append((start, end))
        if len(bounds) > ITEMS_MAX:
            raise _too_many()
        if end - begun > PIECE_BYTES:
            begun = end
            await asyncio.sleep(0)
    for piece in _pieces(bounds):
        some = _decode_all(b"[" + raw[piece[0][0] : piece[-1][1]] + b"]")
        assert some is None or len(some) == len(piece)
        yield [_decode_array_item(raw[start:end]) for start, end in piece] if some is None else [*some]


def _pieces(bounds: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    piece: list[tuple[int, int]] = []
    for start, end in bounds:
        if piece and (len(piece) == PIECE_ITEMS or end - piece[0][0] > PIECE_BYTES):
            yield piece
            piece = []
        piece.append((start, end))
    if piece:
        yield piece


def expect_array(raw: bytes) -> None:
    """Refuses what is JSON and no array, for what it is."""
    if raw.lstrip(b" \t\r\n")[:1] != b"[":
        decode(raw, _array)


def _is_cheap(raw: bytes) -> bool:
    """Whether it cannot hold so many values that to decode it would be felt. Usual batches are, and 4 µs an item to
    look for its end can be saved."""
    return len(raw) <= CHEAP_BYTES and sum(raw.count(sign) for sign in (b",", b"[", b"{")) <= CHEAP_VALUES


def _decode_all(raw: bytes) -> list[Submission] | None:
    """All items at once when all are in order, which is the rule."""
    try:
        items = _many.decode(raw)
        check_text(raw)
    except (Problem, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return items


def _decode_array_item(raw: bytes) -> Submission | Problem:
    """An item, or the problem with it. One that is no JSON spoils the array, for then that is none either; but not one
    that is only nested too deeply."""
    said = _decode_item(raw)
    if isinstance(said, Problem) and said.code == "malformed_json":
        raise_if_no_json(raw)
    return said


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
            if size > BATCH_BYTES_MAX or any(len(line) > LINE_BYTES_MAX for line in (*whole, rest)):
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
