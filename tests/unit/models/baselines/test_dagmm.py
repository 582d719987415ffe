from __future__ import annotations

from pathlib import Path

import pytest

from streamad.testing import check_detector
from streamad_models.baselines.dagmm import Dagmm, DagmmOptions
from tests.support.detectors import ROWS, SEQUENCES, Case


@pytest.mark.parametrize("case", [SEQUENCES, ROWS], ids=["sequences", "rows"])
def test_it_keeps_the_laws_of_a_detector(case: Case, tmp_path: Path) -> None:
    options = DagmmOptions(epochs=30, batch_size=16)
    check_detector(lambda: Dagmm(options), normal=case.normal, anomalous=case.anomalous, folder=tmp_path)
