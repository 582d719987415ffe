"""The detector as an estimator of scikit-learn's, as far as its conventions hold for sequences."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted, validate_data

from streamad.errors import InputError, TrainingDataError
from streamad.sklearn import SequenceDetector
from tests.support.walks import walks, with_faults

X = np.concatenate([walks(60), with_faults(walks(20, 1))])
Y = np.r_[np.ones(60), -np.ones(20)].astype(int)


def detector() -> SequenceDetector:
    return SequenceDetector(false_alarm_rate=0.05, detector="nearest")


class OfTables(SequenceDetector):
    """The detector on tables [N, T], each row a sequence of one channel: what scikit-learn's own checks give.

    Their labels are classes, which say nothing of outliers, so ``y`` is left out.
    """

    def fit(self, X: Any, y: Any = None) -> OfTables:
        rows = validate_data(self, X, ensure_all_finite="allow-nan")
        super().fit(rows[:, None, :])
        self.n_features_in_ = rows.shape[1]
        return self

    def _sequences(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, ensure_all_finite="allow-nan", reset=False)[:, None, :]

    def score_samples(self, X: Any) -> Any:
        return super().score_samples(self._sequences(X))

    def predict(self, X: Any) -> Any:
        return super().predict(self._sequences(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags


def of_tables() -> OfTables:
    return OfTables(false_alarm_rate=0.05, detector="nearest", window={"max_missing": 0.7})


def check_name(check: Any) -> str:
    own = getattr(check, "func", check)
    return own.__name__ + ("_" + "_".join(check.keywords) if isinstance(check, partial) and check.keywords else "")


# Not those of scikit-learn's array API, which must be chosen before scipy is imported: the detector knows numpy alone.
CHECKS = {
    name: check
    for _, check in estimator_checks_generator(of_tables(), legacy=True)
    if "array_api" not in (name := check_name(check))
}
EXPECTED = {
    "check_fit2d_1sample": "1 training sequences, but 5 folds need at least 10",  # it looks for "1 sample"
    "check_fit2d_1feature": "too few samples: 1, needed are 2",  # it looks for "1 feature", which is a point here
}


@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.notebook.fitting.proved_in_new_process", lambda *_: ())
    check = CHECKS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies among their sequences, and rows of fewer than two points
        if name in EXPECTED:
            with pytest.raises((TrainingDataError, AssertionError), match=EXPECTED[name]):
                check(of_tables())
        else:
            check(of_tables())


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


def test_random_states_are_scikit_learns() -> None:
    drawn = [SequenceDetector(detector="nearest", random_state=np.random.RandomState(5)).fit(X[:60]) for _ in "12"]
    seeds = [each.model_.settings.model.seed for each in drawn]
    assert seeds[0] == seeds[1] != 0
    assert SequenceDetector(detector="nearest", random_state=None).fit(X[:60]).model_.settings.model.seed != seeds[0]
    with pytest.raises(InputError, match="random_state is 'x'"):
        SequenceDetector(random_state="x").fit(X[:60])


def test_labels_stand_beside_frames_and_lists_too() -> None:
    rows = [
        {"id": f"batch {place}", "time": point, "a": a, "b": b}
        for place, each in enumerate(X)
        for point, (a, b) in enumerate(each.T.tolist())
    ]
    for given in (pd.DataFrame(rows), list(X)):
        fitted = detector().fit(given, Y)
        assert fitted.model_.manifest.metrics.n_training == 60
        np.testing.assert_array_equal(fitted.predict(given), detector().fit(X, Y).predict(X))
    with pytest.raises(InputError, match="X is no array"):
        detector().fit(None, Y)


def test_a_list_of_different_lengths_is_cross_validated() -> None:
    sequences = [each[:, : 30 + place % 10] for place, each in enumerate(X)]
    scores = cross_val_score(detector(), sequences, Y, scoring="roc_auc", cv=StratifiedKFold(2))
    assert (scores > 0.95).all()


def test_nothing_is_predicted_before_it_is_fitted() -> None:
    with pytest.raises(NotFittedError):
        detector().predict(X)
