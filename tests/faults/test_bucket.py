"""Files in a bucket: a real S3 API on a loopback port, and a whole `headway dev` that keeps its files there."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from bench import venvs
from bench.programs import until
from headway.sdk.client import Client
from headway.store.blobs import WrongContent
from headway.store.shelf import NotThere, open_shelf
from tests.end_to_end.dev import a_dev

MOTO = "moto[s3,server]==5.2.5"
BODY = os.urandom(20_000_001)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an S3 with a bucket `blobs`; the environment has its credentials."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [venvs.python([MOTO], print), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("the bucket is there", lambda: _listens(port), 30)
        httpx2.put(f"{url}/blobs").raise_for_status()
        said = {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1", "ENDPOINT_URL": url}
        for name, value in {**said, "ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield url
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 700_000):
        yield body[at : at + 700_000]


async def broken() -> AsyncIterator[bytes]:
    yield BODY[:9_000_000]
    raise WrongContent("no")


async def test_a_bucket_is_a_shelf(bucket: str):
    shelf = open_shelf("s3://blobs/pre/fix")
    await shelf.write("1/1/ab/x", in_pieces(BODY))
    assert b"".join([piece async for piece in shelf.read("1/1/ab/x", 0, len(BODY))]) == BODY
    assert b"".join([piece async for piece in shelf.read("1/1/ab/x", 5, 10_000_000)]) == BODY[5:10_000_000]
    with pytest.raises(WrongContent):
        await shelf.write("1/1/ab/y", broken())
    await shelf.remove("1/1/ab/x")
    await shelf.remove("1/1/ab/x")
    for place in ("1/1/ab/x", "1/1/ab/y"):
        with pytest.raises(NotThere):
            _ = [piece async for piece in shelf.read(place, 0, 1)]
    assert b"<Upload>" not in httpx2.get(f"{bucket}/blobs?uploads").content  # nothing half done is left


def test_bundles_and_artifacts_go_through_a_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWAY_BLOBS", "s3://blobs/headway")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "data").write_bytes(BODY[:300_000])
    (tmp_path / "dev").mkdir()
    with a_dev(tmp_path / "dev") as dev, Client(dev.url, dev.key) as client:
        line = 'cp data "$HEADWAY_ARTIFACTS"; env | grep -c AWS_'
        task = dev.run(command=["/bin/sh", "-c", line], bundle=client.bundle(tmp_path / "folder"))
        client.download(str(task["id"]), tmp_path / "out")
        assert dev.log(str(task["id"])) == "0\n"
    assert (tmp_path / "out" / "data").read_bytes() == BODY[:300_000]
    assert not (dev.data / "blobs").exists()
