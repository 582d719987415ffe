"""The detector as a scikit-learn estimator (extra ``sklearn``)."""

from __future__ import annotations

__all__ = ["SequenceDetector"]

from streamad.sklearn.detector import SequenceDetector
