"""Where the items of a JSON array begin and end, found without decoding them.

A decoder makes an object of every value before anyone can count them: three megabytes of `[1,1,1,…]` were gigabytes and
seconds. This only looks for brackets, in C between one and the next, and can stop after any item. It does not judge:
whether an item is JSON is for its decoder to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.gateway.problems import Problem

# Only single characters are repeated possessively: before CPython 3.11.5 a possessive group matches wrongly. The
# groups cannot be read in two ways, so giving back costs no more than taking did.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*"'
_FLAT = rb'(?:[^"\[\]{}]++|' + _STRING + rb")*"
_BETWEEN = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*", re.DOTALL)
_WITHIN = re.compile(
    rb'(?:[^"\[\]{}]++|' + _STRING + rb"|\[" + _FLAT + rb"\]|\{" + _FLAT + rb"\})*",
    re.DOTALL,
)
"""What is skipped at a step inside an item: all but strings cut off and brackets that hold further brackets."""
_BLANK = b" \t\r\n"


def item_bounds(raw: bytes, *, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Start and end of each item of an array, the blanks around it included; raises the Problem when it is none."""
    position, end = _opening(raw), len(raw)
    start, depth = position, 0
    while position < end:
        limit = start + bytes_max + 1
        match = (_WITHIN if depth else _BETWEEN).match(raw, position, limit)
        assert match is not None
        position = match.end()
        found = raw[position : position + 1]
        if position >= limit or (found == b'"' and limit < end):
            raise Problem("too_large", f"an item must not exceed {bytes_max} bytes; nothing was stored")
        if found in (b"[", b"{"):
            depth += 1
        elif found in (b"]", b"}") and depth:
            depth -= 1
        elif found == b",":
            yield start, position
            start = position + 1
        elif found == b"]" and not raw[position + 1 :].strip(_BLANK):
            if start > _opening(raw) or raw[start:position].strip(_BLANK):
                yield start, position
            return
        else:
            raise _malformed(position)
        position += 1
    raise _malformed(end)


def _opening(raw: bytes) -> int:
    """Where the first item may begin."""
    start = len(raw) - len(raw.lstrip(_BLANK))
    if raw[start : start + 1] != b"[":
        raise Problem("malformed_json", "expected a JSON array of tasks")
    return start + 1


def _malformed(position: int) -> Problem:
    return Problem("malformed_json", f"the array is no JSON, or is cut off, at byte {position}")
