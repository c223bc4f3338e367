"""Text that everybody who keeps it can keep: PostgreSQL takes no NUL, msgpack and JSON no half of a surrogate pair."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

TEXT_CHARS_MAX = 4000


def plain(text: str) -> str:
    """The text, bounded, with what cannot be kept written out."""
    kept = text[:TEXT_CHARS_MAX]
    return kept.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def not_a_number(value: object) -> str:
    """The first float in a result that JSON has no word for: the encoder makes `null` of it without a sound."""
    inner: Iterable[object]
    match value:
        case float():
            return "" if math.isfinite(value) else str(value)
        case dict():
            inner = cast("dict[object, object]", value).values()
        case list() | tuple() | set() | frozenset():
            inner = cast("Iterable[object]", value)
        case _:
            return ""
    return next((lost for item in inner if (lost := not_a_number(item))), "")
