from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.judge.evaluation import auc
from streamad.testing import check_detector
from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from tests.support.detectors import SEQUENCES
from tests.unit.models.small import PARAMETRISATIONS, sines


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_neutral_ad_keeps_the_laws_of_a_detector(tmp_path: Path, parametrisation: Any) -> None:
    options = NeutralADOptions(transformation=parametrisation, n_transformations=4, embedding_dim=8, epochs=20)
    check_detector(lambda: NeutralAD(options), **SEQUENCES._asdict(), folder=tmp_path)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("k", [2, 3, 8, 15])
def test_from_2_to_15_transformations_train_and_score(k: int, parametrisation: Any) -> None:
    options = NeutralADOptions(n_transformations=k, transformation=parametrisation, epochs=1, base_width=8)
    data = sines(12, n_channels=2, length=9)
    fitted = NeutralAD(options).fit(data, seed=0, device="cpu")
    terms = fitted.score(data.values, data.lengths)
    assert terms.shape == (len(data), k)
    assert np.isfinite(terms).all()
    assert 0 < fitted.summary.best_loss < 10


def test_default_options_separate_a_natops_class_from_the_rest(data_file: Callable[[str], Path]) -> None:
    with np.load(data_file("natops.npz"), allow_pickle=False) as arrays:
        train, test = (np.nan_to_num(arrays[f"{part}_x"]).astype(np.float32) for part in ("train", "test"))
        lengths, test_lengths, y, test_y = (arrays[name] for name in ("train_len", "test_len", "train_y", "test_y"))
    normal = np.flatnonzero(y == y.min())
    training = WindowSet(train[normal], lengths[normal].astype(np.int64), tuple(map(str, normal)))
    fitted = NeutralAD(NeutralADOptions(epochs=40)).fit(training, seed=0, device="cpu")
    scores = fitted.score(test, test_lengths.astype(np.int64)).sum(axis=1)
    assert auc(scores, test_y != test_y.min()) >= 0.90
