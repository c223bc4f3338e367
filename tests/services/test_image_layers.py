"""Layers are unpacked as they say, and nothing in them reaches out of the root."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
from pathlib import Path

import pytest

from headway.agent.images.inside import Inside, LedAstray
from headway.agent.images.unpack import BadImage, Budget, apply_layer
from tests.services.image_making import (
    Entry,
    a_device,
    a_directory,
    a_file,
    a_hardlink,
    a_layer,
    a_link,
    digest,
)

MIB = 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root beside which something is that must never change."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    place = tmp_path / "root"
    place.mkdir()
    return place


def applied(root: Path, *layers: bytes, room: int = 100 * MIB) -> None:
    budget = Budget(room)
    for layer in layers:
        apply_layer(str(root), io.BytesIO(layer), budget, digest(layer))


def tree(root: Path) -> dict[str, str]:
    """Every path below, with the content of files and the targets of links."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = os.readlink(path) if path.is_symlink() else "/" if path.is_dir() else path.read_text()
    return found


def test_a_layer_changes_what_was_there(root: Path):
    lower = a_layer(a_directory("a"), a_file("a/kept", "1"), a_file("a/changed", "1"), a_file("gone", "1"))
    upper = a_layer(a_file("a/changed", "2"), a_file(".wh.gone"), a_link("a/link", "/a/kept"), a_file("new/deep", "3"))
    applied(root, lower, upper)
    assert tree(root) == {
        "a": "/", "a/kept": "1", "a/changed": "2", "a/link": "/a/kept", "new": "/", "new/deep": "3",
    }  # fmt: skip


@pytest.mark.parametrize("mark_first", [True, False])
def test_an_opaque_directory_hides_what_was_below_and_nothing_of_its_own(root: Path, mark_first: bool):
    lower = a_layer(a_file("d/old", "1"), a_file("d/sub/old", "1"))
    own = [a_file("d/sub/new", "2"), a_file("d/new", "2")]
    mark = a_file("d/.wh..wh..opq")
    applied(root, lower, a_layer(*([mark, *own] if mark_first else [*own, mark])))
    assert tree(root) == {"d": "/", "d/new": "2", "d/sub": "/", "d/sub/new": "2"}


def test_a_whiteout_takes_away_a_directory_with_all_in_it_and_leaves_its_own_layer_alone(root: Path):
    lower = a_layer(a_file("d/a/b/c", "1"), a_file("d/x", "1"))
    applied(root, lower, a_layer(a_file("d/x", "2"), a_file("d/.wh.x"), a_file("d/.wh.a"), a_file(".wh.never-was")))
    assert tree(root) == {"d": "/", "d/x": "2"}


def test_hardlinks_are_one_file_and_links_of_lower_layers_are_followed_inside(root: Path):
    lower = a_layer(a_directory("usr"), a_directory("usr/lib"), a_link("lib", "usr/lib"), a_link("abs", "/usr/lib"))
    applied(root, lower, a_layer(a_file("lib/one", "1"), a_hardlink("abs/two", "lib/one"), a_file("abs/three", "3")))
    assert tree(root / "usr") == {"lib": "/", "lib/one": "1", "lib/two": "1", "lib/three": "3"}
    assert (root / "usr/lib/one").stat().st_ino == (root / "usr/lib/two").stat().st_ino


def test_a_file_may_become_a_directory_and_the_other_way_round(root: Path):
    lower = a_layer(a_file("x", "1"), a_file("y/z", "1"), a_link("l", "/etc"))
    applied(root, lower, a_layer(a_directory("x"), a_file("x/in", "2"), a_file("y", "2"), a_directory("l")))
    assert tree(root) == {"x": "/", "x/in": "2", "y": "2", "l": "/"}


def test_nothing_comes_with_rights_and_all_of_it_can_be_read(root: Path):
    applied(
        root,
        a_layer(
            a_file("suid", mode=0o6755), a_file("closed", "x", mode=0o600), a_file("run", mode=0o700),
            a_directory("root", mode=0o700), a_device("null"), a_file("nothing", mode=0o000),
        ),
    )  # fmt: skip
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
    assert modes == {"suid": 0o755, "closed": 0o644, "run": 0o755, "root": 0o755, "nothing": 0o444}


ESCAPES: dict[str, list[Entry]] = {
    "a name that goes up": [a_file("../outside/secret", "broken")],
    "a name that goes up later": [a_file("a/../../outside/secret", "broken")],
    "an absolute name": [a_file("/outside/secret", "harmless: it is below the root")],
    "a link up, and a file through it": [a_link("up", "../outside"), a_file("up/secret", "broken")],
    "an absolute link, and a file through it": [a_link("up", "{outside}"), a_file("up/secret", "broken")],
    "a chain of links": [
        a_link("a", ".."), a_link("b", "a/.."), a_link("c", "b/outside"), a_file("c/secret", "broken")
    ],
    "a file through a link of that name": [a_link("secret", "{outside}/secret"), a_file("secret", "broken")],
    "a directory through a link, made open": [a_link("d", "{outside}"), a_directory("d/new")],
    "a hardlink to what is outside": [a_hardlink("mine", "../outside/secret"), a_file("mine", "broken")],
    "a hardlink to an absolute name": [a_hardlink("mine", "{outside}/secret"), a_file("mine", "broken")],
    "a hardlink through a link": [a_link("up", "{outside}"), a_hardlink("mine", "up/secret"), a_file("mine", "broken")],
    "a hardlink to a link, written through": [
        a_link("l", "{outside}/secret"), a_hardlink("mine", "l"), a_file("mine", "broken")
    ],
    "a hardlink to a link": [a_link("l", "{outside}/secret"), a_hardlink("mine", "l")],
    "a file called up": [a_file("..", "broken")],
    "a link called up": [a_link("d/..", "/")],
    "a whiteout through a link": [a_link("up", "{outside}"), a_file("up/.wh.secret")],
    "a whiteout of the directory above": [a_file(".wh..."), a_file("x/.wh...")],
    "a whiteout of nothing": [a_file(".wh.")],
    "an opaque mark through a link": [a_link("up", "{outside}"), a_file("up/.wh..wh..opq")],
    "a hardlink to a directory": [a_directory("d"), a_hardlink("mine", "d")],
    "a hardlink to the root": [a_hardlink("mine", "./")],
    "a loop of links": [a_link("a", "b"), a_link("b", "a"), a_file("a/x", "broken")],
    "a link to itself": [a_link("a", "a/a"), a_file("a/x", "broken")],
    "a file where a directory has to be": [a_file("f", "1"), a_file("f/x", "broken")],
    "a directory deeper than any": [a_directory("/".join("d" * 1500))],
    "a link of proc": [a_link("p", "/proc/self/root{outside}"), a_file("p/secret", "broken")],
}  # fmt: skip


@pytest.mark.parametrize("attack", ESCAPES)
def test_nothing_in_a_layer_reaches_out_of_the_root(root: Path, tmp_path: Path, attack: str):
    outside = tmp_path / "outside"
    entries: list[Entry] = []
    for entry, body in ESCAPES[attack]:
        sly = tarfile.TarInfo(entry.name)
        sly.type, sly.size, sly.linkname = entry.type, entry.size, entry.linkname.replace("{outside}", str(outside))
        entries.append((sly, body))
    before = _state(tmp_path)
    for layers in ([a_layer(*entries)], [a_layer(entry) for entry in entries]):  # in one layer, and one after the other
        for place in root.iterdir():
            with Inside(str(root)) as inside:
                inside.remove([place.name])
        try:
            applied(root, *layers)
        except BadImage as refused:
            assert str(refused)
        assert _state(tmp_path) == before


def _state(tmp_path: Path) -> dict[str, tuple[str, int, int]]:
    outside = tmp_path / "outside"
    paths = [tmp_path, outside, *outside.rglob("*")]
    return {
        str(path): (path.read_text() if path.is_file() else str(sorted(os.listdir(path))), path.stat().st_mode,
                    path.stat().st_nlink)
        for path in paths
    }  # fmt: skip


def test_a_name_is_read_inside_and_nowhere_else(root: Path, tmp_path: Path):
    (tmp_path / "passwd").write_text("outside")
    etc = root / "etc"
    etc.mkdir()
    (etc / "real").write_text("inside")
    (etc / "passwd").symlink_to("/etc/real")
    (etc / "up").symlink_to("../../../passwd")
    (etc / "out").symlink_to(str(tmp_path / "passwd"))
    (etc / "loop").symlink_to("loop")
    os.mkfifo(etc / "pipe")
    with Inside(str(root)) as inside:
        assert inside.read("/etc/passwd", 100) == b"inside"
        for name in ("etc/up", "etc/out", "etc/loop", "etc/pipe", "etc", "../passwd", "etc/none"):
            with pytest.raises(OSError, match=r"\w"):
                inside.read(name, 100)


def _pax_bomb() -> bytes:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    return header.tobuf(tarfile.USTAR_FORMAT | tarfile.GNU_FORMAT) + b"\0" * 1024


def _negative() -> bytes:
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" + struct.pack(">q", -512).rjust(11, b"\xff")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header[:512]):06o}\0 ".encode()
    return bytes(header) + b"\0" * 1024


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (gzip.compress(a_layer(a_file("zeros", b"\0" * (8 * MIB)))), "larger than this node allows"),
        (a_layer(*(a_file(f"f{n}") for n in range(50))), "larger than this node allows"),
        (gzip.compress(a_layer(a_file("a")))[:-20], "no tar archive"),
        (b"\x1f\x8bnonsense", "no tar archive"),
        (b"nonsense" * 100, "no tar archive"),
        (b"\x28\xb5\x2f\xfd....", "skopeo copy --dest-compress-format gzip"),
        (_pax_bomb(), "impossible size"),
        (_negative(), "impossible size"),
    ],
    ids=["gzip bomb", "inode bomb", "cut", "no gzip", "no tar", "zstd", "headers in memory", "negative size"],
)
def test_a_layer_that_is_none_or_too_large_is_refused_with_its_reason(root: Path, layer: bytes, says: str):
    budget = Budget(4 * MIB, 20)
    with pytest.raises(BadImage, match=says):
        apply_layer(str(root), io.BytesIO(layer), budget)


def test_what_was_changed_on_the_way_is_not_used(root: Path):
    layer = a_layer(a_file("a", "1"))
    for body in (layer + b"behind the end", gzip.compress(layer)):
        with pytest.raises(BadImage, match="not what the image's configuration says"):
            apply_layer(str(root), io.BytesIO(body), Budget(MIB), digest(a_layer(a_file("a", "2"))))
    apply_layer(str(root), io.BytesIO(gzip.compress(layer) + b"\0" * 100), Budget(MIB), digest(layer))


def test_a_tree_that_leads_nowhere_says_so(root: Path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with Inside(str(root)) as inside, pytest.raises(LedAstray, match="too many links"):
        inside.parent(["a", "x"])
