"""A signed address opens what it was signed for, for as long as it says, and nothing else."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from headway.files.signing import Grant, Signer

SIGNER = Signer(b"s" * 32)
DIGEST = "sha256:" + "a" * 64
GRANT = Grant("GET", 7, DIGEST, 100, 1000)


def said(grant: Grant = GRANT) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(SIGNER.path(grant)).query).items()}


def test_an_address_opens_what_it_was_signed_for():
    assert SIGNER.path(GRANT).startswith(f"/v1/blobs/{DIGEST}?tenant=7&size=100&until=1000&mac=")
    assert SIGNER.checked("GET", DIGEST, said(), now=999.9) == GRANT


@pytest.mark.parametrize(
    ("method", "digest", "changed"),
    [
        ("PUT", DIGEST, {}),
        ("GET", "sha256:" + "b" * 64, {}),
        ("GET", DIGEST, {"tenant": "8"}),
        ("GET", DIGEST, {"size": "101"}),
        ("GET", DIGEST, {"until": "1001"}),
        ("GET", DIGEST, {"until": "1e9"}),
        ("GET", DIGEST, {"mac": "0" * 64}),
        ("GET", DIGEST, {"mac": "ä"}),
        ("GET", DIGEST, {"mac": ""}),
    ],
)
def test_an_altered_address_opens_nothing(method, digest: str, changed: dict[str, str]):
    assert SIGNER.checked(method, digest, said() | changed, now=0) is None


def test_an_address_ends_and_is_worth_nothing_elsewhere():
    assert SIGNER.checked("GET", DIGEST, said(), now=1000) is None
    assert Signer(b"t" * 32).checked("GET", DIGEST, said(), now=0) is None
    assert SIGNER.checked("GET", DIGEST, {}, now=0) is None
