"""Folders that travel with a task, and what tasks leave, on the side of whoever submits and downloads."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from headway.files.ignoring import IGNORE_FILE, ignoring
from headway.files.packing import Changed, Packing, compressed
from headway.files.tree import Limits, Rules, survey
from headway.files.unpacking import Unsafe, unpack
from headway.sdk.errors import HeadwayError, SubmissionError

if TYPE_CHECKING:
    from collections.abc import Generator

BUNDLE_BYTES_MAX = 2 * 1024**3
BUNDLE_FILES_MAX = 100_000
DOWNLOAD_BYTES_MAX = 64 * 1024**3
SHOWN_MAX = 5


class Bundle(NamedTuple):
    """A folder packed into a file."""

    file: Path
    digest: str
    size: int
    files: int


@contextmanager
def bundled(folder: Path | str) -> Generator[Bundle]:
    """Packs a folder, less what its .headwayignore names; raises SubmissionError when something in it cannot travel."""
    root = Path(folder)
    try:
        rules = Rules(Limits(BUNDLE_BYTES_MAX, BUNDLE_FILES_MAX), ignored=ignoring(root))
        found = survey(root, rules)
    except (OSError, UnicodeError) as fault:
        raise SubmissionError(f"the folder {root} cannot be bundled: {fault}") from None
    if found.left_out:
        named = "\n".join(f"  {one.path}: {one.why}" for one in found.left_out[:SHOWN_MAX])
        more = f"\n  and {found.left_out_count - SHOWN_MAX} more" if found.left_out_count > SHOWN_MAX else ""
        raise SubmissionError(
            f"something in {root} cannot travel:\n{named}{more}\nRemove it, or name it in {root / IGNORE_FILE}."
        )
    with tempfile.NamedTemporaryFile(prefix="headway-bundle-") as file:
        try:
            digest = _written(compressed(Packing(root, found.entries).pieces()), file)
        except Changed as fault:
            raise SubmissionError(f"{root} changed while it was bundled: {fault}; try again") from None
        yield Bundle(Path(file.name), digest, file.tell(), len(found.entries))


def _written(pieces: Iterable[bytes], file: IO[bytes]) -> str:
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
        file.write(piece)
    file.flush()
    return "sha256:" + sha.hexdigest()


def unpacked(pieces: Iterable[bytes], to: Path | str) -> None:
    """Unpacks what a task left into a folder, which is made when it is not there."""
    try:
        Path(to).mkdir(parents=True, exist_ok=True)
        unpack(pieces, to, Limits(DOWNLOAD_BYTES_MAX, BUNDLE_FILES_MAX))
    except Unsafe as fault:
        raise HeadwayError(f"what the task left cannot be unpacked into {to}: {fault}") from None
    except OSError as fault:
        raise HeadwayError(f"cannot write to {to}: {fault.strerror or fault}") from None


def saved(pieces: Iterable[bytes], to: Path | str, path: str) -> Path:
    """Writes one file that a task left to its path below a folder."""
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps or not steps:
        raise HeadwayError(f"{path!r} is no path of an artifact")
    target = Path(to).joinpath(*steps)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(part, target)
    except OSError as fault:
        raise HeadwayError(f"cannot write {target}: {fault.strerror or fault}") from None
    finally:
        part.unlink(missing_ok=True)
    return target
