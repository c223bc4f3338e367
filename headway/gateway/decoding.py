"""Bodies into values: bounded while they are read, and refused with a reason when they are not what they should be.

JSON's blind spots are closed here: a key said twice, NUL characters and lone surrogates are refused, because the
database, the runner and the next reader would each understand something else by them.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import NoReturn, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from headway.core.refusal import Refused
from headway.gateway.problems import Problem, misfit, refused

SINGLE_BYTES_MAX = 1024 * 1024
LINGER_SECONDS = 1.0
LINGER_BYTES = 8 * 1024 * 1024
T = TypeVar("T")

_TOO_DEEP = "the JSON is nested too deeply"
_PAIR = rb"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = rb"u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"\\" + _PAIR + rb"|(\\" + _LONE + rb")|\\.", re.DOTALL)
_any = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


async def read_body(request: Request, most: int) -> bytes:
    """The whole body, given up as soon as it is longer than `most` bytes."""
    parts: list[bytes] = []
    size = 0
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        await refuse_body(request, most)
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                await refuse_body(request, most)
            parts.append(part)
    except ClientDisconnect:
        raise Problem("malformed_json", "the connection ended before the body did") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def refuse_body(request: Request, most: int) -> NoReturn:
    """Refuses a body that is too long, after hearing a little more of it: whoever hangs up on a client that is still
    sending takes the answer away with the connection."""
    heard = 0
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(LINGER_SECONDS):
            async for part in request.stream():
                heard += len(part)
                if heard > LINGER_BYTES:
                    break
    raise Problem("too_large", f"the body must not exceed {most} bytes; send fewer items a call or shorter ones")


def expect_media_type(request: Request, *served: str) -> str:
    """The body's content type, if it is one of those served."""
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said not in served:
        named = f"it is {said!r}" if said else "none was named"
        raise Problem("unsupported_media_type", f"expected Content-Type {' or '.join(served)}; {named}")
    return said


def whole(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number of the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise refused([Refused(name, f"expected a whole number from {least} to {most}")])
    return int(text)


def refuse_unknown(request: Request, known: frozenset[str], *, many: frozenset[str] = frozenset()) -> None:
    """Refuses what the query says beyond what is known, what it says twice unless it may be `many`, and NULs."""
    said = request.query_params
    if unknown := [name for name in said if name not in known]:
        there_are = ", ".join(sorted(known)) or "none"
        raise refused([Refused(name, f"there is no such parameter; there are: {there_are}") for name in unknown])
    if twice := [name for name in said if name not in many and len(said.getlist(name)) > 1]:
        raise refused([Refused(name, "say it once") for name in twice])
    if any("\0" in value for _, value in said.multi_items()):
        raise refused([Refused("", "must not contain a NUL character")])


def decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The value in a JSON text, or the Problem that says what is wrong with it."""
    try:
        value = decoder.decode(raw)
        check_text(raw)
        return value
    except msgspec.ValidationError as fault:
        raise_if_no_json(raw)
        raise refused([misfit(fault)]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Problem("malformed_json", _plainly(fault, raw)) from None
    except RecursionError:
        raise Problem("malformed_json", _TOO_DEEP) from None


def raise_if_no_json(raw: bytes) -> None:
    """A text may break a type rule before the place where it stops being JSON: the second is the thing to say."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except msgspec.DecodeError as fault:
        raise Problem("malformed_json", _plainly(fault, raw)) from None
    except RecursionError:
        pass  # it may be JSON, as far as one can look into it


def _plainly(fault: Exception, raw: bytes) -> str:
    if isinstance(fault, UnicodeDecodeError):
        return _no_utf8(raw)
    escapes = _ESCAPE.finditer(raw, 0, SINGLE_BYTES_MAX)
    lone = next((escape for escape in escapes if escape[1]), None)
    if lone is not None:  # the decoder says that the input was truncated, or nothing at all
        return f"must not contain a lone surrogate: {lone[1].decode()} at byte {lone.start(1)}"
    return str(fault)


def _no_utf8(raw: bytes) -> str:
    """Where it stops being UTF-8; the decoder counts from the text it was in."""
    try:
        raw.decode()
    except UnicodeDecodeError as fault:
        return f"the body is not UTF-8: {fault.reason} at byte {fault.start}"
    return "the body is not UTF-8"


def check_text(raw: bytes) -> None:
    """Refuses keys said twice, NUL and lone surrogates. Raises the Problem.

    A key said twice is lost in decoding: then the text written anew has fewer colons. Only escapes can hide a colon, a
    NUL or a surrogate, so a text with a backslash-u is looked at closely; all others cost one decode and encode in C.
    """
    if b"\\u" not in raw and raw.count(b":") == _encode(_any.decode(raw)).count(b":"):
        return
    try:
        _check_characters(json.loads(raw, object_pairs_hook=_no_key_twice), "")
    except RecursionError:
        raise Problem("malformed_json", _TOO_DEEP) from None


class _Twice:
    """Stands where an object was that says a key twice."""

    def __init__(self, key: str) -> None:
        self.key = key


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object] | _Twice:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    return _Twice(next(key for key, _ in pairs if key in seen or seen.add(key)))


def _check_characters(value: object, path: str) -> None:
    match value:
        case str():
            if "\0" in value:
                raise refused([Refused(path, "must not contain a NUL character")])
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise refused([Refused(path, "must not contain a lone surrogate")])
        case _Twice():
            raise refused([Refused(f"{path}.{value.key}" if path else value.key, "the key is said twice")])
        case list():
            for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                _check_characters(item, f"{path}[{index}]")  # pyright: ignore[reportUnknownArgumentType]
        case dict():
            for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
                inner = f"{path}.{key}" if path else str(key)  # pyright: ignore[reportUnknownArgumentType]
                _check_characters(key, inner)  # pyright: ignore[reportUnknownArgumentType]
                _check_characters(item, inner)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            pass
