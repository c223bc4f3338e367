"""Gets images from registries with skopeo or podman, where one is installed. Neither is given anything of ours.

The promise: only registries that the operator allowed are asked, for what a task names must not make the node knock
anywhere else; a fetch ends within its time and its size; and what it brings is a layout like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.core.images import Reference

REGISTRIES = ("docker.io", "ghcr.io", "quay.io", "registry.k8s.io", "public.ecr.aws", "mcr.microsoft.com")
FETCH_SECONDS = 600.0
ASK_SECONDS = 30.0
LOOK_SECONDS = 0.5
SAID_MAX = 300
_GONE = ("manifest unknown", "name unknown", "unauthorized", "denied", "not found")


class Unavailable(Exception):
    """It cannot be had now, or here. `is_final`: trying again would not help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Registries:
    """Which registries a node asks, and how."""

    allowed: Sequence[str] = REGISTRIES
    """Hosts; `http://host:port` for one without TLS."""
    auth_file: Path | None = None
    """Credentials as `skopeo login` writes them. They are the node's, and every tenant's images come by them."""
    tool: str | None = field(default_factory=lambda: shutil.which("skopeo") or shutil.which("podman"))

    def refusal(self, reference: Reference) -> str | None:
        """Why this image is not fetched; None when it may be."""
        if self.tool is None:
            return "neither skopeo nor podman is installed on the node, and it is in none of its image directories"
        if not self.allowed or not {reference.registry, f"http://{reference.registry}"} & set(self.allowed):
            hosts = ", ".join(self.allowed) or "none"
            return f"the node does not ask {reference.registry}; it asks {hosts}: `headway agent --registry HOST`"
        return None

    async def digest(self, reference: Reference) -> str:
        """The digest that the name stands for now."""
        body = await self._run(
            ["inspect", "--raw", *self._how("--tls-verify", reference), _there(reference)], ASK_SECONDS
        )
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    @property
    def can_ask(self) -> bool:
        """Whether the digest of a name can be had without the image."""
        return self.tool is not None and self.tool.endswith("skopeo")

    async def fetch(self, reference: Reference, into: Path, bytes_max: int) -> None:
        """Brings an image as an OCI layout. Raises Unavailable."""
        if self.can_ask:
            words = [
                "copy",
                "--quiet",
                *self._how("--src-tls-verify", reference),
                _there(reference),
                f"oci:{into}:image",
            ]
            await self._run(words, FETCH_SECONDS, into, bytes_max)
            return
        pull = ["pull", "--quiet", *self._how("--tls-verify", reference), str(reference)]
        await self._run(pull, FETCH_SECONDS, home=into.parent)
        try:
            words = ["save", "--quiet", "--format", "oci-dir", "--output", str(into), str(reference)]
            await self._run(words, FETCH_SECONDS, into, bytes_max)
        finally:
            with contextlib.suppress(Unavailable):
                await self._run(["image", "rm", str(reference)], ASK_SECONDS, home=into.parent)

    def _how(self, tls: str, reference: Reference) -> list[str]:
        plain = f"http://{reference.registry}" in self.allowed
        words = [f"{tls}=false"] if plain else []
        return words + (["--authfile", str(self.auth_file)] if self.auth_file is not None else [])

    async def _run(
        self, words: list[str], seconds: float, into: Path | None = None, bytes_max: int | None = None, *,
        home: Path | None = None,
    ) -> bytes:  # fmt: skip
        assert self.tool is not None
        first = ["--insecure-policy"] if self.can_ask else []
        place = home or (into.parent if into is not None else None)
        environ = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": str(place or "/"), "TMPDIR": str(place or "/tmp"),
        }  # fmt: skip
        if self.can_ask:  # else it looks into /run/containers/UID: a login of ours, or closed to an ordinary user
            environ["XDG_RUNTIME_DIR"] = environ["HOME"]
        environ |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        process = await asyncio.create_subprocess_exec(
            self.tool, *first, *words, env=environ, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        watching = asyncio.create_task(_watch(process.pid, into, bytes_max))
        try:
            async with asyncio.timeout(seconds):
                said, complained = await process.communicate()
        except TimeoutError:
            raise Unavailable(f"it did not come within {seconds:g} s") from None
        finally:
            watching.cancel()
            if process.returncode is None:
                _kill(process.pid)
            await process.wait()
        if process.returncode:
            text = complained.decode(errors="replace").strip()[-SAID_MAX:]
            final = any(word in text.lower() for word in _GONE)
            raise Unavailable(f"{Path(self.tool).name} says: {text or f'exit {process.returncode}'}", is_final=final)
        return said


async def _watch(pid: int, into: Path | None, bytes_max: int | None) -> None:
    """Ends a fetch that brings too much."""
    while into is not None and bytes_max is not None:
        await asyncio.sleep(LOOK_SECONDS)
        if await asyncio.to_thread(_size, into) > bytes_max:
            _kill(pid)
            return


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _there(reference: Reference) -> str:
    return f"docker://{reference}"
