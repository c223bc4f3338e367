"""Folders of anybody's are removed whatever they look like, and nothing outside of them."""

from __future__ import annotations

import os
from pathlib import Path

from headway.files.removing import NAME, remove


def test_however_deep_it_is(tmp_path: Path):
    """Deeper than Python recurses, and with paths longer than the kernel takes."""
    deepest = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("top", dir_fd=deepest)
    for name in ["top", *["directory"] * 3000]:
        below = os.open(name, os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = below
        os.mkdir("directory", dir_fd=deepest)
        os.close(os.open("file", os.O_CREAT, dir_fd=deepest))
    os.close(deepest)
    remove(tmp_path / "top")
    assert os.listdir(tmp_path) == []


def test_whatever_names_are_taken(tmp_path: Path):
    top = tmp_path / "top"
    for number in range(3):
        (top / "a" / f"b{number}" / "c").mkdir(parents=True)
        (top / f"{NAME}{number}" / "full").mkdir(parents=True)
    (top / f"{NAME}3").touch()
    (top / f"{NAME}4").mkdir()
    remove(top)
    assert os.listdir(tmp_path) == []


def test_nothing_is_followed_out_of_it(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    (top / "door").symlink_to(outside)
    (top / "deep" / "door").symlink_to(outside)
    os.mkfifo(top / "pipe")
    remove(top)
    assert os.listdir(tmp_path) == ["outside"] and os.listdir(outside) == ["kept"]
    (tmp_path / "door").symlink_to(outside)
    remove(tmp_path / "door")
    assert os.listdir(outside) == ["kept"]


def test_what_its_owner_shut_is_removed_and_what_is_not_there_is_no_matter(tmp_path: Path):
    (tmp_path / "top" / "shut" / "within").mkdir(parents=True)
    (tmp_path / "top" / "shut" / "within").chmod(0)
    (tmp_path / "top" / "shut").chmod(0o500)
    remove(tmp_path / "top")
    remove(tmp_path / "top")
    assert os.listdir(tmp_path) == []
