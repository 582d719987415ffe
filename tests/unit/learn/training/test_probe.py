from __future__ import annotations

import numpy as np
import pytest

from streamad.learn.registry.arrays import PROBE_TOLERANCE
from streamad.learn.training.probe import PROBE_WINDOWS, ProbeCandidates, share_alike
from streamad.types import FloatArray, IntArray, WindowSet


class Comparing:
    """Counts readings above 0: a reading of 0 times 1e-8 is a tie."""

    n_terms, window_shape = 1, (1, 8)

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        shifted = windows.astype(np.float32) - np.float32(1.0)
        return (shifted > 0).sum(axis=2).astype(np.float32)


def windows(n_tied: int, n: int = 20) -> WindowSet:
    values = np.random.default_rng(0).normal(size=(n, 1, 8)).astype(np.float32)
    values[:n_tied, 0, :4] = np.nextafter(np.float32(1.0), np.float32(2.0)) * np.ones(4, np.float32)
    return WindowSet(values, np.full(n, 8), tuple(map(str, range(n))))


def test_the_probe_holds_windows_whose_comparisons_no_last_digit_decides() -> None:
    candidates = ProbeCandidates.of(windows(n_tied=16), Comparing())
    assert np.flatnonzero(candidates.moved > 0).tolist() == list(range(16))
    values, lengths, terms = candidates.probe()
    assert len(values) == len(lengths) == PROBE_WINDOWS
    np.testing.assert_array_equal(values, windows(n_tied=16).values[16:])
    np.testing.assert_array_equal(terms, Comparing().score(values, lengths))


def test_windows_on_which_all_backends_agree_come_first() -> None:
    candidates = ProbeCandidates.of(windows(n_tied=10), Comparing())
    one, other = np.zeros(20, np.float32), np.zeros(20, np.float32)
    one[10:14], other[14:18] = 2 * PROBE_TOLERANCE, np.inf
    values, _, _ = candidates.probe([one, other])
    assert {18, 19} < {int(np.flatnonzero((candidates.windows.values == each).all(axis=(1, 2)))[0]) for each in values}
    assert not any((candidates.windows.values[10:18] == each).all(axis=(1, 2)).any() for each in values)
    assert share_alike(one) == pytest.approx(0.8)


def test_a_training_of_fewer_windows_than_a_probe_has_gives_them_all() -> None:
    assert len(ProbeCandidates.of(windows(0, n=2), Comparing()).probe()[0]) == 2


def test_candidates_are_spread_over_the_lengths() -> None:
    many = windows(0, n=200)
    lengths = np.random.default_rng(1).permutation(np.arange(200) % 8 + 1)
    candidates = ProbeCandidates.of(WindowSet(many.values, lengths, many.ids), Comparing())
    assert len(candidates.windows) == 32
    assert set(candidates.windows.lengths.tolist()) == set(range(1, 9))


def test_a_window_that_scores_otherwise_alone_deviates() -> None:
    class Lonely(Comparing):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            return super().score(windows, lengths) + np.float32(len(windows) == 1)

    candidates = ProbeCandidates.of(windows(0), Comparing())
    assert (candidates.deviations(Lonely()) > PROBE_TOLERANCE).all()
    assert not candidates.deviations(Comparing()).any()
