"""The bench's arithmetic and its table: wrong figures would be worse than none."""

import multiprocessing
import os
from itertools import count
from pathlib import Path

import pytest

from bench import bodies, proc, table, tally
from bench.contest import Contestant, Row, hold
from bench.figures import Metric, Outcome, Sample, champion, lead, percentile, spread
from bench.programs import finished, until
from bench.rows import ROWS
from bench.stage import Counts, Drained, Stage
from bench.weather import Used, Weather, calibrate, is_rough

RATE = Metric("drain", "tasks/s", "more", 25_000)
CALL = Metric("call p50", "ms", "less", 2.0)


def outcome(who: str, role: str, *values: float, metric: str = "drain") -> Outcome:
    made = Outcome(who, role)  # pyright: ignore[reportArgumentType]
    made.samples = [Sample({metric: value}) for value in values]
    made.weathers = [Weather(30.0, 31.0, 0.02)] * len(values)
    return made


def test_a_figure_is_the_median_with_the_whole_range():
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert table.figure(spread([31_000.0, 28_412.4, 27_900.0])) == "28,412 [27,900..31,000]"


def test_a_percentile_is_a_value_that_was_measured():
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, percent) for percent in (0, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7.0], 99) == 7.0


def test_a_target_is_met_from_the_right_side():
    assert RATE.meets(25_000)
    assert not RATE.meets(24_999)
    assert CALL.meets(2.0)
    assert not CALL.meets(2.1)
    assert Metric("fill", "tasks/s").meets(0)


def test_a_lead_above_one_means_that_headway_is_ahead_whatever_is_better():
    assert lead(RATE, 30_000, 20_000) == pytest.approx(1.5)
    assert lead(CALL, 1.0, 2.0) == pytest.approx(2.0)
    assert lead(CALL, 2.0, 1.0) == pytest.approx(0.5)


def test_peers_are_compared_with_headways_best_way_and_not_with_a_variant():
    outcomes = [
        outcome("headway, arrays of 1,000", "headway", 40_000),
        outcome("headway, arrays of 2,000", "headway", 50_000),
        outcome("headway, bare socket", "variant", 90_000),
    ]
    assert champion(RATE, outcomes) == 50_000
    assert champion(CALL, outcomes) is None


def test_the_table_says_who_met_what_and_who_is_ahead():
    outcomes = [outcome("headway", "headway", 28_000, 30_000, 27_000), outcome("pgqueuer", "peer", 20_000)]
    ours, theirs = table.lines([RATE], outcomes, best_loop=31.0)
    assert "28,000 [27,000..30,000]" in ours
    assert "≥ 25,000 met" in ours
    assert "×1.40" in theirs
    assert "30.0/31.0" in theirs
    assert "~" not in theirs


def test_what_failed_and_what_was_missed_is_said():
    slow = outcome("headway", "headway", 10_000)
    broken = Outcome("headway, deep", "headway", failure="Unmeasurable: no server")
    peer = Outcome("huey", "peer", failure="cannot be installed")
    assert table.missed("drain", [RATE], [slow, broken, peer]) == [
        "drain: headway, deep was not measured: Unmeasurable: no server",
        "drain: drain 10,000 tasks/s, target ≥ 25,000",
    ]
    assert any("NOT MEASURED: cannot be installed" in line for line in table.lines([RATE], [slow, peer], 31.0))


def test_a_slow_loop_around_a_measurement_or_a_busy_neighbour_marks_it():
    assert is_rough([Weather(30.0, 20.0, 0.0)], best=31.0)
    assert is_rough([Weather(30.0, 29.0, 0.5)], best=31.0)
    assert not is_rough([Weather(30.0, 29.0, 0.1)], best=31.0)
    ticks = count(0, 2)
    assert calibrate(turns=1000, clock=lambda: next(ticks)) == pytest.approx(0.0005)


def test_what_we_use_ourselves_is_not_taken_for_a_neighbour():
    began = Used(machine=100.0, ours=10.0, at=0.0)
    assert began.others_until(Used(machine=106.0, ours=15.0, at=4.0)) == 0.25
    assert began.others_until(Used(machine=104.0, ours=15.0, at=4.0)) == 0.0
    assert Used.now().machine > Used.now().ours > 0


def test_who_fails_once_is_out_and_the_others_go_on():
    def fail() -> Sample:
        raise ValueError("no such queue")

    row = Row("drain", "", [RATE], [Contestant("a", fail, "peer"), Contestant("b", lambda: Sample({"drain": 1.0}))])
    said: list[str] = []
    broken, fine = hold(row, 2, said.append)
    assert broken.failure == "ValueError: no such queue"
    assert [len(one.samples) for one in (broken, fine)] == [0, 2]
    assert said == ["drain 1/2: a …", "drain 1/2: b …", "drain 2/2: b …"]


def test_a_drain_is_timed_from_its_first_share_to_its_last_task():
    drained = Drained(begun=20, since=1.0, until=2.0)
    assert drained.per_second(120) == 100
    assert drained.per_second(120, until=3.0) == 50


def test_all_tasks_are_in_the_requests_and_answers_are_counted():
    (first, second) = bodies.requests(["hw_key"], "noop", range(3), 2, "array")
    assert first.endswith(b'[{"function":"bench.jobs:noop","args":[0]},{"function":"bench.jobs:noop","args":[1]}]')
    assert second.startswith(b"POST /v1/tasks:batch HTTP/1.1\r\n")
    assert len(list(bodies.requests(["hw_key"], "noop", range(3), 1, "array"))) == 3
    answer = b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"accepted":2,'
    assert bodies.complete(answer[:-1]) is None
    assert bodies.accepted(bodies.complete(answer) or b"") == 2
    with pytest.raises(ValueError, match="503"):
        bodies.complete(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno")


def test_processes_count_and_stamp_without_losing_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counted = tally.Tally.fresh(tmp_path / "tally")
    monkeypatch.setenv(tally.VARIABLE, str(counted.path))
    processes = [multiprocessing.get_context("spawn").Process(target=tick_and_stamp, args=(n,)) for n in (3, 4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert counted.started == 2 * 101
    assert counted.stamp(3) > 0
    assert counted.stamp(5) == 0


def tick_and_stamp(number: int) -> None:
    for _ in range(100):
        tally.tick()
    tally.stamp(number)


def test_the_kernel_tells_of_this_process():
    me = os.getpid()
    assert proc.family(me)[0] == me
    assert proc.rss_mb(me) > 5
    assert proc.peak_rss_mb(me) >= proc.rss_mb(me) * 0.9
    assert proc.pss_mb([me]) > 1
    assert proc.cpu_seconds([me]) > 0
    assert proc.words(2**22 + 1) == []


def test_a_program_is_run_to_its_end_and_waiting_gives_up():
    assert finished(["/bin/echo", "hello"], 20) == "hello\n"
    with pytest.raises(Exception, match="ended with 1"):
        finished(["/bin/false"], 20)
    with pytest.raises(Exception, match="pigs fly: not so within 0"):
        until("pigs fly", lambda: False, 0.0)


def test_every_row_can_be_put_together_without_starting_anything(tmp_path: Path):
    rows = [make(Stage(tmp_path, Counts(), peers=True)) for make in ROWS.values()]
    assert [row.name for row in rows] == list(ROWS)
    assert all(row.contestants[0].role != "peer" for row in rows)
    assert {row.name for row in rows if any(metric.target for metric in row.metrics)} == set(ROWS)
