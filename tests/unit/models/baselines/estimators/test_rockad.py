from __future__ import annotations

import numpy as np

from streamad_models.baselines.estimators.rockad import Rockad, RockadOptions
from tests.support.detectors import SEQUENCES

SMALL = RockadOptions(n_kernels=20, n_estimators=3)


def test_fewer_windows_than_neighbours_are_neighbours_all() -> None:
    fitted = Rockad(SMALL).fit(SEQUENCES.normal.take(np.arange(4)), seed=0)
    assert fitted.score(SEQUENCES.anomalous.values, SEQUENCES.anomalous.lengths).min() > 1
