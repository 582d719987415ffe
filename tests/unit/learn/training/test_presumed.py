from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.training.presumed import excess_alerts, presumed_anomalies, separated


def normal_scores(n: int, seed: int = 0) -> np.ndarray:
    """Scores with an exponential tail."""
    return np.random.default_rng(seed).exponential(1.0, n)


@pytest.mark.parametrize(
    ("n_alerts", "n", "rate", "expected"),
    [
        (0, 100, 0.02, 0),
        (2, 100, 0.02, 0),
        (12, 100, 0.02, 10),  # of 90 normal ones 1.8 alert: 10.2 are anomalies
        (100, 100, 0.02, 100),
        (5, 0, 0.02, 5),
    ],
)
def test_excess_is_what_normal_sequences_do_not_explain(n_alerts: int, n: int, rate: float, expected: int) -> None:
    assert excess_alerts(n_alerts, n, rate) == expected


def test_excess_inverts_the_mixture_of_anomalies_and_false_alarms() -> None:
    for k in range(0, 400, 7):
        alerts = k + (400 - k) * 0.05
        assert excess_alerts(round(alerts), 400, 0.05) == pytest.approx(k, abs=1)


@pytest.mark.parametrize("n", [50, 100, 400])
def test_the_tail_of_normal_scores_hardly_stands_apart(n: int) -> None:
    """Of the highest eighth of exponential scores, on average less than a tenth (measured: 7 %)."""
    counts = [separated(normal_scores(n, seed), n // 8) for seed in range(300)]
    assert np.mean(counts) < n // 8 / 10


@pytest.mark.parametrize(("scores", "candidates"), [(np.ones(50), 5), (np.arange(9.0), 0), (np.arange(9.0), 5)])
def test_nothing_stands_apart_of_equal_scores_or_half_of_all(scores: np.ndarray, candidates: int) -> None:
    assert separated(scores, candidates) == 0


def test_an_excess_that_mostly_stands_apart_is_left_out() -> None:
    faint, clear = np.full(4, 5.0), np.linspace(20.0, 30.0, 16)
    scores = np.concatenate([normal_scores(180), faint, clear])
    left_out = presumed_anomalies(scores, n_alerts=24, n_judged=200, rate=0.02)
    assert excess_alerts(24, 200, 0.02) == 20
    assert 16 <= left_out.sum() <= 20
    assert left_out[-16:].all()


def test_of_an_excess_that_hardly_stands_apart_little_is_left_out() -> None:
    """Some anomalies, and a champion whose threshold is too low: its false alarms are no anomalies for that."""
    scores = np.concatenate([normal_scores(190), np.linspace(20.0, 30.0, 10)])
    left_out = presumed_anomalies(scores, n_alerts=44, n_judged=200, rate=0.02)
    assert excess_alerts(44, 200, 0.02) == 41
    assert 10 <= left_out.sum() <= 14


def test_an_excess_of_a_champion_that_fell_behind_is_kept() -> None:
    """One in eight alerted, but the challenger sees nothing odd in the highest scores: they were false alarms."""
    counts = [
        presumed_anomalies(normal_scores(200, seed), n_alerts=25, n_judged=200, rate=0.02).sum() for seed in range(100)
    ]
    assert excess_alerts(25, 200, 0.02) == 21
    assert np.mean(counts) < 2.5


def test_of_what_stands_apart_without_alerts_nothing_is_left_out() -> None:
    """A rare recipe: normal, far from the others, and no champion ever alerted on it."""
    scores = np.concatenate([normal_scores(190), np.linspace(20.0, 22.0, 10)])
    assert not presumed_anomalies(scores, n_alerts=4, n_judged=200, rate=0.02).any()


def test_a_little_more_than_the_excess_may_go() -> None:
    """A threshold that came out somewhat too high among the anomalies finds its way back."""
    scores = np.concatenate([normal_scores(180), np.linspace(20.0, 30.0, 20)])
    left_out = presumed_anomalies(scores, n_alerts=20, n_judged=200, rate=0.02)
    assert excess_alerts(20, 200, 0.02) == 16
    assert set(np.flatnonzero(left_out)) == set(range(180, 200))


def test_the_presumed_share_of_unmarked_sequences_is_excluded() -> None:
    scores = normal_scores(100)
    left_out = presumed_anomalies(scores, n_alerts=0, n_judged=0, rate=0.02, n_unjudged=100, unjudged_share=0.1)
    assert set(np.flatnonzero(left_out)) == set(np.argsort(scores)[-10:])


@given(
    st.lists(st.floats(-1e6, 1e6), max_size=60),
    st.integers(0, 60),
    st.floats(0.001, 0.5),
    st.floats(0.0, 0.49),
    st.integers(0, 60),
)
def test_law_only_the_highest_and_less_than_half(
    values: list[float], n_alerts: int, rate: float, share: float, n_unjudged: int
) -> None:
    scores = np.array(values, dtype=np.float64)
    n_unjudged = min(n_unjudged, len(scores))
    n_judged = len(scores) - n_unjudged
    left_out = presumed_anomalies(
        scores,
        n_alerts=min(n_alerts, n_judged),
        n_judged=n_judged,
        rate=rate,
        n_unjudged=n_unjudged,
        unjudged_share=share,
    )
    assert left_out.sum() <= max(0, (len(scores) - 1) // 2)
    if left_out.any():
        assert scores[left_out].min() >= scores[~left_out].max()
