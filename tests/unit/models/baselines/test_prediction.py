from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from streamad.errors import TrainingDataError
from streamad.testing import check_detector
from streamad_models.baselines.networks.other_losses import (
    LearnableViewsOptions,
    TransformationPrediction,
    TransformationPredictionNetwork,
    prediction_terms,
)
from tests.support.detectors import ROWS, SEQUENCES
from tests.unit.models.small import PARAMETRISATIONS, windows


def options(**changes: Any) -> LearnableViewsOptions:
    small = {"base_width": 8, "epochs": 10, "n_transformations": 4}
    return LearnableViewsOptions.model_validate({**small, **changes})


@pytest.mark.parametrize("transformation", PARAMETRISATIONS)
def test_it_keeps_the_laws_of_a_detector(transformation: str, tmp_path: Path) -> None:
    normal, anomalous = SEQUENCES
    chosen = options(transformation=transformation)
    check_detector(lambda: TransformationPrediction(chosen), normal=normal, anomalous=anomalous, folder=tmp_path)


def test_term_k_is_what_the_classifier_says_of_view_k() -> None:
    net = TransformationPredictionNetwork(3, 16, options(), torch.Generator().manual_seed(0))
    x_BCL, lengths_B = windows(5)
    with torch.no_grad():
        views_KLBC = net.transformations(x_BCL.permute(2, 0, 1))
        logits_BKK = torch.stack([net.encoder(view_LBC) for view_LBC in views_KLBC], dim=1)
        torch.testing.assert_close(net(x_BCL, lengths_B), prediction_terms(logits_BKK))


def test_the_transformations_learn_with_the_classifier() -> None:
    """The loss goes far below that of views that do not change, as proposition 1 lets it."""
    losses: list[float] = []
    detector = TransformationPrediction(options(epochs=60, learning_rate=3e-3))
    fitted = detector.fit(SEQUENCES.normal, seed=0, device="cpu", progress=lambda step: losses.append(step.loss))
    untrained = detector.build(3, 24, torch.Generator().manual_seed(0))
    assert losses[-1] < 0.05 * losses[0]
    assert not torch.equal(fitted.model.transformations.outwards, untrained.transformations.outwards)


def test_windows_of_one_sample_are_refused() -> None:
    with pytest.raises(TrainingDataError, match="at least 2 steps"):
        TransformationPrediction(options()).fit(ROWS.normal, seed=0, device="cpu")
