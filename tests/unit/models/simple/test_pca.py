from __future__ import annotations

import numpy as np
import torch

from streamad_models.simple import PCA, PCAOptions
from streamad_models.simple.components import Residual, leading_components


def plane(n: int, seed: int = 0) -> torch.Tensor:
    """Readings [n, 1, 3] whose variance lies along the axes: 16, 4 and almost none."""
    rows = np.random.default_rng(seed).normal(size=(n, 3)) * np.array([4.0, 2.0, 0.01]) + 7.0
    return torch.from_numpy(rows.astype(np.float32))[:, None]


def test_what_lies_outside_the_leading_components_is_the_residual() -> None:
    module = Residual(plane(500), explained=0.95)  # the first axis alone has 80 %
    assert module.basis_DM.shape == (3, 2)
    mean = module.mean_D
    offsets = torch.tensor([[5.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 6.0], [1.0, 1.0, 6.0]])
    found = module.of((mean + offsets)[:, None])[:, 0]
    np.testing.assert_allclose(found, [0.0, 0.0, 6 / np.sqrt(3), 6 / np.sqrt(3)], atol=0.05)


def test_as_many_components_are_taken_as_explain_the_share() -> None:
    rows = plane(500).flatten(1).numpy().astype(np.float64)
    rows -= rows.mean(axis=0)
    assert [leading_components(rows, share).shape[1] for share in (0.5, 0.9, 0.99999999)] == [1, 2, 3]
    few = np.random.default_rng(0).normal(size=(8, 50))
    few -= few.mean(axis=0)
    assert leading_components(few, 0.999).shape == (50, 6)
    assert leading_components(np.zeros((8, 50)), 0.9).shape == (50, 0)


def test_fewer_windows_than_readings_have_the_same_components_as_by_singular_values() -> None:
    rows = np.random.default_rng(0).normal(size=(12, 40)) @ np.diag(np.linspace(3, 0.1, 40))
    rows -= rows.mean(axis=0)
    found = leading_components(rows, 0.8)
    right = np.linalg.svd(rows)[2][: found.shape[1]].T
    np.testing.assert_allclose(found @ found.T, right @ right.T, atol=1e-9)


def test_up_to_ten_training_windows_score_exactly_without_themselves() -> None:
    readings = torch.from_numpy(np.random.default_rng(0).normal(size=(10, 2, 5)).astype(np.float32))
    _, own = PCA(PCAOptions(n_places=5, explained=0.7)).fit_distance(readings, torch.full((10,), 5), seed=0)
    for i in range(10):
        rest = readings[torch.arange(10) != i]
        torch.testing.assert_close(own[i], Residual(rest, 0.7).of(readings[i : i + 1])[0])
