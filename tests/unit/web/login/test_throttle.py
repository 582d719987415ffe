"""How guessing is slowed down, and that it takes no memory."""

from __future__ import annotations

import pytest

from streamad.web.login.throttle import Throttle
from tests.support.web.logins import Seconds


def test_after_five_attempts_each_takes_a_minute(clock: Seconds) -> None:
    throttle = Throttle(clock)
    assert [throttle.take("kim", "10.0.0.1") for _ in range(5)] == [0] * 5
    assert throttle.take("kim", "10.0.0.1") == pytest.approx(60.0)
    clock.now_s += 59.0
    assert throttle.take("kim", "10.0.0.1") == pytest.approx(1.0)
    clock.now_s += 1.0
    assert throttle.take("kim", "10.0.0.1") == 0
    assert throttle.take("kim", "10.0.0.1") == pytest.approx(60.0)


def test_who_guesses_locks_nobody_out_elsewhere(clock: Seconds) -> None:
    throttle = Throttle(clock)
    for _ in range(50):
        throttle.take("kim", "10.0.0.1")
    assert throttle.take("kim", "10.0.0.2") == 0
    assert throttle.take("lee", "10.0.0.1") == 0


@pytest.mark.parametrize(
    ("address", "beside", "is_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_an_address_tries_twenty_names_at_once(address: str, beside: str, is_same: bool, clock: Seconds) -> None:
    throttle = Throttle(clock)
    assert [throttle.take(f"user {i}", address) for i in range(20)] == [0] * 20
    assert throttle.take("another", address) == pytest.approx(15.0)
    assert (throttle.take("another", beside) > 0) == is_same


def test_many_addresses_together_guess_one_name_slowly(clock: Seconds) -> None:
    throttle = Throttle(clock)
    n = sum(throttle.take("kim", f"10.0.{i // 250}.{i % 250}") == 0 for i in range(1_000))
    assert n == 100


def test_an_attempt_that_was_none_is_given_back(clock: Seconds) -> None:
    throttle = Throttle(clock)
    for _ in range(100):
        assert throttle.take("kim", "10.0.0.1") == 0
        throttle.give_back("kim", "10.0.0.1")
    assert len(throttle) == 0


def test_counters_are_bounded_whatever_is_tried(clock: Seconds) -> None:
    throttle = Throttle(clock)
    for i in range(12_000):
        throttle.take(f"user {i}", f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}")
    assert len(throttle) <= 30_000
