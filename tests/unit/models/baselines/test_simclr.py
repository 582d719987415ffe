from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from streamad.errors import TrainingDataError
from streamad.testing import check_detector
from streamad_models.baselines.networks.other_losses import (
    SimClr,
    SimClrNetwork,
    SimClrOptions,
    simclr_reference_terms,
    simclr_terms,
)
from tests.support.detectors import ROWS, SEQUENCES
from tests.unit.models.small import PARAMETRISATIONS, windows


def options(**changes: Any) -> SimClrOptions:
    small = {"embedding_dim": 8, "base_width": 8, "epochs": 5, "n_transformations": 4, "reference_size": 16}
    return SimClrOptions.model_validate({**small, **changes})


def network(**changes: Any) -> SimClrNetwork:
    return SimClrNetwork(3, 16, options(**changes), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("transformation", PARAMETRISATIONS)
def test_it_keeps_the_laws_of_a_detector_but_that_of_direction(transformation: str, tmp_path: Path) -> None:
    """Of these anomalies few score higher: see the next test for the reason."""
    normal, anomalous = SEQUENCES
    chosen = options(transformation=transformation)
    check_detector(lambda: SimClr(chosen), normal=normal, anomalous=anomalous, folder=tmp_path, min_auc=0.0)


def test_an_anomaly_far_from_all_training_windows_pays_less_for_its_negatives() -> None:
    """Two windows whose views agree as well: the one that is like the reference has the higher loss."""
    axes = torch.eye(4)
    reference_RKZ = axes[0].expand(8, 2, 4)
    like, unlike = (axes[i].expand(1, 2, 4) for i in (0, 1))
    like_score, unlike_score = (simclr_reference_terms(z, reference_RKZ, 0.1).sum() for z in (like, unlike))
    assert unlike_score < 0.01
    assert like_score > 2


def test_each_step_compares_two_transformations_drawn_for_it() -> None:
    net = network()
    x_BCL, lengths_B = windows(6)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        found = {round(net.loss(x_BCL, lengths_B, generator).item(), 4) for _ in range(60)}
        z_BKZ = net.embed(x_BCL, lengths_B)
    pairs = [(k, j) for k in range(4) for j in range(k)]
    losses = {round(simclr_terms(z_BKZ[:, k], z_BKZ[:, j], 0.1).mean().item(), 4) for k, j in pairs}
    assert found == losses


def test_the_reference_is_drawn_from_the_training_windows_by_the_seed() -> None:
    x_BCL, lengths_B = windows(40)
    net, same = network(), network()
    with torch.no_grad():
        for one in (net, same):
            one.after_training(x_BCL, lengths_B)
        z_NKZ = net.embed(x_BCL, lengths_B)
    assert net.reference_RKZ.shape == (16, 4, 8)
    assert torch.equal(net.reference_RKZ, same.reference_RKZ)
    distances_RN = (net.reference_RKZ[:, None] - z_NKZ).flatten(2).norm(dim=2)
    assert (distances_RN.min(dim=1).values < 1e-5).all()
    assert distances_RN.argmin(dim=1).unique().numel() == 16


def test_few_training_windows_are_all_in_the_reference() -> None:
    fitted = SimClr(options(reference_size=500, epochs=1)).fit(SEQUENCES.normal, seed=0, device="cpu")
    assert len(fitted.model.reference_RKZ) == len(SEQUENCES.normal)


def test_training_lowers_the_loss() -> None:
    losses: list[float] = []
    SimClr(options(epochs=30)).fit(
        SEQUENCES.normal, seed=0, device="cpu", progress=lambda step: losses.append(step.loss)
    )
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_windows_of_one_sample_are_refused() -> None:
    with pytest.raises(TrainingDataError, match="at least 2 steps"):
        SimClr(options()).fit(ROWS.normal, seed=0, device="cpu")
