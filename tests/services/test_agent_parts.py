"""The parts of the agent that are plain arithmetic and bookkeeping."""

from __future__ import annotations

import asyncio
import os

import pytest

from headway.agent.lease import Lease
from headway.agent.leftovers import session_of
from headway.agent.logs import HELD_BYTES_MAX, Log
from headway.agent.outbox import FRAME_BYTES, LOGS_BYTES_MAX, Outbox
from headway.agent.runners.watcher import Watcher
from headway.agent.session import linger, websocket_url
from headway.agent.window import Window, differs
from headway.core.log import CHUNK_BYTES, FIRST_BYTES, LAST_BYTES, behind, said_of
from headway.wire import FRAME_BYTES_MAX, Ended, Ending, Key, LogChunk, Logs, Returned, Started, encode


def test_a_lease_counts_from_when_the_heartbeat_was_sent():
    lease = Lease()
    lease.grant(10.0, asked_at=100.0)
    assert lease.kill_at == 109.0
    sequence = lease.heartbeat(105.0)
    lease.renewed(sequence)
    assert lease.kill_at == 114.0


def test_an_answer_to_an_older_heartbeat_never_shortens_a_lease():
    lease = Lease()
    lease.grant(10.0, asked_at=100.0)
    first, second = lease.heartbeat(101.0), lease.heartbeat(105.0)
    lease.renewed(second)
    lease.renewed(first)
    lease.renewed(99)
    assert lease.kill_at == 114.0


def test_a_window_holds_fifty_milliseconds_of_work():
    window = Window(first=256, most=4000)
    assert window.size(2) == 256
    window.ran(1.0, 1000)
    assert window.size(2) == 100
    window.ran(0.000_001, 1000)
    assert window.size(2) == 4000


def test_news_gather_for_a_part_of_the_time_that_the_queue_lasts_and_never_for_long():
    window = Window(first=16, most=64)
    assert linger(window.lasts(0, 2)) == 0, "whoever waits for this one is alone"
    window.ran(1.0, 100)
    assert linger(window.lasts(1, 2)) == pytest.approx(0.00125)
    assert linger(window.lasts(10, 2)) == pytest.approx(0.0125)
    assert linger(window.lasts(60, 2)) == 0.015
    assert window.lasts(10, 0) == pytest.approx(0.1), "one at a time where it is not known"


def test_a_window_closes_for_long_tasks_and_opens_again_after_a_few_short_ones():
    window = Window(first=16, most=64)
    window.ran(3600.0)
    assert window.size(4) == 0
    for _ in range(20):
        window.ran(0.001)
    assert window.size(4) > 0
    window.drags(5.0)
    assert window.size(4) == 0


@pytest.mark.parametrize(
    ("told", "now", "tells"),
    [(64, 64, False), (64, 60, False), (64, 32, True), (32, 64, True), (1, 0, True), (0, 1, True)],
)
def test_small_changes_of_a_window_are_not_told(told: int, now: int, tells: bool):
    assert differs(told, now) is tells


def kept(chunks: list[LogChunk]) -> bytes:
    """What a reader gets of them."""
    place, found = 0, b""
    for chunk in sorted(chunks, key=lambda chunk: chunk.at):
        if (piece := behind(place, chunk.at, chunk.body)) is not None:
            found += (said_of(piece.missing) if piece.missing else b"") + piece.body
            place = piece.at + len(piece.body)
    return found


def test_a_short_log_is_kept_whole():
    log = Log()
    log.write(b"one\n")
    first = log.chunks(1, 2, 3)
    log.write(b"two\n")
    assert [(chunk.at, chunk.body) for chunk in first + log.rest(1, 2, 3)] == [(0, b"one\n"), (4, b"two\n")]
    assert log.so_far() == b"one\ntwo\n"


@pytest.mark.parametrize("step", [1000, 65536])
@pytest.mark.parametrize("beyond", [1, LAST_BYTES, LAST_BYTES + 1, 5_000_000])
def test_a_long_log_keeps_its_beginning_and_its_end(step: int, beyond: int):
    text = bytes(range(256)) * ((FIRST_BYTES + beyond) // 256 + 1)
    text = text[: FIRST_BYTES + beyond]
    log = Log()
    chunks: list[LogChunk] = []
    for at in range(0, len(text), step):
        log.write(text[at : at + step])
        chunks += log.chunks(1, 2, 3)
    chunks += log.rest(1, 2, 3)
    missing = max(0, beyond - LAST_BYTES)
    assert kept(chunks) == text[:FIRST_BYTES] + (said_of(missing) if missing else b"") + text[FIRST_BYTES + missing :]
    assert log.so_far() == text[-4096:]
    assert all(len(chunk.body) <= CHUNK_BYTES for chunk in chunks)


def test_behind_its_first_bytes_a_log_sends_the_newest_at_a_rate_and_the_end_whole():
    log, chunks = Log(), list[LogChunk]()
    for _ in range(FIRST_BYTES // CHUNK_BYTES):
        log.write(b"1" * CHUNK_BYTES)
        chunks += log.chunks(1, 2, 3)
    log.skip(1_000_000_000)
    log.write(b"2" * 5000)
    assert [(c.at, c.body) for c in log.chunks(1, 2, 3, most=100)] == [(log.written - 100, b"2" * 100)]
    assert log.chunks(1, 2, 3, most=100) == []
    log.write(b"3" * 10)
    rest = log.rest(1, 2, 3)
    assert kept(chunks + rest) == b"1" * FIRST_BYTES + said_of(1_000_000_000) + b"2" * 5000 + b"3" * 10


def test_a_log_that_nobody_takes_stays_small():
    log = Log()
    for n in range(100):
        log.write(bytes([n]) * CHUNK_BYTES)
    assert sum(len(chunk.body) for chunk in log.rest(1, 2, 3)) <= 2 * HELD_BYTES_MAX
    assert log.so_far() == bytes([99]) * 4096


def an_ending(task: int, result: str | None = None) -> Ending:
    return Ending(1, task, 1, 0, result=result)


async def test_a_log_goes_before_its_ending():
    outbox = Outbox()
    outbox.end([an_ending(1)])
    outbox.log([LogChunk(1, 1, 1, 0, b"x")])
    outbox.start([Key(1, 1, 1)])
    outbox.hand_back([Key(1, 2, 1)])
    assert [type(frame) for frame in outbox.frames()] == [Started, Returned, Logs, Ended]
    assert list(outbox.frames()) == []


async def test_endings_count_until_they_are_acknowledged():
    outbox = Outbox()
    for task in range(3):
        outbox.end([an_ending(task)])
        list(outbox.frames())
    outbox.acknowledged(2)
    assert outbox.ended_keys() == [Key(1, 2, 1)]
    outbox.rewind(set(), [])
    (frame,) = outbox.frames()
    assert frame == Ended(4, [an_ending(2)])
    outbox.acknowledged(4)
    await outbox.settled()


async def test_endings_of_a_broken_send_are_not_lost():
    outbox = Outbox()
    outbox.end([an_ending(1)])
    outbox.log([LogChunk(1, 1, 1, 0, b"x")])
    frames = outbox.frames()
    assert isinstance(next(frames), Logs)
    frames.close()
    outbox.rewind(set(), [])
    logs, ended = outbox.frames()
    assert isinstance(logs, Logs) and logs.chunks[0].body == b"x"
    assert isinstance(ended, Ended) and ended.endings == [an_ending(1)]


async def test_what_was_disowned_is_not_repeated():
    outbox = Outbox()
    outbox.end([an_ending(1), an_ending(2)])
    list(outbox.frames())
    outbox.rewind({Key(1, 1, 1)}, [])
    assert outbox.ended_keys() == [Key(1, 2, 1)]


async def test_frames_stay_below_the_limit():
    outbox = Outbox()
    result = '"' + "ä" * 120_000 + '"'
    outbox.end([an_ending(task, result) for task in range(200)])
    outbox.log([LogChunk(1, task, 1, 0, b"x" * 65536) for task in range(200)])
    frames = list(outbox.frames())
    assert len(frames) > 4 and all(len(encode(frame)) < FRAME_BYTES_MAX for frame in frames)
    assert sum(len(frame.endings) for frame in frames if isinstance(frame, Ended)) == 200


async def test_a_log_is_repeated_until_a_renewal_proves_that_it_arrived():
    outbox = Outbox()
    outbox.heartbeat_sent(1)
    outbox.log([LogChunk(1, 1, 1, 0, b"x")])
    list(outbox.frames())
    outbox.renewed(1)
    outbox.rewind(set(), [])
    assert len(list(outbox.frames())) == 1
    outbox.renewed(2)
    outbox.rewind(set(), [])
    assert list(outbox.frames()) == []


async def test_the_outbox_is_bounded():
    outbox = Outbox()
    outbox.log([LogChunk(1, 1, 1, n, b"x" * 65536) for n in range(LOGS_BYTES_MAX // 65536 + 1)])
    assert outbox.logs_full
    list(outbox.frames())
    assert not outbox.logs_full
    outbox.end([an_ending(1, "x" * FRAME_BYTES) for _ in range(64)])
    assert not outbox.has_room


def test_the_session_is_a_websocket_at_the_servers_address():
    assert websocket_url("https://h:1/") == "wss://h:1/v1/agent/session"
    assert websocket_url("http://h") == "ws://h/v1/agent/session"


def test_a_process_that_is_gone_has_no_session():
    assert session_of(2**22 + 1) == 0


async def test_what_became_ready_is_not_taken_for_what_has_its_number_now():
    watcher = Watcher()
    heard: list[str] = []
    ends = [os.pipe(), os.pipe()]
    renewed = asyncio.Event()

    def first(mine: int, other: int) -> None:
        """Whoever is called first replaces the other's file by one that is silent, under the same number."""
        if renewed.is_set():
            heard.append("a file that has nothing to say")
        renewed.set()
        watcher.forget(mine)
        watcher.forget(other)
        read, write = os.pipe()
        os.dup2(read, other)
        silent.extend((read, write))
        watcher.watch(other, lambda: heard.append("a file that has nothing to say"))

    silent: list[int] = []
    (one, to_one), (two, to_two) = ends
    watcher.watch(one, lambda: first(one, two))
    watcher.watch(two, lambda: first(two, one))
    os.write(to_one, b".")
    os.write(to_two, b".")
    async with asyncio.timeout(5):
        await renewed.wait()
        await asyncio.sleep(0)
    assert heard == []
    watcher.close()
    for descriptor in (one, to_one, two, to_two, *silent):
        os.close(descriptor)
