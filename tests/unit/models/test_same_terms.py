"""Terms do not depend on threads or company in a batch, also where values tie; ``test_backends``: nor on a backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.simple import MiniRocketNearest, MiniRocketOptions
from tests.support.ties import TIES, assert_same, in_batches, joined, windows

EACH, THIRD = slice(None), slice(None, None, 3)
WAYS = ((1, 1, EACH), (1, 3, EACH), (1, 16, EACH), (2, 16, EACH), (4, 1, THIRD), (4, 3, THIRD), (4, 16, EACH))
"""Threads, windows at a time, and which windows: on a busy machine threads wait long for each other."""
KINDS: dict[str, Any] = {
    "ensemble": Ensemble(EnsembleOptions(n_minirocket=840, n_groups=4, time_limit_s=1e-6)),
    "neutral_ad": NeutralAD(NeutralADOptions(epochs=2)),
    "minirocket": MiniRocketNearest(MiniRocketOptions(n_features=840)),
}


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kind", KINDS)
@given(
    ties=st.frozensets(st.sampled_from(TIES)),
    shape=st.sampled_from([(1, 12), (3, 24), (5, 150)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=5, deadline=None)
def test_threads_and_batches_do_not_matter(kind: str, ties: frozenset[str], shape: tuple[int, int], seed: int) -> None:
    training, new = windows(24, *shape, ties, seed), windows(12, *shape, ties, seed + 100)
    assume(not len(training.constant_channels()))
    torch.set_num_threads(1)
    fitted = KINDS[kind].fit(training, seed=0, device="cpu")
    both = joined(training, new)
    expected = in_batches(fitted, both, 64)
    assert np.isfinite(expected).all()
    for n_threads, size, some in WAYS:
        torch.set_num_threads(n_threads)
        found = in_batches(fitted, both.take(np.arange(len(both))[some]), size)
        assert_same(found, expected[some], as_probe=kind != "minirocket")
