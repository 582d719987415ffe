from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad.types import WindowSet
from streamad_models.simple import Pointwise, PointwiseOptions
from streamad_models.simple.by_place import Deviation


def test_a_term_is_the_root_mean_square_of_the_robust_z_of_its_channel() -> None:
    readings = torch.tensor([[[0.0, 10.0]], [[1.0, 10.0]], [[2.0, 10.0]], [[3.0, 10.0]], [[100.0, 10.0]]])
    module = Deviation(readings, floor=0.5)  # medians 2 and 10, median absolute deviations 1 and 0
    found = module.of(torch.tensor([[[2.0, 11.0]], [[5.0, 10.0]]]))
    spread = 1.4826 + 0.5
    expected = [np.sqrt((1 / 0.5) ** 2 / 2), np.sqrt((3 / spread) ** 2 / 2)]
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)


def test_a_fault_of_a_channel_is_in_its_own_term() -> None:
    rng = np.random.default_rng(0)
    values = (np.sin(np.arange(30) / 3) + rng.normal(0, 0.1, (40, 3, 30))).astype(np.float32)
    lengths = np.full(40, 30, np.int64)
    fitted = Pointwise().fit(WindowSet(values, lengths, tuple(map(str, range(40)))), seed=0, device="cpu")
    odd = values[:1].copy()
    odd[0, 1] += 2.0
    before, after = (fitted.score(part, lengths[:1])[0] for part in (values[:1], odd))
    assert after[1] > 5 * before[1]
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


def test_up_to_ten_training_windows_score_exactly_without_themselves() -> None:
    rng = np.random.default_rng(0)
    readings = torch.from_numpy(rng.normal(size=(9, 2, 5)).astype(np.float32))
    _, own = Pointwise(PointwiseOptions(n_places=5)).fit_distance(readings, torch.full((9,), 5), seed=0)
    for i in range(9):
        rest = readings[torch.arange(9) != i]
        torch.testing.assert_close(own[i], Deviation(rest, 0.05).of(readings[i : i + 1])[0])


def test_the_same_course_at_another_length_is_as_usual() -> None:
    lengths = np.tile([40, 30, 21], 6).astype(np.int64)
    values = np.zeros((18, 1, 40), np.float32)
    for window, length in zip(values, lengths, strict=True):
        window[0, :length] = np.sin(np.linspace(0, 3, length))
    fitted = Pointwise().fit(WindowSet(values, lengths, tuple(map(str, range(18)))), seed=0, device="cpu")
    assert fitted.score(values, lengths).max() < 0.1
    level = values[:1] * 0 + 0.5
    assert fitted.score(level, lengths[:1])[0, 0] == pytest.approx(20, rel=0.9)
