from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.models.reference import SeparateMasks
from streamad_models.neutral_ad.networks import Transformations
from tests.unit.models.small import PARAMETRISATIONS


def _pair(k: int, c: int, length: int, parametrisation: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The grouped and the separate views [B, K, C, L] of the same windows and weights."""
    generator = torch.Generator().manual_seed(k * c * length)
    grouped = Transformations(k, c, parametrisation, generator)
    x_BCL = torch.randn(5, c, length, generator=generator)
    with torch.no_grad():
        return grouped(x_BCL.permute(2, 0, 1)).permute(2, 0, 3, 1), SeparateMasks(grouped)(x_BCL)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize(("k", "c", "length"), [(2, 1, 7), (3, 5, 16), (11, 24, 51), (7, 3, 2), (4, 2, 3), (4, 6, 5)])
def test_grouped_equals_separate(parametrisation: str, k: int, c: int, length: int) -> None:
    grouped, separate = _pair(k, c, length, parametrisation)
    torch.testing.assert_close(grouped, separate, atol=1e-5, rtol=0)


def test_the_views_differ_from_each_other() -> None:
    grouped, _ = _pair(4, 3, 12, "feed_forward")
    for k in range(1, 4):
        assert (grouped[:, k] - grouped[:, 0]).abs().mean() > 0.01
