"""Who is asking: `Authorization: Bearer hw_<id>_<secret>`, checked in constant time against a stored digest.

Secrets are 256 random bits, so a fast hash is enough; a slow one would only burn the gateway's CPU.
"""

from __future__ import annotations

import hmac
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


async def keep_bootstrap_keys(cluster: ClusterStore, file: Path, *, tenant: int) -> None:
    """Makes the keys of a bootstrap file valid."""
    keys = msgspec.json.decode(file.read_bytes(), type=BootstrapKeys)
    for role, text in (("client", keys.client), ("node", keys.node)):
        parts = split_key(text)
        if parts is None:
            raise ValueError(f"{file}: the {role} key is not of the form hw_<id>_<secret>")
        await cluster.keep_key(ApiKey(parts[0], tenant, role, digest_of(parts[1])))


class Authenticator:
    """Knows callers by their keys; asks the database once in a while and remembers."""

    def __init__(self, cluster: ClusterStore) -> None:
        self._cluster = cluster
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    async def caller(self, authorization: str | None, *, role: str) -> Caller:
        """Who the header stands for; raises the Problem when nobody, or not in that role."""
        known = self._known.get(authorization or "")
        if known is not None and known[0] > time.monotonic():
            caller = known[1]
        else:
            caller = await self._look_up(authorization)
        if caller.role != role:
            raise Problem("forbidden", f"this takes a {role} key; the one sent is a {caller.role} key")
        return caller

    async def _look_up(self, authorization: str | None) -> Caller:
        scheme, _, text = (authorization or "").partition(" ")
        parts = split_key(text.strip()) if scheme.lower() == "bearer" else None
        if parts is None:
            raise Problem("unauthorized", "send a key as 'Authorization: Bearer hw_…'")
        key = await self._cluster.key(parts[0])
        if key is None or not hmac.compare_digest(key.digest, digest_of(parts[1])):
            raise Problem("unauthorized", "the key is not known here")
        caller = Caller(key.tenant, key.role, f"key:{key.key_id}")
        self._known[authorization or ""] = (time.monotonic() + CACHE_SECONDS, caller)
        if len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
        return caller
