"""Errors as clients see them: RFC 9457 problem documents with a stable `code`."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from headway.core.refusal import Refused

TITLES: dict[str, tuple[int, str]] = {
    "malformed_http": (400, "The request is not HTTP"),
    "malformed_json": (400, "The body is not JSON"),
    "invalid": (422, "Something in the request is wrong"),
    "unauthorized": (401, "No valid key"),
    "forbidden": (403, "The key may not do this"),
    "not_found": (404, "There is no such thing"),
    "method_not_allowed": (405, "The resource does not do this"),
    "too_slow_to_ask": (408, "The request took too long to arrive"),
    "already_exists": (409, "There is one by that name already"),
    "already_finished": (409, "The task is over"),
    "too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "The body's content type is not served here"),
    "too_many_items": (413, "Too many items in one call"),
    "head_too_large": (431, "The head of the request is too large"),
    "bad_range": (416, "There are no such bytes"),
    "wrong_content": (422, "The body is not what its digest says"),
    "over_quota": (507, "The tenant may not store more"),
    "no_room": (507, "There is no room to store it"),
    "would_be_late": (429, "It could not start in time"),
    "unavailable": (503, "The service cannot answer now"),
    "too_slow": (503, "The answer would take too long"),
    "internal": (500, "Headway failed"),
}
"""Every code there is, with its HTTP status and title."""


_HEADERS = {
    "unauthorized": {"WWW-Authenticate": "Bearer"},
    "unavailable": {"Retry-After": "1"},
    "too_large": {"Connection": "close"},  # or the rest of the body would be read to no end
}


class Problem(Exception):
    """An answer that is not the one hoped for; raised in an endpoint, sent as a problem document."""

    def __init__(
        self, code: str, detail: str, errors: list[Refused] | None = None, *, retry_after: int | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = errors or []
        self.retry_after = retry_after
        """In how many seconds it may go better."""

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return TITLES[self.code][0]

    def document(self) -> ProblemDocument:
        """What is sent."""
        status, title = TITLES[self.code]
        return ProblemDocument(f"urn:headway:problem:{self.code}", title, status, self.code, self.detail, self.errors)

    def response(self) -> Response:
        """The HTTP answer."""
        headers = _HEADERS.get(self.code)
        if self.retry_after is not None:
            headers = {"Retry-After": str(self.retry_after)}
        body = msgspec.json.encode(self.document())
        return Response(body, self.status, headers, media_type="application/problem+json")


class ProblemDocument(msgspec.Struct, frozen=True):
    """A problem as JSON."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[Refused]


def refused(wrong: list[Refused]) -> Problem:
    """A request that was understood and is not in order."""
    first = wrong[0]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return Problem("invalid", f"{first.path}: {first.message}{more}" if first.path else first.message + more, wrong)


_AT = re.compile(r"(.*?) - at `(?:key in )?\$(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def misfit(fault: msgspec.ValidationError) -> Refused:
    """A decoder's complaint as a path and what was expected there."""
    text = str(fault)
    path = ""
    if match := _AT.fullmatch(text):
        text, path = match[1], match[2].lstrip(".")
    if match := _UNKNOWN.fullmatch(text):
        path = f"{path}.{match[1]}" if path else match[1]
        text = "there is no such field"
    elif match := _MISSING.fullmatch(text):
        path = f"{path}.{match[1]}" if path else match[1]
        text = "must be said"
    return Refused(path, text[:1].lower() + text[1:].replace("`", ""))
