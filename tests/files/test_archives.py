"""Folders packed and unpacked again; and archives made to do harm, which do none."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import socket
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.files.packing import Changed, Packing, compressed
from headway.files.tree import LeftOut, Limits, Rules, survey
from headway.files.unpacking import EXTENSION_BYTES_MAX, Unsafe, unpack

LIMITS = Limits(10_000_000, 1000)


def packed(root: Path, **rules: object) -> bytes:
    found = survey(root, Rules(LIMITS, **rules))  # pyright: ignore[reportArgumentType]
    packing = Packing(root, found.entries)
    body = b"".join(packing.pieces())
    assert len(body) == packing.size
    return body


def shown(root: Path) -> dict[str, str]:
    """Everything below a folder: what it is and what it holds."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_dir():
            found[name] = "/"
        else:
            found[name] = f"{path.stat().st_mode & 0o7777:o} {path.read_bytes()[:40]!r}"
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    (root / "deep" / ("long" * 30) / ("longer" * 20)).mkdir(parents=True)
    (root / "main.sh").write_text("#!/bin/sh\necho hi\n")
    (root / "main.sh").chmod(0o4755)
    (root / "deep" / "größe").write_bytes(b"x" * 700)
    (root / "deep" / ("long" * 30) / ("longer" * 20) / "end").write_bytes(b"")
    (root / "to-main").symlink_to("main.sh")
    (root / "deep" / "up").symlink_to("../main.sh")
    (root / "empty").mkdir()
    return root


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("through", [lambda body: body, lambda body: b"".join(compressed([body]))])
def test_a_folder_is_the_same_after_packing_and_unpacking(folder: Path, out: Path, through: Callable[[bytes], bytes]):
    unpack([through(packed(folder))], out, LIMITS)
    (folder / "main.sh").chmod(0o755)  # setuid does not travel
    (folder / "deep" / "größe").chmod(0o644)
    assert shown(out) == shown(folder)


def test_an_archive_is_the_same_whenever_and_by_whomever_it_is_made(folder: Path):
    first = packed(folder)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (folder / "deep" / "größe").chmod(0o600)
    assert packed(folder) == first
    assert b"".join(compressed([first])) == b"".join(compressed([first[:1000], first[1000:]]))


def test_other_programs_read_what_is_packed_and_the_other_way_round(folder: Path, out: Path, tmp_path: Path):
    (tmp_path / "ours.tar").write_bytes(packed(folder))
    with tarfile.open(tmp_path / "ours.tar") as archive:
        assert {name for name in archive.getnames() if "/" not in name} == {"main.sh", "deep", "to-main", "empty"}
    subprocess.run(["tar", "-C", str(folder), "-czf", str(tmp_path / "gnu.tgz"), "."], check=True)
    unpack([(tmp_path / "gnu.tgz").read_bytes()], out, LIMITS)
    assert set(shown(out)) == set(shown(folder))


def test_the_bytes_of_a_file_are_where_the_packing_says(folder: Path):
    found = survey(folder, Rules(LIMITS))
    packing = Packing(folder, found.entries)
    body = b"".join(packing.pieces())
    for entry, at in packing.offsets():
        assert body[at : at + entry.size] == (folder / entry.path).read_bytes()


def test_a_file_that_changes_while_it_is_packed_ends_the_packing(folder: Path):
    packing = Packing(folder, survey(folder, Rules(LIMITS)).entries)
    (folder / "deep" / "größe").write_bytes(b"short")
    with pytest.raises(Changed, match="shorter"):
        list(packing.pieces())
    packing = Packing(folder, survey(folder, Rules(LIMITS)).entries)
    (folder / "main.sh").unlink()
    (folder / "main.sh").symlink_to("/etc/shadow")
    with pytest.raises(Changed, match=r"main\.sh"):
        list(packing.pieces())


# ── what a task may leave in a folder ─────────────────────────────────────────────────────────────────────────────────


def test_what_leads_out_or_is_no_file_is_left_out_and_said(tmp_path: Path):
    root = tmp_path / "left"
    root.mkdir()
    (root / "good").write_text("good")
    (root / "passwd").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../../outside")
    (root / "bent").symlink_to("good/../../outside")
    os.mkfifo(root / "pipe")
    a_special(root / "special")
    (tmp_path / "theirs").write_text("theirs")
    os.link(tmp_path / "theirs", root / "hard")
    (root / os.fsdecode(b"bad\xffname")).write_text("x")
    found = survey(root, Rules(LIMITS, links=True, owner=12345))
    names = {entry.path for entry in found.entries}
    assert names == {"good"}
    why = {one.path: one.why for one in found.left_out}
    assert "leads out" in why["passwd"] and "leads out" in why["up"] and "leads out" in why["bent"]
    assert "hard link" in why["hard"] and "neither" in why["pipe"] and "neither" in why["special"]
    assert any("UTF-8" in reason for reason in why.values())


def a_special(path: Path) -> None:
    """A device for root; for whoever may make none, a socket."""
    if os.geteuid() == 0:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        return
    with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(path.parent):  # its path may be no longer than 107
        one.bind(path.name)


def test_a_directory_that_is_exchanged_for_a_link_is_not_followed(tmp_path: Path):
    root, secret = tmp_path / "left", tmp_path / "secret"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_text("mine")
    secret.mkdir()
    (secret / "file").write_text("yours")
    packing = Packing(root, survey(root, Rules(LIMITS)).entries)
    (root / "sub").rename(tmp_path / "aside")
    (root / "sub").symlink_to(secret)
    with pytest.raises(Changed):
        list(packing.pieces())


def test_limits_of_size_and_number_leave_out_the_rest(tmp_path: Path):
    for name in "abcde":
        (tmp_path / name).write_bytes(b"x" * 10)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    found = survey(tmp_path, Rules(Limits(25, 100)))
    assert [entry.path for entry in found.entries] == ["a", "b"]
    assert LeftOut("sparse", "with it, there would be more than 25 bytes") in found.left_out
    assert [entry.path for entry in survey(tmp_path, Rules(Limits(10**6, 3))).entries] == ["a", "b", "c"]


def test_a_folder_may_be_deep_and_is_not_followed_for_ever(tmp_path: Path):
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    found = survey(tmp_path, Rules(LIMITS))
    assert len(found.entries) == 64
    assert "deeper" in found.left_out[0].why


# ── archives made to do harm ──────────────────────────────────────────────────────────────────────────────────────────


def an_archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, body in members:
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def a_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


EVIL = {
    "an absolute path": [(a_member("/tmp/evil"), b"x")],
    "a path up": [(a_member("../evil"), b"x")],
    "a path up from below": [(a_member("a/../../evil"), b"x")],
    "a link out": [(a_member("l", tarfile.SYMTYPE, "/etc"), b"")],
    "a link up": [(a_member("a/l", tarfile.SYMTYPE, "../../x"), b"")],
    "a bent link": [(a_member("l", tarfile.SYMTYPE, "a/../../x"), b"")],
    "an empty link": [(a_member("l", tarfile.SYMTYPE, ""), b"")],
    "a hard link": [(a_member("l", tarfile.LNKTYPE, "/etc/passwd"), b"")],
    "a device": [(a_member("null", tarfile.CHRTYPE), b"")],
    "a block device": [(a_member("sda", tarfile.BLKTYPE), b"")],
    "a pipe": [(a_member("p", tarfile.FIFOTYPE), b"")],
    "the same file twice": [(a_member("f"), b"1"), (a_member("f"), b"2")],
    "a file where a link is": [(a_member("l", tarfile.SYMTYPE, "x"), b""), (a_member("l"), b"x")],
    "a file through a link": [(a_member("l", tarfile.SYMTYPE, "."), b""), (a_member("l/f"), b"x")],
    "a file below a file": [(a_member("f"), b"x"), (a_member("f/g"), b"x")],
    "a path too deep": [(a_member("d/" * 70 + "f"), b"x")],
    "a path too long": [(a_member("d" * 1100), b"x")],
    "a name of nothing": [(a_member("."), b"x")],
}


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_an_archive_cannot_reach_out_of_its_folder(evil: str, form: int, out: Path, tmp_path: Path):
    before = {path for path in tmp_path.rglob("*") if out not in path.parents}
    with pytest.raises(Unsafe):
        unpack([an_archive(*EVIL[evil], form=form)], out, LIMITS)
    assert {path for path in tmp_path.rglob("*") if out not in path.parents} == before
    assert not Path("/tmp/evil").exists()


def test_setuid_does_not_survive_unpacking(out: Path):
    unpack([an_archive((a_member("su", mode=0o6755), b"x"), (a_member("f", mode=0o2777), b"x"))], out, LIMITS)
    assert {path.name: path.stat().st_mode & 0o7777 for path in out.iterdir()} == {"su": 0o755, "f": 0o755}


def test_a_link_that_is_there_already_is_not_written_through(out: Path, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (out / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(Unsafe):
        unpack([an_archive((a_member("sub/f"), b"x"))], out, LIMITS)
    assert not list((tmp_path / "outside").iterdir())


def test_a_bomb_ends_at_the_limit(out: Path):
    def zeros():
        whole = an_archive((a_member("big"), bytes(20_000_000)))
        yield gzip.compress(whole, 9)

    with pytest.raises(Unsafe, match="more than 10000000 bytes"):
        unpack(zeros(), out, LIMITS)
    many = an_archive(*[(a_member(f"f{n}"), b"") for n in range(21)])
    with pytest.raises(Unsafe, match="more than 20 files"):
        unpack([many], out, Limits(100, 20))


def test_a_header_that_claims_a_huge_name_is_not_believed(out: Path):
    info = a_member("x", b"x")
    info.size = 2**33
    with pytest.raises(Unsafe, match="too long"):
        unpack([info.tobuf(tarfile.GNU_FORMAT), bytes(100_000)], out, LIMITS)
    assert EXTENSION_BYTES_MAX < 2**33


@pytest.mark.parametrize(
    "body",
    [b"", b"x" * 100, b"\x1f\x8b" + b"garbage" * 20, os.urandom(4096), gzip.compress(bytes(100))[:-4]],
    ids=["nothing", "too short", "no gzip", "noise", "half a gzip"],
)
def test_what_is_no_archive_is_refused(body: bytes, out: Path):
    with pytest.raises(Unsafe):
        unpack([body], out, LIMITS)


def test_an_archive_cut_off_anywhere_is_refused(folder: Path, out: Path):
    whole = packed(folder)
    for cut in range(0, len(whole) - 1024, 512):
        target = out / str(cut)
        target.mkdir()
        with pytest.raises(Unsafe):
            unpack([whole[:cut]], target, LIMITS)


def test_what_is_unpacked_belongs_to_whom_it_should(folder: Path, out: Path):
    """Root gives it to anybody; everybody else keeps it, and is not told that the archive is bad."""
    another, mine = (12345, 23456), (os.geteuid(), os.getegid())
    owner = another if os.geteuid() == 0 else mine
    unpack([packed(folder)], out, LIMITS, owner=owner)
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in out.rglob("*")} == {owner}
    if os.geteuid() != 0:
        (out / "again").mkdir()
        with pytest.raises(PermissionError):
            unpack([packed(folder)], out / "again", LIMITS, owner=another)


def test_a_folder_that_nothing_can_be_written_to_is_not_the_archives_fault(folder: Path):
    """Nobody makes anything in /sys, neither does root."""
    with pytest.raises(OSError, match=r"Errno (1|13|30)\b"):
        unpack([packed(folder)], "/sys", LIMITS)
