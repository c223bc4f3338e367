"""The images of a node: each unpacked once, lent to the attempts that run in it, and removed when room is needed.

The promise: a root is whole when anyone sees it, whatever was killed on the way; one that an attempt runs in is not
removed; what all of them take stays within a limit, the ones not used for longest go first; and a name is looked up
again after a while, so that `latest` is what it says.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from headway.agent.images.fetch import Registries, Unavailable
from headway.agent.images.furnish import Furnished, furnish
from headway.agent.images.layout import Files, Image, Run, images, opened
from headway.agent.images.unpack import ENTRIES_MAX, BadImage, Budget, apply_layer
from headway.core.images import DEFAULT_REGISTRY, DEFAULT_TAG, Reference, reference
from headway.core.refusal import Refused

CACHE_BYTES = 20 * 1024 * 1024 * 1024
ENTRY_BYTES = 4096
"""What a file takes beside its content, about."""
FRESH_SECONDS = 600.0
"""For how long a tag is taken to mean what it meant."""
NOTE = "image.json"

T = TypeVar("T")

_log = structlog.get_logger("headway.agent.images")


class Note(msgspec.Struct):
    """What is kept beside an unpacked root."""

    id: str
    digest: str
    run: Run
    size: int
    furnished: Furnished


@dataclass(slots=True)
class Root:
    """An unpacked image. `path` is its root directory."""

    note: Note
    place: Path
    used_at: float

    @property
    def path(self) -> Path:
        return self.place / "root"


@dataclass(slots=True)
class _Known:
    id: str
    source: str
    """The digest that the registry gave for the name."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """Where images come from, and how much of the disk they may take."""

    directories: tuple[Path, ...] = ()
    """Of the operator: OCI layouts and tars of images."""
    registries: Registries = field(default_factory=Registries)
    cache_bytes: int = CACHE_BYTES


class Images:
    """Gets and keeps. `place` is ours alone."""

    def __init__(self, place: Path, settings: ImageSettings, clock: Callable[[], float]) -> None:
        self._place = place
        self._settings = settings
        self._clock = clock
        self._roots: dict[str, Root] = {}
        self._lent: Counter[str] = Counter()
        self._known: dict[str, _Known] = {}
        self._coming: dict[str, asyncio.Task[Root]] = {}
        # One at a time: unpacking is bound by the disk, and two of one image must not meet.
        self._unpacking = ThreadPoolExecutor(1, "images")
        for name in ("coming", "going"):
            shutil.rmtree(place / name, ignore_errors=True)
            (place / name).mkdir(mode=0o700, parents=True)
        place.chmod(0o711)
        self._read_roots()

    async def get(self, said: str) -> Root:
        """An image by its name, unpacked; it is lent to the caller until `give`. Raises BadImage and Unavailable."""
        wanted = reference(said)
        if isinstance(wanted, Refused):
            raise BadImage(wanted.message)
        name = str(wanted)
        coming = self._coming.get(name)
        if coming is None:
            coming = self._coming[name] = asyncio.create_task(self._found(wanted))
            coming.add_done_callback(lambda _: self._coming.pop(name, None))
        root = await asyncio.shield(coming)
        return self._lend(root)

    def at_hand(self, said: str) -> Root | None:
        """An image that is unpacked and was looked up lately, lent to the caller; None: ask `get`."""
        wanted = reference(said)
        known = None if isinstance(wanted, Refused) else self._known.get(str(wanted))
        if known is None or known.id not in self._roots or self._is_old(wanted, known):
            return None
        return self._lend(self._roots[known.id])

    def give(self, root: Root) -> None:
        """An attempt does not run in it any more."""
        self._lent[root.note.id] -= 1
        if self._lent[root.note.id] <= 0:
            del self._lent[root.note.id]

    async def close(self) -> None:
        """Ends what is under way."""
        for coming in list(self._coming.values()):
            coming.cancel()
        await asyncio.gather(*self._coming.values(), return_exceptions=True)
        self._unpacking.shutdown(wait=True, cancel_futures=True)

    def _lend(self, root: Root) -> Root:
        self._lent[root.note.id] += 1
        root.used_at = self._clock()
        os.utime(root.place)
        return root

    def _is_old(self, wanted: object, known: _Known) -> bool:
        pinned = isinstance(wanted, Reference) and wanted.digest is not None
        return not pinned and self._clock() - known.at > FRESH_SECONDS

    # ── finding ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _found(self, wanted: Reference) -> Root:
        """Here, in a directory of the operator's, or at its registry: in this order."""
        name = str(wanted)
        known = self._known.get(name)
        if known is not None and known.id in self._roots and not self._is_old(wanted, known):
            return self._roots[known.id]
        for root in self._roots.values():
            if wanted.digest is not None and wanted.digest in (root.note.digest, root.note.id):
                return self._knows(name, root, wanted.digest)
        local = await self._in_thread(lambda: self._local(wanted))
        if local is not None:
            return self._knows(name, self._enter(local), "")
        return await self._from_registry(wanted, known)

    async def _from_registry(self, wanted: Reference, known: _Known | None) -> Root:
        registries, name = self._settings.registries, str(wanted)
        refusal = registries.refusal(wanted)
        if refusal is not None:
            raise Unavailable(refusal, is_final=True)
        source = ""
        if registries.can_ask:
            try:
                source = await registries.digest(wanted)
            except Unavailable as why:
                if known is None or known.id not in self._roots or why.is_final:
                    raise
                _log.warning("the registry does not answer; what it said before is used", image=name, why=str(why))
                return self._knows(name, self._roots[known.id], known.source)
            for other in self._known.values():
                if other.source == source and other.id in self._roots:
                    return self._knows(name, self._roots[other.id], source)
        coming = self._place / "coming" / secrets.token_hex(8)
        coming.mkdir(mode=0o700)
        try:
            await registries.fetch(wanted, coming / "layout", self._settings.cache_bytes)
            root = await self._in_thread(lambda: self._unpacked_of(coming / "layout"))
        finally:
            await self._in_thread(lambda: shutil.rmtree(coming, ignore_errors=True))
        return self._knows(name, self._enter(root), source)

    def _knows(self, name: str, root: Root, source: str) -> Root:
        self._known[name] = _Known(root.note.id, source, self._clock())
        return root

    def _local(self, wanted: Reference) -> Root | None:
        """In a directory of the operator's: by the names that images have there, else by the file's own."""
        for path in _candidates(self._settings.directories):
            try:
                with opened(path) as files:
                    found = _named(files, path, wanted)
                    if found is not None:
                        return self._unpacked(files, found)
            except BadImage as bad:
                if _is_called(path, wanted):
                    raise
                _log.warning("an image of this node cannot be read", path=str(path), why=str(bad))
        return None

    # ── unpacking, in a thread ──────────────────────────────────────────────────────────────────────────────────

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._unpacking, work)

    def _unpacked_of(self, layout: Path) -> Root:
        with opened(layout) as files:
            for _, read in images(files):
                return self._unpacked(files, read())
        raise BadImage("what came from the registry holds no image")

    def _unpacked(self, files: Files, image: Image) -> Root:
        """Unpacks an image whose like is not there. It is moved to its place when it is whole."""
        there = self._roots.get(image.id)
        if there is not None:
            return there
        coming = self._place / "coming" / secrets.token_hex(8)
        (coming / "root").mkdir(parents=True)
        try:
            budget = Budget(self._settings.cache_bytes)
            for name, diff_id in image.layers:
                with files.open(name) as layer:
                    apply_layer(str(coming / "root"), layer, budget, diff_id)
            taken = self._settings.cache_bytes - budget.bytes_left
            size = taken + (ENTRIES_MAX - budget.entries_left) * ENTRY_BYTES
            note = Note(image.id, image.digest, image.run, size, furnish(str(coming / "root"), image.run))
            (coming / NOTE).write_bytes(msgspec.json.encode(note))
            for passed in (coming / "root", coming):
                passed.chmod(0o711 if passed == coming else 0o755)
            place = self._place / image.id.removeprefix("sha256:")
            shutil.rmtree(place, ignore_errors=True)
            coming.rename(place)
        finally:
            shutil.rmtree(coming, ignore_errors=True)
        return Root(note, place, self._clock())

    # ── what is kept ────────────────────────────────────────────────────────────────────────────────────────────

    def _read_roots(self) -> None:
        """What an earlier start of the agent left, the one used last the youngest."""
        for place in self._place.iterdir():
            if place.name in ("coming", "going") or not place.is_dir():
                continue
            try:
                used_ago = time.time() - place.stat().st_mtime
                note = msgspec.json.decode((place / NOTE).read_bytes(), type=Note)
            except (OSError, msgspec.DecodeError):
                self._remove(place)
                continue
            self._roots[note.id] = Root(note, place, self._clock() - used_ago)
        self._evict()

    def _enter(self, root: Root) -> Root:
        """Keeps one; what was not used for longest makes room for it."""
        root = self._roots.setdefault(root.note.id, root)
        self._evict(but=root.note.id)
        return root

    def _evict(self, but: str = "") -> None:
        free = self._settings.cache_bytes - sum(root.note.size for root in self._roots.values())
        for root in sorted(self._roots.values(), key=lambda root: root.used_at):
            if free >= 0:
                return
            if self._lent[root.note.id] or root.note.id == but:
                continue
            del self._roots[root.note.id]
            free += root.note.size
            _log.info("an image made room for others", image=root.note.id, bytes=root.note.size)
            self._remove(root.place)

    def _remove(self, place: Path) -> None:
        """Out of the way at once, gone when there is time."""
        going = self._place / "going" / secrets.token_hex(8)
        place.rename(going)
        self._unpacking.submit(shutil.rmtree, going, True)


def _candidates(directories: Iterable[Path]) -> list[Path]:
    found = [path for directory in directories if directory.is_dir() for path in sorted(directory.iterdir())]
    return [path for path in found if path.suffix == ".tar" or (path / "index.json").is_file()]


def _named(files: Files, path: Path, wanted: Reference) -> Image | None:
    """The image of a layout that is called so: by a name in it, or, when it is the only one, by that of the file."""
    there = list(images(files))
    for names, read in there:
        if wanted.digest is None and any(_means(name, path, wanted) for name in names):
            return read()
    if str(wanted).endswith(f":{DEFAULT_TAG}") and len(there) == 1 and _is_called(path, wanted):
        return there[0][1]()
    if wanted.digest is not None:
        for _, read in there:
            image = read()
            if wanted.digest in (image.digest, image.id):
                return image
    return None


def _means(name: str, path: Path, wanted: Reference) -> bool:
    """Names in a layout are whole references or, of OCI layouts, mere tags of what the directory is called."""
    if name == wanted.tag and _is_called(path, wanted):
        return True
    found = reference(name)
    return isinstance(found, Reference) and str(found) == str(wanted) and ("/" in name or ":" in name)


def _is_called(path: Path, wanted: Reference) -> bool:
    stem = path.stem if path.suffix == ".tar" else path.name
    return wanted.registry == DEFAULT_REGISTRY and wanted.repository in (stem, f"library/{stem}")
