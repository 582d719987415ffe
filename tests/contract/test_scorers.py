"""The scorers that come with streamad obey the law of the Scorer port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from streamad.plugins import make_detector
from streamad.testing import check_scorer
from streamad.types import WindowSet

N_WINDOWS, N_CHANNELS, WINDOW_LENGTH = 40, 3, 20


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other make a small model many times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recordings() -> WindowSet:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, WINDOW_LENGTH + 1, N_WINDOWS)
    lengths[:2] = 1, WINDOW_LENGTH
    x_NCL = rng.normal(size=(N_WINDOWS, N_CHANNELS, WINDOW_LENGTH)).astype(np.float32).cumsum(axis=2) * 50 + 300
    x_NCL *= (np.arange(WINDOW_LENGTH) < lengths[:, None])[:, None, :]
    return WindowSet(x_NCL, lengths.astype(np.int64), tuple(str(i) for i in range(N_WINDOWS)))


@pytest.mark.usefixtures("_one_thread")
def test_neutral_ad(tmp_path: Path) -> None:
    data = recordings()
    detector = make_detector("neutral_ad", {"epochs": 1})
    fitted = detector.fit(data, seed=0, device="cpu")
    fitted.export(tmp_path)
    check_scorer(detector.load(tmp_path, device="cpu"), data.values[:9], data.lengths[:9])
