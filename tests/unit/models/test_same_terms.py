"""Terms do not depend on threads, company in a batch, or backend: also not where values tie.

Ties are what plants have: held stretches, sensors with steps, constant channels, training windows that repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamad.learn.registry.artifact import PROBE_TOLERANCE, probe_deviation
from streamad.types import FloatArray, WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.simple import MiniRocketNearest, MiniRocketOptions

BOUND = 1e-4  # relative to max(1, |term|)
SMALL = EnsembleOptions(n_minirocket=840, n_groups=4, time_limit_s=1e-6)
KINDS: dict[str, Any] = {
    "ensemble": Ensemble(SMALL),
    "neutral_ad": NeutralAD(NeutralADOptions(epochs=2)),
    "minirocket": MiniRocketNearest(MiniRocketOptions(n_features=840)),
}
TIES = ("held", "steps", "coarse", "constant", "repeats", "flat")


def windows(n: int, n_channels: int, length: int, ties: frozenset[str], seed: int) -> WindowSet:
    """Return random walks of different lengths with ``ties``."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, n_channels, length)).cumsum(axis=2) + 2 * rng.normal(size=(n, n_channels, 1)) + 20
    lengths = rng.integers(max(2, length // 2), length + 1, n)
    if "held" in ties:
        for course in values.reshape(-1, length):
            start = rng.integers(0, length - 2)
            course[start : rng.integers(start + 1, length)] = course[start]
    if "flat" in ties:
        values[:] = values[:, :, :1]
    if "steps" in ties:
        values = np.round(values, 1)
    if "coarse" in ties:
        values = 2 * np.round(values / 2)
    if "constant" in ties:
        values[:, 0] = rng.choice([1.0, 2.0], size=(n, 1))
    if "repeats" in ties:
        kept = np.repeat(np.arange(-(-n // 6)), 6)[:n]
        values, lengths = values[kept], lengths[kept]
    values = np.where(np.arange(length) < lengths[:, None, None], values, 0.0)
    return WindowSet(values.astype(np.float32), lengths.astype(np.int64), tuple(map(str, range(n))))


def joined(*parts: WindowSet) -> WindowSet:
    values, lengths = (np.concatenate([getattr(part, of) for part in parts]) for of in ("values", "lengths"))
    return WindowSet(values, lengths, tuple(map(str, range(len(values)))))


def assert_same(kind: str, found: FloatArray, expected: FloatArray) -> None:
    """The law, and what a worker demands of the probe of a version, but for distances of 0."""
    assert deviation(found, expected) < BOUND
    if kind != "minirocket":
        assert probe_deviation(found, expected) < PROBE_TOLERANCE


def deviation(found: FloatArray, expected: FloatArray) -> float:
    """Return the largest |found - expected| / max(1, |expected|), infinite for NaN."""
    apart = np.abs(found.astype(np.float64) - expected) / np.maximum(1.0, np.abs(expected))
    return float(np.max(np.where(np.isnan(apart), np.inf, apart)))


def in_batches(scorer: Any, data: WindowSet, size: int) -> FloatArray:
    parts = [slice(start, start + size) for start in range(0, len(data), size)]
    return np.concatenate([scorer.score(data.values[part], data.lengths[part]) for part in parts])


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
    for n_threads in (1, 2, 4):
        torch.set_num_threads(n_threads)
        for size in (1, 3, 16):
            assert_same(kind, in_batches(fitted, both, size), expected)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("kind", "ties"),
    [
        ("ensemble", {"held", "steps", "repeats"}),
        ("neutral_ad", {"flat", "steps"}),
        ("minirocket", {"held", "coarse", "repeats"}),
    ],
)
def test_backends_do_not_matter(kind: str, ties: set[str], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("openvino")
    training, as_trained = (windows(n, 3, 24, frozenset(ties), seed) for n, seed in ((24, 0), (12, 1)))
    new = joined(as_trained, windows(6, 3, 24, frozenset({"flat", "steps"}), 2))
    torch.set_num_threads(1)
    fitted = KINDS[kind].fit(training, seed=0, device="cpu")
    fitted.export(tmp_path)
    expected = KINDS[kind].load(tmp_path, device="cpu").score(new.values, new.lengths)
    for backend in ("onnxruntime", "openvino"):
        fitted.export_for(backend, tmp_path)
        scorer = KINDS[kind].load_by(backend, tmp_path, device="cpu")
        for size in (1, 3, 16):
            assert_same(kind, in_batches(scorer, new, size), expected)
