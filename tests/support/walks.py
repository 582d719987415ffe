"""Random walks with and without faults, and models of them by the quickest kind of detector."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import streamad
from streamad import Model

Arrays = npt.NDArray[np.float64]


def walks(n: int, seed: int = 0, *, length: int = 40) -> Arrays:
    """Return ``n`` random walks of two channels around a common course, float64 [n, 2, length]."""
    rng = np.random.default_rng(seed)
    course = np.sin(np.linspace(0, 6, length))
    return course + 0.1 * rng.normal(size=(n, 2, length)).cumsum(axis=2)


def with_faults(X: Arrays) -> Arrays:
    """Return ``X`` with a step in the second half of the second channel."""
    faulty = X.copy()
    faulty[:, 1, X.shape[2] // 2 :] += 5.0
    return faulty


def fitted(X: Any, **more: Any) -> Model:
    """Return a model of ``X`` by the quickest kind of detector, at a rate of 5 %."""
    given: dict[str, Any] = {"false_alarm_rate": 0.05, "detector": "nearest", **more}
    return streamad.fit(X, **given)
