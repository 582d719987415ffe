"""The rule for far too many alerts, at its boundaries and against the law that it claims."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamad.judge.calibration import Calibration
from streamad.judge.shift import FEWEST, LATEST, AllowedRate


def allowed(n: int, rate: float = 0.02, faults: float = 0.3) -> AllowedRate:
    scores = np.random.default_rng(n).gamma(2.0, size=(n, 1)).astype(np.float32)
    return AllowedRate(rate, Calibration.from_terms(scores, rate), faults)


def fewest_alerts(of: AllowedRate, n_judged: int) -> int | None:
    """Return the least number of alerts that is too many."""
    return next((k for k in range(n_judged + 1) if of.is_exceeded_by(k, n_judged)), None)


@pytest.mark.parametrize(
    ("n", "faults", "fewest"),
    [
        (99, 0.3, {10: None, 13: None, 14: 14, 20: 18, 50: 36, 100: 61}),
        (99, 0.0, {9: None, 10: 8, 20: 11, 100: 26}),
        (999, 0.3, {12: None, 13: 13, 100: 57}),
        (7, 0.3, {45: None, 50: 50, 100: 94}),
        (4, 0.3, {100: None}),
        (4, 0.0, {100: 98}),
    ],
)
def test_so_many_alerts_are_too_many_and_one_fewer_are_not(
    n: int, faults: float, fewest: dict[int, int | None]
) -> None:
    rule = allowed(n, faults=faults)
    assert {n_judged: fewest_alerts(rule, n_judged) for n_judged in fewest} == fewest


def test_few_sequences_say_nothing_however_many_alert() -> None:
    rule = allowed(999, faults=0.0)
    assert rule.is_exceeded_by(FEWEST, FEWEST)
    assert not rule.is_exceeded_by(FEWEST - 1, FEWEST - 1)


def test_the_highest_rate_is_the_one_that_one_in_a_thousand_calibrations_exceeds() -> None:
    # One score of 49 at least as high as all others: P(rate > x) = (1 - x)^49 without an alerting score.
    assert math.isclose((1 - allowed(49).highest) ** 49, 1e-3, rel_tol=1e-6)
    rng = np.random.default_rng(0)
    scores = np.sort(rng.uniform(size=(20_000, 99)), axis=1)
    rates = 1 - scores[:, -2]  # p <= 0.02 of 99: above the second highest
    beyond = float((rates > allowed(99).highest).mean())
    assert 3e-4 < beyond < 2e-3


def test_an_extrapolated_rate_counts_the_scores_that_would_alert_themselves() -> None:
    scores = np.r_[np.linspace(1.0, 1.1, 29), 50.0].astype(np.float32)[:, None]
    calibration = Calibration.from_terms(scores, 0.02)
    assert calibration.tail == "extrapolated"
    assert calibration.alert_score(0.02) < 50.0
    itself = AllowedRate(0.02, calibration).highest
    assert itself > AllowedRate(0.02, Calibration.from_terms(scores[:-1], 0.02)).highest


def test_one_calibration_score_and_a_rate_near_one_are_never_exceeded() -> None:
    for scores, rate in ((np.ones((1, 1), np.float32), 0.6), (np.arange(5, dtype=np.float32)[:, None], 0.99)):
        assert fewest_alerts(AllowedRate(rate, Calibration.from_terms(scores, rate)), LATEST) is None


def test_it_is_over_once_no_more_than_the_plausible_share_alerts() -> None:
    rule = allowed(99)
    plausible = 0.3 + 0.7 * rule.highest
    n = math.floor(100 * plausible)
    assert rule.is_kept_again_by(n, 100)
    assert not rule.is_kept_again_by(n + 1, 100)


def test_a_plant_with_three_faults_in_ten_is_not_called_changed() -> None:
    """20 plants of 2,000 sequences each, with the calibration's own uncertainty: the bound is 20 x 0.003."""
    rng, false = np.random.default_rng(1), 0
    for _ in range(20):
        scores = np.sort(rng.gamma(2.0, size=99))
        rule = AllowedRate(0.02, Calibration.from_terms(scores[:, None].astype(np.float32), 0.02))
        alerts = (rng.gamma(2.0, size=2_000) > scores[-2]) | (rng.uniform(size=2_000) < 0.3)
        totals = np.cumsum(np.r_[0, alerts])
        for end in range(FEWEST, 2_001):
            begin = max(0, end - LATEST)
            false += rule.is_exceeded_by(int(totals[end] - totals[begin]), end - begin)
    assert false == 0
