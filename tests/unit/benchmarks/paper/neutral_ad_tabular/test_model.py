from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.paper.neutral_ad_tabular.detector import NeutralADTabular
from benchmarks.paper.neutral_ad_tabular.model import TabularModel, TabularTransformations
from benchmarks.paper.neutral_ad_tabular.options import NeutralADTabularOptions
from streamad.errors import TrainingDataError
from streamad.ports import TrainingStep
from streamad.types import WindowSet
from streamad_models.neutral_ad.model import contrastive_terms
from tests.support.detectors import rows
from tests.unit.models.small import PARAMETRISATIONS


def options(**changes: Any) -> NeutralADTabularOptions:
    return NeutralADTabularOptions.model_validate({"n_transformations": 3, "epochs": 4, "batch_size": 16, **changes})


def fit(data: WindowSet | None = None, *, seed: int = 0, progress: Any = None, **changes: Any) -> Any:
    return NeutralADTabular(options(**changes)).fit(data or rows(), seed=seed, device="cpu", progress=progress)


def same_weights(one: Any, two: Any) -> bool:
    other = two.model.state_dict()
    return all(torch.equal(value, other[name]) for name, value in one.model.state_dict().items())


# --- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_the_views_are_those_of_separate_linear_networks(parametrisation: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    grouped = TabularTransformations(4, 5, parametrisation, width=7, generator=generator)
    x_BD = torch.randn(9, 5, generator=generator)
    views_KBD = grouped(x_BD)
    for k in range(4):
        mask_BD = torch.relu(x_BD @ grouped.inwards[k]) @ grouped.outwards[k]
        expected = {
            "feed_forward": mask_BD,
            "residual": mask_BD + x_BD,
            "multiplicative": torch.sigmoid(mask_BD) * x_BD,
        }[parametrisation]
        torch.testing.assert_close(views_KBD[k], expected)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_terms_are_the_contrastive_terms_of_the_embedded_views(batch_norm: bool) -> None:
    model = TabularModel(6, options(batch_norm=batch_norm), seed=1).eval()
    model.mean_C.fill_(2.0)
    model.scale_C.fill_(0.5)
    data = rows(5)
    x_BD = (torch.from_numpy(data.values)[:, :, 0] - 2.0) * 0.5
    with torch.no_grad():
        views = [x_BD, *model.transformations(x_BD)]
        z_BVZ = torch.stack([model.encoder(view_BD) for view_BD in views], dim=1)
        found = model(torch.from_numpy(data.values), torch.from_numpy(data.lengths))
    torch.testing.assert_close(found, contrastive_terms(z_BVZ, 0.1), atol=1e-5, rtol=1e-5)


def test_five_linear_layers_without_bias() -> None:
    model = TabularModel(6, options(encoder_width=9, embedding_dim=4, mask_width=5), seed=0)
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    assert shapes == {
        "transformations.inwards": (3, 6, 5),
        "transformations.outwards": (3, 5, 6),
        "encoder.layers.0.weight": (9, 6),
        "encoder.layers.2.weight": (9, 9),
        "encoder.layers.4.weight": (9, 9),
        "encoder.layers.6.weight": (9, 9),
        "encoder.layers.8.weight": (4, 9),
    }


def test_without_bias_the_score_is_of_the_direction_alone() -> None:
    """Why a table is scaled to its range, not centred: the size of a deviation must show in the direction."""
    data = rows(6)
    for parametrisation in ("feed_forward", "residual"):
        model = TabularModel(6, options(transformation=parametrisation), seed=0).eval()
        with torch.no_grad():
            terms = [model(factor * torch.from_numpy(data.values), torch.ones(6)) for factor in (1.0, 50.0)]
        torch.testing.assert_close(terms[0], terms[1], atol=1e-4, rtol=1e-4)


# --- training -------------------------------------------------------------------------------------------------------


def test_the_rate_is_halved_after_the_epoch_named() -> None:
    assert same_weights(fit(epochs=2, halve_rate_after=2), fit(epochs=2))
    assert not same_weights(fit(epochs=3, halve_rate_after=2), fit(epochs=3))
    chosen = options(learning_rate=4e-3, halve_rate_after=2)
    assert [chosen.learning_rate_of(epoch) for epoch in (1, 2, 3, 200)] == [4e-3, 4e-3, 2e-3, 2e-3]


def test_batch_norm_learns_its_statistics_in_training_and_keeps_them_in_scoring() -> None:
    fitted = fit(batch_norm=True, batch_size=48, scaling="none", validation=0.25)
    norm = fitted.model.encoder.layers[1]
    assert int(norm.num_batches_tracked) == 4  # an epoch is one batch; watching the validation share counts for nothing
    assert norm.running_mean.abs().sum() > 0.1
    before = norm.running_mean.clone()
    alone = fitted.score(rows(1).values, rows(1).lengths)
    among_others = fitted.score(np.concatenate([rows(1).values, 1e3 * rows(9).values]), np.ones(10, np.int64))[:1]
    np.testing.assert_allclose(alone, among_others, atol=1e-6)
    assert torch.equal(norm.running_mean, before)


def test_a_resumed_run_ends_as_the_uninterrupted_one_with_batch_norm_and_a_halved_rate(tmp_path: Path) -> None:
    def interrupt(step: TrainingStep) -> None:
        if step.epoch == 3:
            raise KeyboardInterrupt

    detector = NeutralADTabular(options(batch_norm=True, halve_rate_after=2))
    with pytest.raises(KeyboardInterrupt):
        detector.fit(rows(), seed=0, device="cpu", progress=interrupt, resume=tmp_path / "run")
    resumed = detector.fit(rows(), seed=0, device="cpu", resume=tmp_path / "run")
    assert same_weights(resumed, detector.fit(rows(), seed=0, device="cpu"))


def test_sequences_are_refused() -> None:
    windows = WindowSet(np.zeros((9, 2, 4), np.float32), np.full(9, 4, np.int64), tuple("abcdefghi"))
    with pytest.raises(TrainingDataError, match=r"length 4.*rows"):
        fit(windows)


def test_the_summary_has_the_values_of_auto() -> None:
    settings = fit(epochs=1, batch_size="quarter").summary.settings
    assert (settings["mask_width"], settings["encoder_width"], settings["embedding_dim"]) == (24, 24, 24)
    assert (settings["batch_size"], settings["seed"]) == (12, 0)
