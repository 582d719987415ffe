"""AUC with ties, exact intervals, and figures of a labelled replay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom, binomtest

from streamad.judge.evaluation import alerts_by_chance, auc, clopper_pearson, evaluate


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(pairs):
    positive = [s for s, label in pairs if label]
    negative = [s for s, label in pairs if not label]
    if not positive or not negative:
        with pytest.raises(ValueError, match="anomalous and normal"):
            auc([s for s, _ in pairs], [label for _, label in pairs])
        return
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    assert auc(*zip(*pairs, strict=True)) == pytest.approx(wins / len(positive) / len(negative))


def test_auc_takes_infinity_and_refuses_nan():
    assert auc([0, np.inf], [0, 1]) == 1.0
    with pytest.raises(ValueError, match="NaN"):
        auc([1, np.nan], [0, 1])


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),  # published: exact 95 % intervals, e.g. R's binom.test
    [(0, 10, 0.0, 0.3084971), (10, 10, 0.6915029, 1.0), (1, 10, 0.002528579, 0.4450161), (7, 20, 0.1539092, 0.5921885)],
)
def test_clopper_pearson(k, n, low, high):
    assert clopper_pearson(k, n) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_clopper_pearson_refuses_impossible_counts(k, n):
    with pytest.raises(ValueError, match="must"):
        clopper_pearson(k, n)


@pytest.mark.parametrize(
    ("scores", "alerts", "labels", "counts", "shares"),
    [
        ([1, 5, 2, 9, 4], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1], (3, 2, 0), (1 / 2, 5 / 6)),
        # An unscorable sequence is neither found nor a false alarm.
        ([1, None, 2, 9, None, None], [0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], (3, 3, 3), (1 / 3, 1.0)),
    ],
)
def test_evaluation_of_a_replay(scores, alerts, labels, counts, shares):
    found = evaluate(scores=scores, alerts=alerts, labels=labels)
    assert (found.n_normal, found.n_anomalous, found.n_unscorable) == counts
    assert (found.detection_rate, found.auc) == pytest.approx(shares)
    assert found.false_alarm_rate == pytest.approx(1 / 3)
    assert found.false_alarm_interval == clopper_pearson(1, 3)


def test_evaluation_of_a_kind_without_scores_or_sequences():
    found = evaluate(scores=[1, None], alerts=[False, False], labels=[0, 1])
    assert (found.auc, found.detection_rate, found.false_alarm_rate, found.n_unscorable) == (None, 0, 0, 1)
    found = evaluate(scores=[1, 2], alerts=[False, False], labels=[0, 0])
    assert (found.auc, found.detection_rate, found.false_alarm_rate) == (None, None, 0)
    assert evaluate([1], [True], [1]).false_alarm_interval is None


def test_each_label_has_its_rate_and_its_auc_against_all_normal_sequences():
    names = ["fine", "good", "good", "fault 10", "fault 10", "fault 2", "fault 2", "lost"]
    found = evaluate(
        scores=[1, 2, 3, 2.5, None, 4, 0, None],
        alerts=[0, 0, 1, 1, 0, 1, 0, 0],
        labels=[0, 0, 0, 1, 1, 1, 1, 1],
        names=names,
    )
    assert [(one.label, one.is_anomalous) for one in found.by_label] == [
        ("fault 2", True),
        ("fault 10", True),
        ("lost", True),
        ("good", False),
        ("fine", False),
    ]
    two, ten, lost, good, fine = found.by_label
    assert [(one.n_sequences, one.n_alerts, one.n_unscorable) for one in found.by_label] == [
        (2, 1, 0),
        (2, 1, 1),
        (1, 0, 1),
        (2, 1, 0),
        (1, 0, 0),
    ]
    assert (two.auc, ten.auc) == pytest.approx((3 / 6, 2 / 3))
    assert (lost.auc, good.auc, fine.auc) == (None, None, None)
    assert [one.rate for one in found.by_label] == [1 / 2, 1 / 2, 0, 1 / 2, 0]
    assert [one.interval for one in (two, lost, good)] == [
        clopper_pearson(1, 2),
        clopper_pearson(0, 1),
        clopper_pearson(1, 2),
    ]
    assert (found.detection_rate, found.detection_interval) == (2 / 5, clopper_pearson(2, 5))


def test_one_text_may_be_a_normal_and_an_anomalous_label_of_two_streams_and_counts_apart():
    found = evaluate([1, 2], [False, True], [0, 1], ["a", "a"])
    assert [(one.is_anomalous, one.n_alerts, one.auc) for one in found.by_label] == [(True, 1, 1.0), (False, 0, None)]


def test_sequences_that_set_the_threshold_have_a_rate_without_an_interval():
    found = evaluate([1, 2, 3], [False, True, True], [0, 0, 1], ["a", "b", "c"], normal_calibrated=True)
    assert (found.false_alarm_rate, found.false_alarm_interval) == (1 / 2, None)
    assert [(one.label, one.interval) for one in found.by_label] == [
        ("c", clopper_pearson(1, 1)),
        ("a", None),
        ("b", None),
    ]
    assert found.detection_interval == clopper_pearson(1, 1)


@pytest.mark.parametrize(
    ("n_judged", "n_calibration", "rate", "expected"),
    [
        (200, 99, 0.02, (0, 13)),  # the binomial law alone: 1 to 8
        (0, 99, 0.02, (0, 0)),
        (200, 48, 0.02, None),  # 1/49 is above the rate
        (200, 49, 0.02, (0, 16)),
    ],
)
def test_alerts_by_chance(n_judged, n_calibration, rate, expected):
    assert alerts_by_chance(n_judged, n_calibration, rate) == expected


def test_alerts_by_chance_hold_for_exchangeable_scores():
    """Calibration and sequences drawn together 4,000 times: 95 % of the counts lie within."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 99 + 200))
    limit = np.sort(scores[:, :99], axis=1)[:, -2]  # p = 2 / 100
    counts = (scores[:, 99:] > limit[:, None]).sum(axis=1)
    low, high = alerts_by_chance(200, 99, 0.02)
    assert 0.94 <= ((counts >= low) & (counts <= high)).mean() <= 0.99
    assert (counts > high).mean() < 0.04


@given(st.integers(1, 3000), st.data())
def test_clopper_pearson_is_scipy_s(n, data):
    k = data.draw(st.integers(0, n))
    assert clopper_pearson(k, n) == pytest.approx(tuple(binomtest(k, n).proportion_ci(0.95)), abs=1e-10)


@given(st.integers(1, 3000), st.integers(100, 3000), st.sampled_from([0.01, 0.02, 0.1, 0.5]))
def test_alerts_by_chance_are_scipy_s_beta_binomial(n_judged, n_calibration, rate):
    rank = int((n_calibration + 1) * rate + 1e-9)
    law = betabinom(n_judged, rank, n_calibration + 1 - rank)
    assert alerts_by_chance(n_judged, n_calibration, rate) == (law.ppf(0.025), law.ppf(0.975))
