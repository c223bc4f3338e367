"""Addresses that open one door for a while: one blob of one tenant, to be read or to be written, and nothing else.

A server signs, any server of the same database checks. An agent that holds such an address needs no key of the tenant
and none of the storage; what it may do with it ends by itself.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, NamedTuple
from urllib.parse import urlencode

GRANT_SECONDS = 300
"""How long an address may be begun to be used; what began goes on."""
PARAMETERS = ("tenant", "size", "until", "mac")

Method = Literal["GET", "PUT"]


class Grant(NamedTuple):
    """What an address allows."""

    method: Method
    tenant: int
    digest: str
    size: int
    """Of the blob; who writes it may not write more."""
    until: int
    """Unix seconds."""


class Signer:
    """Signs and checks with a secret that only servers know."""

    def __init__(self, secret: bytes) -> None:
        assert len(secret) >= 32
        self._secret = secret

    def path(self, grant: Grant) -> str:
        """The signed path and query of a grant."""
        said = {"tenant": grant.tenant, "size": grant.size, "until": grant.until, "mac": self._mac(grant)}
        return f"/v1/blobs/{grant.digest}?{urlencode(said)}"

    def checked(self, method: Method, digest: str, said: dict[str, str], *, now: float) -> Grant | None:
        """The grant that a request shows, if it was signed here and is still good."""
        try:
            grant = Grant(method, _whole(said["tenant"]), digest, _whole(said["size"]), _whole(said["until"]))
        except (KeyError, ValueError):
            return None
        is_ours = hmac.compare_digest(self._mac(grant).encode(), said.get("mac", "").encode())
        return grant if is_ours and now < grant.until else None

    def _mac(self, grant: Grant) -> str:
        text = "\n".join(("headway blob", *map(str, grant)))
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(text)
    return int(text)
