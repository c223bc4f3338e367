"""Blobs: what they say they are, whole or not there, kept while something needs them and gone when nothing does."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.store.blobs import BlobStore, WrongContent, one_piece, slice_start
from headway.store.shelf import NoRoom, NotThere, Shelf, ShelfFault, open_shelf
from headway.store.shelf.directory import DirectoryShelf
from tests.store.shop import TENANT, Shop

LARGE = os.urandom(3_000_000)
MOST = 10**7


def digest_of(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


async def in_pieces(body: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def keep(blobs: BlobStore, body: bytes, tenant: int = TENANT) -> str:
    assert await blobs.keep(tenant, digest_of(body), in_pieces(body), most=MOST) == len(body)
    return digest_of(body)


async def read(blobs: BlobStore, digest: str, start: int = 0, end: int | None = None, tenant: int = TENANT) -> bytes:
    blob = await blobs.find(tenant, digest)
    assert blob is not None
    return b"".join([piece async for piece in blob.read(start, end)])


def files_on(shop: Shop, tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "shelf").rglob("*") if path.is_file())


# ── shelves ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["directory", "file://", "memory://"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    if request.param == "directory":
        return open_shelf(str(tmp_path / "shelf"))
    if request.param == "file://":
        (tmp_path / "bucket").mkdir()
        return open_shelf(f"file://{tmp_path}/bucket")
    return open_shelf("memory:///")


async def whole(shelf: Shelf, place: str, start: int, end: int) -> bytes:
    return b"".join([piece async for piece in shelf.read(place, start, end)])


@pytest.mark.parametrize("size", [0, 1, 70_000, 20_000_000])
async def test_a_shelf_gives_back_what_it_took(shelf: Shelf, size: int):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await shelf.write("1/2/ab/cd", in_pieces(body, 1_000_000))
    assert await whole(shelf, "1/2/ab/cd", 0, size) == body
    assert await whole(shelf, "1/2/ab/cd", size // 3, size // 2) == body[size // 3 : size // 2]
    await shelf.remove("1/2/ab/cd")
    await shelf.remove("1/2/ab/cd")
    if size:
        with pytest.raises(NotThere):
            await whole(shelf, "1/2/ab/cd", 0, size)


async def test_a_shelf_keeps_nothing_of_what_was_given_up(shelf: Shelf):
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 9_000_000
        raise WrongContent("no")

    with pytest.raises(WrongContent, match="no"):
        await shelf.write("1/2/ab/cd", broken())
    with pytest.raises(NotThere):
        await whole(shelf, "1/2/ab/cd", 0, 1)


async def test_a_shelf_that_cannot_be_says_so(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for where in (str(tmp_path / "file" / "sub"), "nothing://x"):
        with pytest.raises(ShelfFault):
            open_shelf(where)


async def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path):
    """/dev/full refuses every byte, as a full disk does."""
    shelf = DirectoryShelf(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "x.part").symlink_to("/dev/full")
    with pytest.raises(ShelfFault):  # a link is not followed
        await shelf.write("1/x", in_pieces(b"body"))
    if os.path.ismount("/dev/shm"):
        room = os.statvfs("/dev/shm")
        assert room.f_bavail  # else the machine itself is full
    assert NoRoom.__mro__[1] is ShelfFault


# ── blobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"", b"small", b"x" * 65536, b"x" * 65537, LARGE], ids=lambda body: str(len(body)))
async def test_a_blob_is_what_was_uploaded_whole_and_in_part(shop: Shop, body: bytes):
    digest = await keep(shop.blobs, body)
    assert await read(shop.blobs, digest) == body
    assert await read(shop.blobs, digest, 2, 4) == body[2:4]
    assert await shop.blobs.touch(TENANT, digest) == len(body)
    assert await shop.blobs.total(TENANT) == len(body)


@pytest.mark.parametrize("body", [b"small", LARGE], ids=["small", "large"])
async def test_what_is_not_what_its_digest_says_is_not_kept(shop: Shop, body: bytes, tmp_path: Path):
    digest = digest_of(body)
    for wrong, most in ((body + b"!", MOST), (body[:-1], MOST), (body, len(body) - 1)):
        with pytest.raises(WrongContent):
            await shop.blobs.keep(TENANT, digest, in_pieces(wrong), most=most)
    assert await shop.blobs.find(TENANT, digest) is None
    assert await shop.blobs.total(TENANT) == 0
    await shop.blobs.collect()
    assert files_on(shop, tmp_path) == []


async def test_one_tenant_learns_nothing_of_the_blobs_of_another(shop: Shop, tmp_path: Path):
    await shop.database.execute("insert into tenant (tenant, name) values (2, 'other')")
    digest = await keep(shop.blobs, LARGE)
    assert await shop.blobs.find(2, digest) is None
    assert await shop.blobs.touch(2, digest) is None
    assert await shop.blobs.use(2, [digest], 1) == set()
    await keep(shop.blobs, LARGE, tenant=2)
    assert len(files_on(shop, tmp_path)) == 2


async def test_the_same_blob_uploaded_by_many_at_once_is_kept_once(shop: Shop, tmp_path: Path):
    digests = await asyncio.gather(*(keep(shop.blobs, LARGE) for _ in range(8)))
    assert await shop.blobs.total(TENANT) == len(LARGE)
    await shop.blobs.collect()
    assert len(files_on(shop, tmp_path)) == 1
    assert await read(shop.blobs, digests[0]) == LARGE


async def test_what_a_task_needs_stays_and_what_nothing_needs_goes(shop: Shop, tmp_path: Path):
    used, unused, small = await keep(shop.blobs, LARGE), await keep(shop.blobs, LARGE[:-1]), await keep(shop.blobs, b"")
    assert await shop.blobs.use(TENANT, [used, small, "sha256:none"], slice_start()) == {used, small}
    await shop.blobs.collect()
    assert len(files_on(shop, tmp_path)) == 2  # within the grace time
    await shop.blobs.collect(grace_seconds=0)
    assert await shop.blobs.find(TENANT, unused) is None
    assert await read(shop.blobs, used) == LARGE
    assert files_on(shop, tmp_path)[0].startswith(used.removeprefix("sha256:"))
    assert await shop.blobs.total(TENANT) == len(LARGE)
    await shop.blobs.release(TENANT, used, slice_start())
    await shop.blobs.collect(grace_seconds=0)
    await shop.blobs.collect(grace_seconds=0)
    assert files_on(shop, tmp_path) == []
    assert await shop.blobs.total(TENANT) == 0


async def test_a_blob_that_went_can_be_uploaded_again_at_once(shop: Shop, tmp_path: Path):
    digest = await keep(shop.blobs, LARGE)
    await shop.database.execute("delete from blob")  # dropped, and its object not yet removed
    await shop.database.execute(
        "insert into blob_garbage select 1, $1, clock_now()", "1/1/" + digest[7:9] + "/" + files_on(shop, tmp_path)[0]
    )
    await keep(shop.blobs, LARGE)
    assert await shop.blobs.collect() == 1
    assert await read(shop.blobs, digest) == LARGE


async def test_an_upload_that_was_killed_leaves_nothing_in_the_end(shop: Shop, tmp_path: Path):
    """What the statements name at each step is enough: no directory is ever searched."""
    digest, began = digest_of(LARGE), asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield LARGE[:2_000_000]
        began.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(shop.blobs.keep(TENANT, digest, stalling(), most=MOST))
    await began.wait()
    places = await shop.database.fetch("select place from blob_garbage where goes_at > clock_now()")
    assert len(places) == 1
    upload.cancel()
    await asyncio.wait([upload])
    part = tmp_path / "shelf" / (places[0]["place"] + ".part")
    part.write_bytes(b"as a killed server leaves it")
    await shop.blobs.collect()
    assert part.exists()  # it may still be under way
    await shop.database.execute("update blob_garbage set goes_at = clock_now()")
    assert await shop.blobs.collect() == 1
    assert files_on(shop, tmp_path) == []


async def test_an_object_that_vanished_is_told_and_not_taken_for_an_empty_one(shop: Shop, tmp_path: Path):
    digest = await keep(shop.blobs, LARGE)
    for path in (tmp_path / "shelf").rglob("*"):
        if path.is_file():
            path.unlink()
    blob = await shop.blobs.find(TENANT, digest)
    assert blob is not None
    with pytest.raises(NotThere):
        await blob.check()


async def test_all_servers_sign_with_the_same_secret(shop: Shop):
    first = await shop.blobs.signing_secret()
    assert len(first) == 32
    assert await shop.blobs.signing_secret() == first


async def test_one_piece_is_a_stream(shop: Shop):
    assert [piece async for piece in one_piece(b"x")] == [b"x"]
