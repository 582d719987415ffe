"""The p-value is exact with ties, its false-alarm rate holds, and the extrapolated tail behaves like one."""

import bisect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2, expon, gamma, genpareto, lognorm, norm

from streamad.errors import ArtifactError
from streamad.judge.calibration import Calibration, calibration_sequences_for, certifiable_rate, score_of


def calibration(scores, false_alarm_rate=None) -> Calibration:
    return Calibration.from_terms(np.array(scores, dtype=np.float32)[:, None], false_alarm_rate)


@pytest.mark.parametrize(
    ("score", "at_least"),
    [(0.9, 6), (1.0, 6), (1.1, 5), (2.0, 5), (2.1, 2), (3.0, 2), (3.1, 1), (9.0, 1), (9.1, 0)],
)
def test_p_value_counts_ties_as_at_least_as_high(score, at_least):
    table = calibration([3, 1, 2, 2, 9, 2])
    assert table.p_value(float(np.float32(score))) == ((1 + at_least) / 7, "empirical")


def test_p_value_of_a_score_is_the_sum_of_its_terms_in_float64():
    terms = np.array([[0.1, 0.2, 0.3], [1e8, 1.0, -1e8]], dtype=np.float32)
    table = Calibration.from_terms(terms)
    assert score_of(terms[1]) == 1.0
    assert table.p_value(score_of(terms[1])) == (2 / 3, "empirical")


def test_certifiable_rate_is_reached_by_the_highest_score_and_only_then():
    table = calibration(range(49), false_alarm_rate=certifiable_rate(49))
    assert table.tail == "empirical"
    assert table.p_value(48.5)[0] == certifiable_rate(49) == 0.02
    assert table.p_value(48.0)[0] == 0.04
    assert calibration(range(49), false_alarm_rate=0.0199).tail == "extrapolated"


@pytest.mark.parametrize("terms", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3)])
def test_misshapen_terms_are_refused(terms):
    with pytest.raises(ArtifactError, match="train again"):
        Calibration.from_terms(terms.astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused(bad):
    with pytest.raises(ArtifactError, match="NaN or infinity"):
        calibration([1, bad])
    with pytest.raises(ValueError, match="finite"):
        calibration([1, 2]).p_value(bad)


def test_term_quantiles_are_per_transformation():
    table = Calibration.from_terms(np.array([[1, 40], [2, 30], [3, 20], [4, 10]], dtype=np.float32))
    assert table.term_quantiles(np.array([3.5, 10], dtype=np.float32)) == (0.75, 0.0)
    assert table.term_quantiles(np.array([0, 99], dtype=np.float32)) == (0.0, 1.0)


@pytest.mark.parametrize(("n", "rate"), [(99, 0.02), (49, 0.02), (199, 0.1), (150, 0.01)])
def test_false_alarm_rate_stays_within_binomial_bounds(n, rate):
    """Over many plants (fresh calibration, one new inlier each) alarms are at most nominal: the conformal promise."""
    rng = np.random.default_rng(7)
    plants = 4000
    alarms = sum(
        calibration(rng.gamma(2.0, size=n), rate).p_value(float(np.float32(rng.gamma(2.0))))[0] <= rate
        for _ in range(plants)
    )
    assert alarms <= binom.ppf(0.999, plants, rate)
    promised = np.floor(rate * (n + 1)) / (n + 1)  # exact for distinct scores
    assert alarms >= binom.ppf(0.001, plants, promised)


@pytest.mark.parametrize(
    ("law", "tolerance"), [(expon(), 0.4), (genpareto(0.3), 0.5), (genpareto(0.1, scale=1e-3), 0.4)]
)
def test_tail_of_a_large_set_meets_the_known_distribution(law, tolerance):
    table = calibration(law.rvs(4000, random_state=3), false_alarm_rate=1e-4)
    for p in (1e-2, 1e-3, 1e-4):
        found, tail = table.p_value(float(law.isf(p)))
        assert tail == "extrapolated"
        assert abs(np.log(found / p)) < tolerance * np.log(0.1 / p) / np.log(10)


@pytest.mark.parametrize("law", [norm(), gamma(2), lognorm(0.5)], ids=["normal", "gamma", "lognormal"])
@pytest.mark.parametrize(("n", "rate"), [(99, 0.005), (99, 0.001), (40, 0.01)])
def test_extrapolated_false_alarm_rate_stays_near_nominal_on_average(law, n, rate):
    rng = np.random.default_rng(11)
    inliers = law.isf(np.geomspace(0.2, 1e-7, 200))
    achieved = []
    for _ in range(30):
        table = calibration(law.rvs(n, random_state=rng), rate)
        first_alarm = bisect.bisect_left(inliers, True, key=lambda score: table.p_value(score)[0] <= rate)
        achieved.append(law.sf(inliers[first_alarm]) if first_alarm < len(inliers) else 0.0)
    assert np.mean(achieved) < 1.2 * rate


@pytest.mark.parametrize(
    ("law", "least"),
    [(gamma(4), 0.5), (lognorm(0.5), 0.5), (expon(), 0.2), (chi2(1), 0.05)],
    ids=["gamma", "lognormal", "exponential", "chi2"],
)
@pytest.mark.parametrize("n", [8, 16, 32, 48])
def test_with_few_scores_the_rate_is_about_the_configured_one_on_average(law, least, n):
    rng = np.random.default_rng(5)
    grid = law.isf(np.geomspace(0.4, 1e-6, 400))
    achieved = []
    for _ in range(200):
        table = calibration(law.rvs(n, random_state=rng), 0.02)
        first_alarm = bisect.bisect_left(grid, True, key=lambda score: table.p_value(score)[0] <= 0.02)
        achieved.append(law.sf(grid[first_alarm]) if first_alarm < len(grid) else 0.0)
    assert least * 0.02 < np.mean(achieved) < 1.5 * 0.02


def test_bounded_scores_are_never_called_impossible():
    """Uniform scores have an end point; the tail must stay on the safe side of it."""
    rng = np.random.default_rng(0)
    table = calibration(rng.uniform(size=99), false_alarm_rate=0.001)
    assert table.p_value(1.0)[0] > 0.001


def test_far_scores_keep_a_positive_p_value():
    table = calibration(np.random.default_rng(0).normal(size=99), false_alarm_rate=0.001)
    assert 0 < table.p_value(1e30)[0] < 1e-3


@pytest.mark.parametrize("scores", [[5.0], [5.0] * 50])
def test_scores_that_carry_no_tail_stay_empirical(scores):
    table = calibration(scores, false_alarm_rate=0.001)
    assert table.p_value(9.0) == (1 / (len(scores) + 1), "empirical")


@pytest.mark.parametrize("scores", [[1.0, 2.0], [0.0] * 49 + [1.0], [1e-30, 2e-30, 3e-30], [-1e30, 0.0, 1e30]])
def test_few_or_odd_scores_get_a_usable_tail(scores):
    table = calibration(scores, false_alarm_rate=0.001)
    beyond = [table.p_value(float(max(np.float32(scores)) * factor + 1e-35))[0] for factor in (1, 2, 5, 1e3)]
    assert all(0 < p < 1 for p in beyond)
    assert beyond == sorted(beyond, reverse=True)


@given(
    scores=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60),
    asked=st.lists(st.floats(-2e6, 2e6), min_size=2, max_size=10),
    rate=st.sampled_from([None, 0.2, 1e-3]),
)
def test_p_value_never_rises_with_the_score_and_lies_in_0_1(scores, asked, rate):
    table = calibration(scores, rate)
    p_values = [table.p_value(score)[0] for score in sorted(asked)]
    assert p_values == sorted(p_values, reverse=True)
    assert all(0 < p <= 1 for p in p_values)


@given(
    scores=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60),
    tail_rate=st.sampled_from([None, 0.2, 1e-3]),
    rate=st.floats(1e-6, 0.999),
)
def test_alert_score_is_the_lowest_with_a_p_value_within_the_rate(scores, tail_rate, rate):
    table = calibration(scores, tail_rate)
    lowest = table.alert_score(rate)
    if lowest == math.inf:
        assert table.p_value(1e300)[0] > rate
    elif lowest == -math.inf:
        assert table.p_value(-1e300)[0] <= rate
    else:
        assert table.p_value(lowest)[0] <= rate < table.p_value(float(np.nextafter(lowest, -math.inf)))[0]


@given(rate=st.floats(1e-6, 0.999))
def test_the_sequences_for_a_rate_certify_it_and_one_fewer_do_not(rate):
    n = calibration_sequences_for(rate)
    assert certifiable_rate(n) <= rate
    assert n == 1 or certifiable_rate(n - 1) > rate


@pytest.mark.parametrize(("rate", "n"), [(0.02, 49), (0.01, 99), (0.001, 999), (0.05, 19), (0.1, 9), (0.5, 1)])
def test_the_sequences_for_the_usual_rates(rate, n):
    assert calibration_sequences_for(rate) == n


def test_extrapolated_part_meets_the_empirical_part():
    scores = np.sort(np.random.default_rng(5).gamma(2.0, size=99).astype(np.float32)).astype(float)
    table = calibration(scores, false_alarm_rate=0.001)
    grid = np.linspace(scores[60], scores[-1], 4000)
    p_values = np.array([table.p_value(x)[0] for x in grid])
    assert np.abs(np.diff(p_values)).max() < 1.5 / 100
