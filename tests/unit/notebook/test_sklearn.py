"""The detector as an estimator of scikit-learn's, as far as its conventions hold for sequences."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import (
    check_estimator_cloneable,
    check_estimator_repr,
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from streamad.errors import InputError
from streamad.sklearn import SequenceDetector
from tests.support.walks import walks, with_faults

X = np.concatenate([walks(60), with_faults(walks(20, 1))])
Y = np.r_[np.ones(60), -np.ones(20)].astype(int)


def detector() -> SequenceDetector:
    return SequenceDetector(false_alarm_rate=0.05, detector="nearest")


@pytest.mark.parametrize(
    "check",
    [
        check_estimator_cloneable,
        check_estimator_repr,
        check_get_params_invariance,
        check_no_attributes_set_in_init,
        check_parameters_default_constructible,
        check_set_params,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_own_checks_pass_that_give_no_table(check: object) -> None:
    assert callable(check)
    check("SequenceDetector", detector())


def test_signs_are_scikit_learns_and_agree() -> None:
    fitted = detector().fit(X, Y)
    found = fitted.predict(X)
    assert found[60:].tolist() == [-1] * 20
    np.testing.assert_array_equal(found == -1, fitted.decision_function(X) < 0)
    np.testing.assert_allclose(fitted.decision_function(X), fitted.score_samples(X) - fitted.offset_)
    np.testing.assert_array_equal(found == -1, fitted.p_values(X) <= 0.05)
    assert fitted.model_.manifest.metrics.n_training == 60
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), found)  # noqa: S301 - made here


def test_the_sequence_at_the_threshold_is_an_outlier() -> None:
    fitted = detector().fit(walks(60))
    fitted.offset_ = float(fitted.score_samples(X[60:61])[0])
    assert fitted.decision_function(X[60:61])[0] < 0


def test_a_clone_in_a_pipeline_is_cross_validated() -> None:
    pipeline = make_pipeline(FunctionTransformer(np.nan_to_num), clone(detector()))
    scores = cross_val_score(pipeline, X, Y, scoring="roc_auc", cv=StratifiedKFold(2))
    assert (scores > 0.95).all()


def test_lists_of_sequences_of_different_length_are_fitted() -> None:
    fitted = detector().fit([each[:, : 30 + place % 10] for place, each in enumerate(walks(60))])
    assert fitted.predict([X[70][:, :35]]).tolist() == [-1]


@pytest.mark.parametrize("y", [[0] * 60 + [1] * 20, ["normal"] * 80, [-1] * 80], ids=["0 and 1", "names", "none"])
def test_labels_of_another_convention_are_refused(y: list[object]) -> None:
    with pytest.raises(InputError, match=r"\+1"):
        detector().fit(X, y)


@pytest.mark.parametrize("y", [np.ones(40), np.ones(90), np.ones((80, 1)), 1], ids=["few", "many", "table", "one"])
def test_labels_are_one_for_each_sequence(y: object) -> None:
    with pytest.raises(InputError, match="one label for each"):
        detector().fit(X, y)


def test_nothing_is_predicted_before_it_is_fitted() -> None:
    with pytest.raises(NotFittedError):
        detector().predict(X)
