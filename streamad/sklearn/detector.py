"""The detector as a scikit-learn estimator (extra ``sklearn``): ``clone``, pipelines and ``cross_val_score``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamad.errors import InputError
from streamad.notebook.arguments import whole
from streamad.notebook.fitting import fit
from streamad.notebook.model import Model
from streamad.notebook.sequences import FrameColumns, sequences_of

try:
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils.validation import check_is_fitted, check_random_state
except ImportError as error:
    raise ImportError("streamad.sklearn needs scikit-learn: pip install 'streamad-monitor[sklearn]'") from error


class SequenceDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An outlier detector for sequences X: an array [N, C, T], or a list of arrays [C, T] (see ``streamad.fit``).

    scikit-learn's signs: ``predict`` gives +1 for inliers and -1 for outliers, ``score_samples`` and
    ``decision_function`` are low for anomalies, the latter negative exactly where ``predict`` is -1. The rate at which
    normal sequences are outliers is ``false_alarm_rate``, in the place of a contamination. The arguments are those of
    ``streamad.fit``; ``random_state`` (a number, a RandomState or None) is its seed. ``model_`` is the fitted
    ``streamad.Model``, ``offset_`` the score from which on sequences alert, negated.
    """

    def __init__(
        self,
        *,
        false_alarm_rate: float = 0.02,
        detector: str = "ensemble",
        options: Mapping[str, Any] | None = None,
        effort: Literal["quick", "normal", "thorough"] | None = None,
        window: Mapping[str, Any] | None = None,
        random_state: Any = 0,
        device: str = "auto",
    ) -> None:
        self.false_alarm_rate = false_alarm_rate
        self.detector = detector
        self.options = options
        self.effort = effort
        self.window = window
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> SequenceDetector:
        """Fit on the normal sequences X; if ``y`` is given, on those whose label is +1 (inliers).

        Raises InputError, TrainingDataError, DetectorError.
        """
        if y is not None:
            sequences, is_inlier = sequences_of(X, FrameColumns()), _is_inlier(y)
            if is_inlier.shape != (len(sequences),):
                raise InputError(
                    f"y has the shape {is_inlier.shape} for {len(sequences)} sequences: it is one label for each"
                )
            if not is_inlier.any():
                raise InputError("y calls no sequence normal: +1 means normal")
            kept = (each for each, is_kept in zip(sequences, is_inlier, strict=True) if is_kept)
            X = replace(sequences, items=tuple(kept))
        self.model_: Model = fit(
            X,
            false_alarm_rate=self.false_alarm_rate,
            detector=self.detector,
            options=self.options,
            effort=self.effort,
            window=self.window,
            seed=_seed(self.random_state),
            device=self.device,
            verbose=False,
        )
        self.n_features_in_ = len(self.model_.channels)
        self.offset_ = -self.model_.threshold
        return self

    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the negated scores float64 [N]: low for anomalies. Raises InputError for a wrong X."""
        check_is_fitted(self)
        return -self.model_.decision_function(X)

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the scores float64 [N] relative to the threshold: negative for outliers.

        Raises InputError for a wrong X.
        """
        shifted = self.score_samples(X) - self.offset_
        # Alerts begin at the threshold itself, which scikit-learn's sign counts as an inlier.
        return np.where(shifted == 0, -np.finfo(np.float64).tiny, shifted)

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return +1 for inliers and -1 for outliers, int64 [N]. Raises InputError if a sequence has no score."""
        check_is_fitted(self)
        return 1 - 2 * self.model_.predict(X)

    def p_values(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the conformal p-values float64 [N]. Raises InputError for a wrong X."""
        check_is_fitted(self)
        return self.model_.p_values(X)

    def __sklearn_tags__(self) -> Any:
        """Say that X has three dimensions and may have missing values."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


def _seed(random_state: Any) -> int:
    """Return a number for scikit-learn's random states, another for each call."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    return whole("random_state", random_state, "a whole number from 0 on, a RandomState, or None")


def _is_inlier(y: Any) -> npt.NDArray[np.bool_]:
    labels = np.asarray(y)
    if labels.dtype.kind not in "biuf" or not np.isin(labels, (-1, 0, 1)).all():
        raise InputError("y is +1 for inliers and -1 for outliers")
    if (labels == -1).any():
        return np.asarray(labels == 1)
    if (labels == 0).any() and (labels == 1).any():
        raise InputError(
            "y holds 0 and 1, which others read the other way round: write +1 for inliers, -1 for outliers"
        )
    return np.ones(labels.shape, dtype=np.bool_)
