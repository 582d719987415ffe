from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamad.testing import check_detector
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions, NeutralADTabular, NeutralADTabularOptions
from tests.support.detectors import ROWS, SEQUENCES
from tests.unit.models.small import PARAMETRISATIONS


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_neutral_ad_keeps_the_laws_of_a_detector(tmp_path: Path, parametrisation: Any) -> None:
    options = NeutralADOptions(transformation=parametrisation, n_transformations=4, embedding_dim=8, epochs=20)
    check_detector(lambda: NeutralAD(options), **SEQUENCES._asdict(), folder=tmp_path)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_neutral_ad_for_tables_keeps_the_laws_of_a_detector(
    tmp_path: Path, parametrisation: Any, batch_norm: bool
) -> None:
    epochs = 300 if batch_norm else 60  # of 36 rows: their batches' means scatter, so it takes longer
    options = NeutralADTabularOptions(
        transformation=parametrisation, batch_norm=batch_norm, batch_size=16, epochs=epochs
    )
    check_detector(lambda: NeutralADTabular(options), **ROWS._asdict(), folder=tmp_path)
