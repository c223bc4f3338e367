"""Text that everybody who keeps it can keep: PostgreSQL takes no NUL, msgpack and JSON no half of a surrogate pair."""

from __future__ import annotations

TEXT_CHARS_MAX = 4000


def plain(text: str) -> str:
    """The text, bounded, with what cannot be kept written out."""
    kept = text[:TEXT_CHARS_MAX]
    return kept.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
