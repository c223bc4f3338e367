"""Images of a node: found by name, unpacked once, kept while there is room, fetched only from where it is allowed."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headway.agent.images.fetch import Registries, Unavailable
from headway.agent.images.store import FRESH_SECONDS, Images, ImageSettings, Root
from headway.agent.images.unpack import BadImage
from headway.core.images import Reference, reference
from tests.services.image_making import a_config, a_file, a_layer, a_layout, an_archive, digest, saved

MIB = 1024 * 1024


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


def some_images(tmp_path: Path, clock: Clock | None = None, **how: object) -> Images:
    settings = ImageSettings(
        **{"directories": (tmp_path / "shelf",), "registries": Registries(allowed=(), tool=None), **how}  # pyright: ignore[reportArgumentType]
    )
    return Images(tmp_path / "images", settings, clock or Clock())


def said(root: Root) -> str:
    return (root.path / "who").read_text()


def layer(who: str, size: int = 0) -> bytes:
    return a_layer(a_file("who", who), a_file("ballast", b"\0" * size))


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("you/app:1.2", "docker.io/you/app:1.2"),
        ("ghcr.io/you/app", "ghcr.io/you/app:latest"),
        ("localhost:5000/a/b:x", "localhost:5000/a/b:x"),
        ("localhost/a", "localhost/a:latest"),
        ("a@sha256:" + "0" * 64, "docker.io/library/a@sha256:" + "0" * 64),
        ("a:1@sha256:" + "0" * 64, "docker.io/library/a@sha256:" + "0" * 64),
    ],
)
def test_two_ways_to_name_an_image_are_one_name(name: str, means: str):
    assert str(reference(name)) == means


@pytest.mark.parametrize(
    "name",
    ["", "A", "a b", "-a", "a:", "a@sha256:12", "a@md5:" + "0" * 64, "../a", "/a", "a//b", "oci:/etc", "docker://a",
     "--help", "a\n", "a:" + "t" * 129, "http://a/b", "dir:/root", "a" * 600],
)  # fmt: skip
def test_what_is_no_name_of_an_image_is_refused(name: str):
    assert not isinstance(reference(name), Reference)


async def test_images_are_found_as_layouts_archives_and_saved_ones(tmp_path: Path, shelf: Path):
    a_layout(shelf / "one", layer("one"), name="1.0", run={"Env": ["A=1"]})
    a_layout(tmp_path / "two", layer("two"), name="ghcr.io/you/two:2", zipped=False)
    an_archive(shelf / "whatever.tar", tmp_path / "two")
    saved(shelf / "three.tar", layer("three"), tags=["you/three:3"])
    a_layout(shelf / "four", layer("four"))
    images = some_images(tmp_path)
    for name, who in (("one:1.0", "one"), ("ghcr.io/you/two:2", "two"), ("you/three:3", "three"), ("four", "four")):
        assert said(await images.get(name)) == who
    assert (await images.get("one:1.0")).note.run.env == ["A=1"]
    for name in ("one:2.0", "ghcr.io/me/two:2", "four:1"):
        with pytest.raises(Unavailable, match="neither skopeo nor podman") as none:
            await images.get(name)
        assert none.value.is_final
    await images.close()


async def test_an_image_named_by_its_digest_is_that_and_no_other(tmp_path: Path, shelf: Path):
    right = a_layout(shelf / "one", layer("one"))
    a_layout(shelf / "other", layer("other"))
    images = some_images(tmp_path)
    assert said(await images.get(f"anything@{right}")) == "one"
    with pytest.raises(Unavailable):
        await images.get("one@sha256:" + "0" * 64)
    await images.close()


async def test_an_image_is_unpacked_once_however_many_ask_and_under_whichever_name(tmp_path: Path, shelf: Path):
    a_layout(shelf / "one", layer("one"))
    saved(shelf / "same.tar", layer("one"))
    images = some_images(tmp_path)
    roots = await asyncio.gather(*(images.get(name) for name in ("one", "one", "same", "one")))
    assert len({(root.path / "who").stat().st_ino for root in roots}) == 1
    assert images.at_hand("one") is not None and images.at_hand("two") is None
    await images.close()
    again = some_images(tmp_path)
    (shelf / "one" / "blobs").rename(shelf / "blobs")  # its layers are not needed again
    with pytest.raises(BadImage, match="missing"):
        await again.get("one")
    assert said(await again.get("same")) == "one"
    await again.close()


async def test_the_images_not_used_for_longest_go_but_none_that_is_in_use(tmp_path: Path, shelf: Path):
    for who in "abcd":
        a_layout(shelf / who, layer(who, 3 * MIB))
    images = some_images(tmp_path, cache_bytes=7 * MIB)
    first, second = await images.get("a"), await images.get("b")
    images.give(second)
    assert images.at_hand("b") is not None  # used again, and lent
    images.give(first)
    third = await images.get("c")
    assert not first.path.exists() and second.path.exists() and third.path.exists()
    with_four = await images.get("d")  # both others are in use: what is in use stays, the limit gives way
    assert all(root.path.exists() for root in (second, third, with_four))
    images.give(second)
    again = await images.get("a")
    assert again.path.exists() and not second.path.exists()
    await images.close()
    await some_images(tmp_path).close()
    assert not list((tmp_path / "images" / "going").iterdir()), (
        "what there was no time to remove goes at the next start"
    )


async def test_what_was_killed_on_the_way_is_never_taken_for_an_image(tmp_path: Path, shelf: Path):
    a_layout(shelf / "one", layer("one"))
    images = some_images(tmp_path)
    root = await images.get("one")
    await images.close()
    (tmp_path / "images" / "coming" / "half" / "root").mkdir(parents=True)
    (root.place / "image.json").write_text("{")  # the disk was full
    again = some_images(tmp_path)
    assert not list((tmp_path / "images" / "coming").iterdir())
    assert again.at_hand("one") is None
    assert said(await again.get("one")) == "one"
    await again.close()


def _broken(shelf: Path, what: str) -> None:
    place = shelf / "one"
    made = a_layout(place, layer("one"), zipped=False)
    blobs = place / "blobs" / "sha256"
    match what:
        case "layer":
            (blobs / digest(layer("one"))[7:]).write_bytes(layer("two"))
        case "manifest":
            (blobs / made[7:]).write_text("{}")
        case "architecture":
            shutil.rmtree(place)
            config = json.loads(a_config([layer("one")], {}))
            saved(shelf / "one.tar", layer("one"))
            _replace(shelf / "one.tar", config | {"architecture": "m68k"})
        case "link":
            (blobs / made[7:]).unlink()
            (blobs / made[7:]).symlink_to("/etc/passwd")
        case "names":
            (place / "index.json").write_text('{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}')
        case _:
            (place / "index.json").write_text('{"manifests": 7}')


def _replace(tar: Path, config: object) -> None:
    body = json.dumps(config).encode()
    entry = json.dumps([{"Config": "c.json", "Layers": ["l"]}])
    tar.write_bytes(a_layer(a_file("c.json", body), a_file("l", layer("one")), a_file("manifest.json", entry)))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("layer", "not what the image's configuration says"),
        ("manifest", "not what its digest says"),
        ("architecture", "m68k"),
        ("link", "cannot be read"),
        ("names", "no SHA-256 digest"),
        ("index", "cannot be read"),
    ],
)
async def test_an_image_that_is_not_what_it_says_is_refused(tmp_path: Path, shelf: Path, what: str, says: str):
    _broken(shelf, what)
    images = some_images(tmp_path)
    with pytest.raises(BadImage, match=says):
        await images.get("one")
    await images.close()
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"coming", "going"}


class Registry:
    """A registry of one image, as far as pulling goes."""

    def __init__(self, layout: Path) -> None:
        self.layout = layout
        self.asked: list[str] = []
        self.is_ill = False

    @property
    def manifest(self) -> bytes:
        index = json.loads((self.layout / "index.json").read_text())
        return self.blob(index["manifests"][0]["digest"])

    def blob(self, name: str) -> bytes:
        return (self.layout / "blobs" / "sha256" / name.removeprefix("sha256:")).read_bytes()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        self.asked.append(path)
        if self.is_ill:
            return 500, "text/plain", b"ill"
        if path == "/v2/":
            return 200, "application/json", b"{}"
        if path.startswith("/v2/you/app/manifests/"):
            known = path.endswith(("/latest", digest(self.manifest)))
            return (200, "application/vnd.oci.image.manifest.v1+json", self.manifest) if known else (404, "", b"")
        if path.startswith("/v2/you/app/blobs/"):
            return 200, "application/octet-stream", self.blob(path.rpartition("/")[2])
        return 404, "application/json", b'{"errors": [{"code": "NAME_UNKNOWN"}]}'


@contextmanager
def serving(registry: Registry) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = registry.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_image_comes_from_a_registry_that_is_allowed_and_only_once(tmp_path: Path):
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is not installed")
    a_layout(tmp_path / "v1", layer("one"), run={"Cmd": ["true"]})
    a_layout(tmp_path / "v2", layer("two"))
    registry, clock = Registry(tmp_path / "v1"), Clock()
    with serving(registry) as host:
        closed = some_images(tmp_path, registries=Registries(allowed=("docker.io",), tool=skopeo))
        with pytest.raises(Unavailable, match=f"does not ask {host}; it asks docker.io"):
            await closed.get(f"{host}/you/app")
        assert not registry.asked
        images = some_images(tmp_path, clock, registries=Registries(allowed=(f"http://{host}",), tool=skopeo))
        root = await images.get(f"{host}/you/app")
        assert said(root) == "one" and root.note.run.cmd == ["true"]
        asked = len(registry.asked)
        assert (await images.get(f"{host}/you/app")).path == root.path and len(registry.asked) == asked
        clock.now += FRESH_SECONDS
        registry.is_ill = True
        assert said(await images.get(f"{host}/you/app")) == "one", "what is here will do while the registry is ill"
        registry.is_ill, registry.layout = False, tmp_path / "v2"
        clock.now += FRESH_SECONDS
        assert said(await images.get(f"{host}/you/app")) == "two", "a tag means what it means now"
        with pytest.raises(Unavailable, match="skopeo says"):
            await images.get(f"{host}/you/none")
        await images.close()
    assert not list((tmp_path / "images" / "coming").iterdir())


async def test_a_registry_that_is_not_reached_is_asked_again_later(tmp_path: Path):
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is not installed")
    images = some_images(tmp_path, registries=Registries(allowed=("registry.invalid",), tool=skopeo))
    with pytest.raises(Unavailable, match="skopeo says") as away:
        await images.get("registry.invalid/you/app")
    assert not away.value.is_final
    await images.close()


@pytest.mark.parametrize("name", ["skopeo", "podman"])
async def test_what_fetches_is_given_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    tool = tmp_path / name
    tool.write_text(f"#!/bin/sh\nenv > {tmp_path}/given\nexit 1\n")
    tool.chmod(0o755)
    for variable in ("HOME", "XDG_RUNTIME_DIR", "REGISTRY_AUTH_FILE"):
        monkeypatch.setenv(variable, "/ours")
    images = some_images(tmp_path, registries=Registries(allowed=("registry.invalid",), tool=str(tool)))
    with pytest.raises(Unavailable):
        await images.get("registry.invalid/you/app")
    await images.close()
    given = dict(line.split("=", 1) for line in (tmp_path / "given").read_text().splitlines())
    assert "/ours" not in given.values()
    if name == "skopeo":
        assert given["XDG_RUNTIME_DIR"] == given["HOME"], "else it looks into what is ours under /run"
    else:
        assert Path(given["HOME"]).parent == tmp_path / "images" / "coming", (
            "an ordinary user's podman keeps its things there"
        )
