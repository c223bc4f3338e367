"""A log as a stretch of bytes with gaps: where its pieces are, and what stands where some are missing.

Every byte that an attempt writes has a place, counted from 0, whether it is kept or not. So a reader who was cut off
goes on at a place, and what was dropped is what lies between two pieces.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_BYTES = 8 * 1024 * 1024
"""What is kept of an output from its beginning."""
LAST_BYTES = 64 * 1024
"""And from its end, at least."""
ROLLING_BYTES = 1024 * 1024
"""Behind the first bytes, only so much of what came last is kept by the server."""
CHUNK_BYTES = 64 * 1024


class Piece(NamedTuple):
    """What a reader gets next: bytes at a place, or as many as are missing before them."""

    at: int
    body: bytes
    missing: int = 0


def behind(place: int, at: int, body: bytes) -> Piece | None:
    """What a chunk has for a reader who is at a place; None when that is nothing new."""
    if at + len(body) <= place:
        return None
    if at <= place:
        return Piece(place, body[place - at :])
    return Piece(at, body, missing=at - place)


def said_of(missing: int) -> bytes:
    """The line that stands for what is missing."""
    return f"\n[headway: {missing} bytes of output dropped here]\n".encode()
