"""Who is asking: `Authorization: Bearer hw_<id>_<secret>`, checked in constant time against a stored digest.

Secrets are 256 random bits, so a fast hash is enough; a slow one would only burn the gateway's CPU.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path

import msgspec
import structlog

from headway.gateway.problems import Problem
from headway.store.cluster import ApiKey, ClusterStore

CACHE_SECONDS = 30.0
CACHE_MAX = 10_000
_KEY_CHARS_MAX = 128
MAY_ACT_AS = {"client": ("client",), "admin": ("client", "admin"), "node": ("node",)}
"""A key's role, and what may be done with it: an administrator's key also acts for its own tenant."""
_log = structlog.get_logger("headway.gateway")


class Caller(msgspec.Struct, frozen=True):
    """Who a request acts as."""

    tenant: int
    role: str
    submitted_by: str


class BootstrapKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a first start: made by whoever starts the server, kept in a file only the owner reads."""

    client: str
    node: str


def digest_of(secret: str) -> bytes:
    """What is stored of a secret."""
    return blake2b(secret.encode(), digest_size=32, person=b"headway key").digest()


def split_key(text: str) -> tuple[str, str] | None:
    """A key's public id and its secret."""
    if len(text) > _KEY_CHARS_MAX or not text.isascii():
        return None
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if prefix == "hw" and key_id and secret else None


def new_key() -> tuple[str, str]:
    """A key's public id, and the secret of 256 bits behind it."""
    return base64.b32encode(secrets.token_bytes(5)).decode().lower(), secrets.token_urlsafe(32)


async def keep_bootstrap_keys(cluster: ClusterStore, file: Path, *, tenant: int) -> None:
    """Makes the keys of a bootstrap file valid. The client's is an administrator's: the others come from it."""
    keys = msgspec.json.decode(file.read_bytes(), type=BootstrapKeys)
    for name, role, text in (("client", "admin", keys.client), ("node", "node", keys.node)):
        parts = split_key(text)
        if parts is None:
            raise ValueError(f"{file}: the {name} key is not of the form hw_<id>_<secret>")
        if not await cluster.keep_key(ApiKey(parts[0], tenant, role, digest_of(parts[1]))):
            why = "it was revoked and stays so; put new keys into the file (headway dev makes them when there is none)"
            _log.warning("bootstrap_key_not_valid", file=str(file), key=parts[0], why=why)


class Authenticator:
    """Knows callers by their keys; asks the database once in a while and remembers."""

    def __init__(self, cluster: ClusterStore) -> None:
        self._cluster = cluster
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()
        self._revocations = 0

    async def caller(self, authorization: str | None, *, role: str) -> Caller:
        """Who the header stands for; raises the Problem when nobody, or not in that role."""
        known = self._known.get(authorization or "")
        if known is not None and known[0] > time.monotonic():
            caller = known[1]
        else:
            caller = await self._look_up(authorization)
        if role not in MAY_ACT_AS[caller.role]:
            raise Problem("forbidden", f"this takes a key of role {role}; the one sent is of role {caller.role}")
        return caller

    def forget(self, key_id: str) -> None:
        """A key was revoked: from now on it is not known here; elsewhere it is forgotten within CACHE_SECONDS."""
        self._revocations += 1
        revoked = f"key:{key_id}"
        for header in [header for header, (_, caller) in self._known.items() if caller.submitted_by == revoked]:
            del self._known[header]

    async def _look_up(self, authorization: str | None) -> Caller:
        scheme, _, text = (authorization or "").partition(" ")
        parts = split_key(text.strip()) if scheme.lower() == "bearer" else None
        if parts is None:
            raise Problem("unauthorized", "send a key as 'Authorization: Bearer hw_…'")
        revocations = self._revocations
        key = await self._cluster.key(parts[0])
        if key is None or not hmac.compare_digest(key.digest, digest_of(parts[1])):
            raise Problem("unauthorized", "the key is not known here")
        caller = Caller(key.tenant, key.role, f"key:{key.key_id}")
        if revocations == self._revocations:  # or it may be this one that was revoked while it was looked up
            self._remember(authorization or "", caller)
        return caller

    def _remember(self, header: str, caller: Caller) -> None:
        self._known[header] = (time.monotonic() + CACHE_SECONDS, caller)
        if len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
