from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamad.errors import TrainingDataError
from streamad.testing import check_detector
from streamad_models.baselines.estimators.rockad import Rockad, RockadOptions
from tests.support.detectors import ROWS, SEQUENCES

SMALL = RockadOptions(n_kernels=20, n_estimators=3)


def test_it_keeps_the_laws_of_a_detector(tmp_path: Path) -> None:
    check_detector(lambda: Rockad(SMALL), normal=SEQUENCES.normal, anomalous=SEQUENCES.anomalous, folder=tmp_path)


def test_fewer_windows_than_neighbours_are_neighbours_all() -> None:
    fitted = Rockad(SMALL).fit(SEQUENCES.normal.take(np.arange(4)), seed=0)
    assert fitted.score(SEQUENCES.anomalous.values, SEQUENCES.anomalous.lengths).min() > 1


def test_another_seed_draws_other_kernels() -> None:
    first, other = (Rockad(SMALL).fit(SEQUENCES.normal, seed=seed) for seed in (0, 1))
    windows, lengths = SEQUENCES.normal.values, SEQUENCES.normal.lengths
    assert not np.array_equal(first.score(windows, lengths), other.score(windows, lengths))


def test_windows_shorter_than_a_kernel_are_refused() -> None:
    with pytest.raises(TrainingDataError, match="windows of length 1: ROCKET takes 11 and more"):
        Rockad().fit(ROWS.normal, seed=0)
