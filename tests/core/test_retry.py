"""Retries grow, stay bounded, and end."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.retry import LOSSES_MAX, again_after_loss_ms, again_after_ms
from headway.core.task import RetryRule


def test_without_a_rule_a_failure_is_final():
    assert again_after_ms(None, failures=1, exit_code=1, chance=0.5) is None


def test_pauses_grow_by_the_factor_up_to_the_longest():
    rule = RetryRule(max_attempts=9, initial="1s", factor=3.0, max="10s", jitter="none")
    pauses = [again_after_ms(rule, failures=n, exit_code=None, chance=0.9) for n in range(1, 5)]
    assert pauses == [1000, 3000, 9000, 10_000]


def test_an_exit_code_that_never_heals_is_not_retried():
    rule = RetryRule(max_attempts=5, never_on_exit=[64])
    assert again_after_ms(rule, failures=1, exit_code=64, chance=0.5) is None
    assert again_after_ms(rule, failures=1, exit_code=1, chance=0.5) is not None


@given(st.integers(1, 100), st.floats(1, 100), st.floats(0, 1, exclude_max=True), st.integers(1, 100))
def test_a_pause_is_never_longer_than_the_longest(attempts: int, factor: float, chance: float, failures: int):
    rule = RetryRule(max_attempts=attempts, factor=factor, max="7s")
    pause = again_after_ms(rule, failures=failures, exit_code=None, chance=chance)
    assert (pause is None) == (failures >= attempts)
    assert pause is None or 0 <= pause <= 7000


def test_a_task_that_keeps_losing_its_node_is_given_up():
    assert again_after_loss_ms(losses=LOSSES_MAX - 1) is not None
    assert again_after_loss_ms(losses=LOSSES_MAX) is None
