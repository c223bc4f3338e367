"""Environments for peers: one each, made once and kept, with pinned versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.contest import Unmeasurable
from bench.programs import last_words

INSTALL_SECONDS = 600.0


def python(packages: Sequence[str], say: Callable[[str], None]) -> str:
    """The interpreter of an environment that has these packages."""
    version = "{}.{}".format(*sys.version_info)
    digest = hashlib.sha256("\n".join([version, *packages]).encode()).hexdigest()[:12]
    directory = _home() / f"{packages[0].partition('==')[0]}-{digest}"
    done = directory / ".complete"
    if not done.exists():
        say(f"installing {' '.join(packages)} …")
        shutil.rmtree(directory, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(directory)])
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--prefer-binary"]
        _run([str(directory / "bin" / "python"), "-m", "pip", "install", *options, *packages])
        done.touch()
    return str(directory / "bin" / "python")


def _home() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "headway-bench"


def _run(words: list[str]) -> None:
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unmeasurable(f"installing took longer than {INSTALL_SECONDS:g} s") from None
    if ended.returncode != 0:
        raise Unmeasurable(f"cannot be installed: {last_words(ended.stderr or ended.stdout)}")
