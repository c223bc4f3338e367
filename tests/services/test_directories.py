"""The directories of attempts: one that was left as it was found serves the next, whatever was done to the others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.agent.runners import directories as module
from headway.agent.runners.directories import Directories, artifacts_of

PATIENCE_SECONDS = 10.0


def leave_a_file(path: str) -> None:
    Path(path, "left").touch()


def leave_an_artifact(path: str) -> None:
    Path(artifacts_of(path), "left").touch()


def let_others_in(path: str) -> None:
    os.chmod(path, 0o777)


def replace(path: str) -> None:
    os.rename(path, f"{path}-old")
    os.mkdir(path, 0o700)


def leave_beside(path: str) -> None:
    Path(path).with_name("left").touch()


async def one_known_as_new(directories: Directories) -> str:
    """One that was given back untouched so long after it was made that nobody will have to look into it again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            path = directories.take()
            directories.give(path)
            assert directories.take() == path, "nothing was done to it"
            if directories.knows(path):
                return path
            directories.give(path)
            await asyncio.sleep(module.TICK_NS / 1e9 / 5)


@pytest.mark.parametrize("do", [leave_a_file, leave_an_artifact, let_others_in, replace, leave_beside])
async def test_what_was_changed_serves_nobody_again(tmp_path: Path, do: Callable[[str], None]) -> None:
    directories = Directories(tmp_path / "attempts")
    path = await one_known_as_new(directories)
    do(path)
    directories.give(path)
    assert directories.take() != path


async def test_what_was_written_and_taken_away_serves_again_after_a_look(tmp_path: Path) -> None:
    directories = Directories(tmp_path / "attempts")
    path = await one_known_as_new(directories)
    leave_a_file(path)
    Path(path, "left").unlink()
    assert not directories.knows(path)
    directories.give(path)
    assert directories.take() == path


async def test_nobody_is_spared_a_look_where_times_are_whole_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = Directories(tmp_path / "attempts")
    path = await one_known_as_new(directories)
    monkeypatch.setattr(module, "COARSE_NS", 1)  # every time is a multiple of it
    assert not directories.knows(path)
    directories.give(path)
    assert directories.take() == path
