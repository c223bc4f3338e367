"""Folders on the side of the client: bundled without silent gaps, and downloads that harm nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.files.tree import Limits
from headway.files.unpacking import unpack_file
from headway.sdk.bundles import bundled, saved, unpacked
from headway.sdk.errors import HeadwayError, SubmissionError


def test_a_folder_is_bundled_less_what_is_ignored(tmp_path: Path):
    folder, out = tmp_path / "folder", tmp_path / "out"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("secret")
    (folder / "main.sh").write_text("echo")
    (folder / "big.log").write_text("x")
    (folder / ".headwayignore").write_text("*.log\n")
    out.mkdir()
    with bundled(folder) as bundle:
        unpack_file(bundle.file, out, Limits(1000, 10))
        first = bundle.digest
    assert [path.name for path in out.iterdir()] == ["main.sh"]
    assert not bundle.file.exists()
    with bundled(folder) as again:
        assert again.digest == first


def test_what_cannot_travel_is_said_and_nothing_is_left_out_silently(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with (
        pytest.raises(SubmissionError, match=r"link: it is a link that leads out(.|\n)*pipe: it is neither") as caught,
        bundled(tmp_path),
    ):
        pass
    assert ".headwayignore" in str(caught.value)
    (tmp_path / ".headwayignore").write_text("pipe\nlink\n")
    with bundled(tmp_path) as bundle:
        assert bundle.files == 0


def test_a_file_is_saved_below_its_folder_and_nowhere_else(tmp_path: Path):
    assert saved([b"a", b"b"], tmp_path, "deep/file").read_bytes() == b"ab"
    for path in ("../x", "a/../../x", "", "."):
        with pytest.raises(HeadwayError):
            saved([b""], tmp_path / "to", path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]
    with pytest.raises(HeadwayError, match="cannot be unpacked"):
        unpacked([b"no archive"], tmp_path / "all")
