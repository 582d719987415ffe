from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.paper.neutral_ad_tabular.detector import NeutralADTabular, check_training_rows
from benchmarks.paper.neutral_ad_tabular.options import NeutralADTabularOptions
from streamad.errors import TrainingDataError
from streamad.testing import check_detector
from streamad_models.neutral_ad.data import fit_scaling
from tests.support.detectors import ROWS, rows
from tests.unit.models.small import PARAMETRISATIONS, sines


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_it_keeps_the_laws_of_a_detector(tmp_path: Path, parametrisation: Any, batch_norm: bool) -> None:
    epochs, rate = (80, 3e-3) if batch_norm else (60, 1e-3)  # the means of batches of 16 rows scatter
    options = NeutralADTabularOptions(
        transformation=parametrisation, batch_norm=batch_norm, batch_size=16, epochs=epochs, learning_rate=rate
    )
    check_detector(lambda: NeutralADTabular(options), **ROWS._asdict(), folder=tmp_path)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("k", [2, 15])
def test_from_2_to_15_transformations_train_and_score(k: int, parametrisation: Any) -> None:
    options = NeutralADTabularOptions(n_transformations=k, transformation=parametrisation, epochs=1, batch_size=16)
    data = rows()
    fitted = NeutralADTabular(options).fit(data, seed=0, device="cpu")
    terms = fitted.score(data.values, data.lengths)
    assert terms.shape == (len(data), k)
    assert np.isfinite(terms).all()
    assert 0 < fitted.summary.best_loss < 10


def test_rows_need_windows_of_one_sample_and_may_have_a_constant_attribute() -> None:
    with pytest.raises(TrainingDataError, match="windows of length 16"):
        check_training_rows(sines())
    data = rows()
    data.values[:, 1] = 3.0
    check_training_rows(data)
    mean, scale = fit_scaling(data, "standard")
    assert (mean[1], scale[1]) == (3.0, 1.0)
    assert scale[0] == pytest.approx(1 / data.values[:, 0].std(), rel=1e-5)


def test_a_table_of_one_attribute_is_refused() -> None:
    data = rows()
    with pytest.raises(TrainingDataError, match="at least 2"):
        check_training_rows(replace(data, values=data.values[:, :1]))
    check_training_rows(replace(data, values=data.values[:, :2]))


def test_rows_must_be_finite_and_as_many_as_sequences() -> None:
    with pytest.raises(TrainingDataError, match="at least 8"):
        check_training_rows(rows(7))
    data = rows()
    data.values[3, 2] = np.inf
    with pytest.raises(TrainingDataError, match="channel 2"):
        check_training_rows(data)
