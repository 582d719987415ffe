"""Every method of the study draws with its seed: another one gives other scores, but where it draws nothing.

That the same seed gives the same scores is a law of every detector (``streamad.testing.check_detector``).
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper.methods import METHODS, fits, make
from streamad.types import FloatArray
from tests.support.detectors import Case, rows, sequences

CASES = {
    "racket_sports": Case(sequences(16), sequences(4, anomalous=True)),
    "thyroid": Case(rows(16), rows(4, anomalous=True)),
}
SMALL = {"epochs": 1, "n_features": 168, "n_kernels": 20, "n_estimators": 3}
PLACES = [(method, dataset) for method in METHODS for dataset in CASES if fits(method, dataset)]


def scored(method: str, dataset: str, case: Case, seed: int) -> FloatArray:
    """Return the terms of all windows after one epoch, by few features and kernels, where there are such."""
    small = {name: SMALL[name] for name in SMALL if name in make(method, dataset).options_model.model_fields}
    fitted = make(method, dataset, small).fit(case.normal, seed=seed, device="cpu")
    return np.concatenate([fitted.score(part.values, part.lengths) for part in case])


@pytest.mark.parametrize(("method", "dataset"), PLACES)
def test_another_seed_gives_other_scores_unless_nothing_is_drawn(method: str, dataset: str) -> None:
    first, other = (scored(method, dataset, CASES[dataset], seed) for seed in (0, 1))
    assert np.array_equal(first, other) == METHODS[method].is_deterministic
