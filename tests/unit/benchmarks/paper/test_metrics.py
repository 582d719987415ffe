"""Average precision and F1 of the study: against scikit-learn, and for ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from benchmarks.paper.metrics import average_precision, f1_at_true_fraction

LABELLED = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40).filter(
    lambda pairs: any(label for _, label in pairs)
)


@given(LABELLED)
def test_average_precision_is_scikit_learn_s_ties_and_all(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = zip(*pairs, strict=True)
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))


def test_f1_without_ties_is_that_of_flagging_as_many_as_are_anomalous() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(200) < 0.2
    scores = rng.permutation(200) + 60.0 * labels
    flagged = scores >= np.sort(scores)[-labels.sum()]
    assert flagged.sum() == labels.sum()
    assert f1_at_true_fraction(scores, labels) == pytest.approx(f1_score(labels, flagged))


def test_f1_counts_those_that_tie_at_the_threshold_by_their_share_of_anomalies() -> None:
    # Two are anomalous; one scores 2, and of the four that tie at 1 one more is flagged: an anomaly with chance 1/4.
    assert f1_at_true_fraction([2, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]) == pytest.approx((1 + 1 / 4) / 2)
    assert f1_at_true_fraction([0, 0, 0, 0], [1, 0, 0, 0]) == pytest.approx(1 / 4)


@given(LABELLED, st.randoms(use_true_random=False))
def test_the_order_of_equal_scores_does_not_matter(pairs: list[tuple[int, bool]], random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for metric in (average_precision, f1_at_true_fraction):
        assert metric(*zip(*pairs, strict=True)) == pytest.approx(metric(*zip(*shuffled, strict=True)))


@pytest.mark.parametrize("metric", [average_precision, f1_at_true_fraction])
def test_nothing_to_find_and_nan_are_errors(metric: object) -> None:
    with pytest.raises(ValueError, match="no anomaly"):
        metric([1.0, 2.0], [False, False])  # type: ignore[operator]
    with pytest.raises(ValueError, match="NaN"):
        metric([1.0, float("nan")], [True, False])  # type: ignore[operator]
