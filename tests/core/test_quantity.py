"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.quantity import SIZE_BYTES_MAX, amount_text, counted, duration_ms, milli, size_bytes
from headway.core.refusal import Refused


@pytest.mark.parametrize(
    ("said", "milliseconds"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1.5m", 90_000),
        (2, 2000),
        (0.25, 250),
        ("0", 0),
        ("90", 90_000),
        ("1.5", 1500),
        ("1d", 86_400_000),
    ],
)
def test_a_duration_is_read_as_people_write_it(said: str | int | float, milliseconds: int):
    assert duration_ms(said, "x") == milliseconds


@pytest.mark.parametrize(
    "said", ["", "s", "5 s", "-5", "-5s", ".5", "1e3", "1h30", -1, float("nan"), float("inf"), True, None, "9" * 50]
)
def test_what_is_no_duration_is_refused_with_the_path(said: object):
    refused = duration_ms(said, "delay_tolerance")
    assert isinstance(refused, Refused)
    assert refused.path == "delay_tolerance"


@pytest.mark.parametrize("said", [10**400, -(10**400), 1e308, "9" * 1_000_000])
def test_what_no_float_can_hold_is_refused_and_not_remembered(said: object):
    for read in (duration_ms, size_bytes, milli):
        assert isinstance(read(said, "x"), Refused)


def test_a_duration_beyond_a_year_is_refused():
    assert isinstance(duration_ms("400d", "x"), Refused)


@pytest.mark.parametrize(
    ("said", "count"), [("512Mi", 2**29), ("4G", 4 * 10**9), (1024, 1024), ("1.5Ki", 1536), ("10GiB", 10 * 2**30)]
)
def test_a_size_is_read_as_people_write_it(said: str | int, count: int):
    assert size_bytes(said, "x") == count


@pytest.mark.parametrize("said", ["", "Mi", "5 Mi", "-5Mi", 1.5, True, 2**61, "1e3"])
def test_what_is_no_size_is_refused(said: object):
    assert isinstance(size_bytes(said, "x"), Refused)


@given(st.integers(0, 1_000_000))
def test_milli_is_exact_for_whole_numbers(count: int):
    assert milli(count, "x") == count * 1000


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans()))
def test_no_input_breaks_the_readers(said: object):
    for read in (duration_ms, size_bytes, milli):
        assert isinstance(read(said, "x"), int | Refused)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cpu", 500, "0.5"), ("cpu", 1_000_000, "1000"), ("gpu", 3, "3"), ("memory", 0, "0"), ("memory", 1023, "1023"),
        ("memory", 512 * 2**20, "512Mi"), ("memory", 1536 * 2**20, "1536Mi"), ("disk", 4 * 2**40, "4Ti"),
        ("memory", 24_012_684_698, "22.3Gi"), ("storage", 102_400 * 2**20, "100Gi"),
        ("memory", 23_449_888 * 1024, "22.3Gi"),
    ],
)  # fmt: skip
def test_amounts_are_said_as_people_say_them(name: str, value: int, text: str):
    assert amount_text(name, value) == text


@given(st.integers(0, SIZE_BYTES_MAX))
def test_a_size_that_is_said_can_be_asked_for(size: int):
    again = counted("memory", amount_text("memory", size), "")
    assert isinstance(again, int) and again <= size <= again * 1.1 + 1
