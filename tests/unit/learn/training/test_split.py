from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.judge.calibration import (
    OUT_OF_FOLD_BELOW,
    calibration_count,
    calibration_sequences_for,
    certifiable_rate,
    recordings_for,
)
from streamad.learn.training.calibrating import folds_of, hash_order

IDS = st.lists(st.text(max_size=8), unique=True, max_size=40)


@given(IDS, st.integers(0, 2**31), st.randoms())
def test_order_does_not_depend_on_arrival(ids: list[str], seed: int, random: object) -> None:
    shuffled = list(ids)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = [ids[i] for i in hash_order(tuple(ids), seed)]
    second = [shuffled[i] for i in hash_order(tuple(shuffled), seed)]
    assert first == second
    assert sorted(first) == sorted(ids)


def test_order_depends_on_the_seed() -> None:
    ids = tuple(f"B-{i}" for i in range(50))
    assert list(hash_order(ids, 0)) != list(hash_order(ids, 1))
    assert list(hash_order(ids, 0)) != list(range(50))


@pytest.mark.parametrize(
    ("n", "share", "rate", "expected"),
    [
        (200, 0.5, 0.02, 99),
        (198, 0.5, 0.02, 99),
        (197, 0.5, 0.02, 49),
        (1000, 0.5, 0.02, 499),
        (200, 0.5, 0.05, 99),
        (150, 0.5, 0.001, 75),  # too few for the rate: all of the share, the tail is extrapolated
        (150, 0.5, 0.1, 69),
        (10, 0.05, 0.1, 0),
    ],
)
def test_calibration_count(n: int, share: float, rate: float, expected: int) -> None:
    assert calibration_count(n, share, rate) == expected


@given(st.integers(2, 5000), st.floats(0.01, 0.99), st.sampled_from([0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]))
def test_calibration_count_makes_the_rate_exact_wherever_the_share_allows(n: int, share: float, rate: float) -> None:
    m = calibration_count(n, share, rate)
    most = int(n * share + 1e-9)
    assert m <= most
    period = round(1 / rate)
    if most + 1 >= period:
        assert (m + 1) % period == 0
        assert m + 1 + period > most + 1  # no larger count would be as good
        p_values = (1 + np.arange(m + 1)) / (m + 1)
        assert np.mean(p_values <= rate) == pytest.approx(rate)
    else:
        assert m == most


@given(st.integers(1, 200), st.integers(2, 10))
def test_folds_hold_each_sequence_out_once(n: int, n_folds: int) -> None:
    folds = folds_of(n, n_folds)
    assert sorted(np.concatenate(folds)) == list(range(n))
    assert {len(fold) for fold in folds} <= {n // n_folds, math.ceil(n / n_folds)}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2, 1 / 3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("rate", [0.3, 0.1, 0.05, 0.02, 0.01, 0.007, 0.001, 0.0001])
def test_so_many_recordings_and_no_fewer_certify_the_rate(rate: float, share: float) -> None:
    needed = calibration_sequences_for(rate)
    n = recordings_for(needed, share)
    assert certifiable_rate(calibration_count(n, share, rate)) <= rate
    assert n == OUT_OF_FOLD_BELOW or calibration_count(n - 1, share, rate) < needed
    assert all(calibration_count(more, share, rate) >= needed for more in range(n, n + 300))


def test_the_recordings_of_the_lowest_rates_are_computed_and_not_counted_up() -> None:
    assert recordings_for(calibration_sequences_for(1e-9), 0.5) == 1_999_999_998
    assert recordings_for(calibration_sequences_for(1e-12), 0.5) == 1_999_999_999_998
