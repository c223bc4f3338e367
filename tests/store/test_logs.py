"""Logs in the database: pieces by their place, old ones of long logs gone, what is missing counted."""

from __future__ import annotations

from headway.core.log import CHUNK_BYTES, FIRST_BYTES, ROLLING_BYTES
from headway.wire import LogChunk
from tests.store.shop import TENANT, Shop


async def test_pieces_are_read_from_any_byte_on_and_again_is_the_same(shop: Shop):
    (task,) = await shop.tasks_ready(1)
    pieces = [LogChunk(TENANT, task, 1, 0, b"0123"), LogChunk(TENANT, task, 1, 4, b"45")]
    await shop.tasks.keep_logs([*pieces, LogChunk(TENANT, task, 1, 4, b"4567")])
    await shop.tasks.keep_logs(pieces)
    assert await shop.tasks.read_log(TENANT, task, 1, 0) == [(0, b"0123"), (4, b"4567")]
    assert await shop.tasks.read_log(TENANT, task, 1, 3) == [(0, b"0123"), (4, b"4567")]
    assert await shop.tasks.read_log(TENANT, task, 1, 4) == [(4, b"4567")]
    assert await shop.tasks.read_log(TENANT, task, 1, 8) == []
    assert await shop.tasks.read_log(TENANT, task, 2, 0) == []


async def test_behind_its_first_bytes_a_log_keeps_the_newest(shop: Shop):
    (task,) = await shop.tasks_ready(1)
    step = 10 * CHUNK_BYTES
    places = [0, FIRST_BYTES - CHUNK_BYTES, *range(FIRST_BYTES, FIRST_BYTES + 20 * step, step)]
    for at in places:
        await shop.tasks.keep_logs([LogChunk(TENANT, task, 1, at, bytes(CHUNK_BYTES))])
    kept = [at for at, _ in await shop.tasks.read_log(TENANT, task, 1, 0, most=100)]
    assert kept == [at for at in places if at < FIRST_BYTES or at >= places[-1] - ROLLING_BYTES]
