"""Which files stay behind, in the language of .gitignore."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.files.ignoring import IGNORE_FILE, ignoring


@pytest.mark.parametrize(
    ("lines", "path", "is_directory", "stays"),
    [
        ("", "main.py", False, False),
        ("", ".git", True, True),
        ("", "deep/__pycache__", True, True),
        ("", "x.pyc", False, True),
        ("", IGNORE_FILE, False, True),
        ("!*.pyc", "x.pyc", False, False),
        ("*.log", "a/b/c.log", False, True),
        ("*.log", "a/b/c.logs", False, False),
        ("/top", "top", False, True),
        ("/top", "a/top", False, False),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, False),
        ("data/", "data", True, True),
        ("data/", "data", False, False),
        ("**/end", "a/b/end", False, True),
        ("a/**", "a/b/c", False, True),
        ("a/**/z", "a/z", False, True),
        ("?.txt", "a.txt", False, True),
        ("?.txt", "ab.txt", False, False),
        ("[ab].txt", "b.txt", False, True),
        ("[!ab].txt", "b.txt", False, False),
        ("# comment", "# comment", False, False),
        ("\\#file", "#file", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("a+b(c)", "a+b(c)", False, True),
        ("a.c", "abc", False, False),
    ],
)
def test_a_path_stays_behind(tmp_path: Path, lines: str, path: str, is_directory: bool, stays: bool):
    (tmp_path / IGNORE_FILE).write_text(lines)
    assert ignoring(tmp_path)(path, is_directory) is stays
