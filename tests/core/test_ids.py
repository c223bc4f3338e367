"""Ids are unique, ordered, and tell who issued them."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.ids import ID_MAX, Issuer, born_ms, first_id_at, issuer_of

NOW_MS = 1_790_000_000_000
clocks = st.lists(st.tuples(st.integers(-5000, 5000), st.integers(1, 9000)), min_size=1, max_size=20)


@given(clocks, st.integers(0, 1023))
def test_ids_only_grow_and_never_repeat_whatever_the_clock_does(steps: list[tuple[int, int]], number: int):
    issuer = Issuer(number, not_before_ms=0)
    issued: list[int] = []
    for step, count in steps:
        issued += issuer.take(count, now_ms=NOW_MS + step)
    assert issued == sorted(set(issued))
    assert all(issuer_of(one) == number and 0 < one <= ID_MAX for one in issued)


@given(st.integers(1, 20_000))
def test_the_next_holder_of_a_number_starts_behind_the_last_id(count: int):
    first = Issuer(7, not_before_ms=0)
    issued = first.take(count, now_ms=NOW_MS)
    second = Issuer(7, not_before_ms=first.used_until_ms)
    assert second.take(1, now_ms=NOW_MS - 60_000)[0] > issued[-1]


def test_an_id_tells_when_it_was_born():
    (one,) = Issuer(3, not_before_ms=0).take(1, now_ms=NOW_MS)
    assert born_ms(one) == NOW_MS
    assert first_id_at(NOW_MS) <= one < first_id_at(NOW_MS + 1)
