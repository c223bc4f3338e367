"""How an image is named: `[registry/]repository[:tag][@sha256:…]`, as everywhere.

`busybox` is `docker.io/library/busybox:latest`, so that two ways to say one image are one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.core.refusal import Refused

IMAGE_CHARS_MAX = 512
DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:localhost|{_LABEL}(?:\.{_LABEL})+)(?::[0-9]{{1,5}})?|{_LABEL}:[0-9]{{1,5}}"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = rf"{_PART}(?:/{_PART})*"
_TAG, _DIGEST = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"sha256:[0-9a-f]{64}"
PATTERN = rf"^(?:(?:{_HOST})/)?{_REPOSITORY}(?::{_TAG})?(?:@{_DIGEST})?$"
"""As others may check it before they send it."""
_IMAGE = re.compile(
    rf"(?:(?P<registry>{_HOST})/)?(?P<repository>{_REPOSITORY})(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's name, whole."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    def __str__(self) -> str:
        ending = f"@{self.digest}" if self.digest is not None else f":{self.tag}"
        return f"{self.registry}/{self.repository}{ending}"


def reference(said: str, path: str = "image") -> Reference | Refused:
    """What a name means, or why it is none."""
    found = _IMAGE.fullmatch(said) if len(said) <= IMAGE_CHARS_MAX else None
    if found is None:
        return Refused(path, "expected an image's name, such as busybox:1.36, ghcr.io/you/app or name@sha256:…")
    registry, repository = found["registry"] or DEFAULT_REGISTRY, found["repository"]
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, found["tag"] or DEFAULT_TAG, found["digest"])
