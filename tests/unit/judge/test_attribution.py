"""Channel shares on a scorer whose right answer is known."""

import numpy as np
import pytest

from streamad.errors import ArtifactError
from streamad.judge.attribution import Reference, channel_shares, reference_windows
from streamad.types import Window

C, L = 4, 12


class DistanceScorer:
    """Terms: squared distance from the line 0..1 over the window's length, of the first channels and of the others."""

    def __init__(self, n_channels=C, length=L):
        self.window_shape = (n_channels, length)
        self.n_terms = 2
        self.largest_batch = 0

    def score(self, windows, lengths):
        self.largest_batch = max(self.largest_batch, len(windows))
        terms = np.zeros((len(windows), 2), dtype=np.float32)
        for row, (values, length) in enumerate(zip(windows, lengths, strict=True)):
            assert not values[:, length:].any()
            off = ((values[:, :length] - np.linspace(0, 1, length)) ** 2).mean(axis=1)
            terms[row] = off[:2].sum(), off[2:].sum()
        return terms


def line(length=L, n_channels=C, total=L, **offsets):
    """A normal window with an offset on the channels c0, c1, ..."""
    values = np.zeros((n_channels, total), dtype=np.float32)
    values[:, :length] = np.linspace(0, 1, length)
    for name, offset in offsets.items():
        values[int(name[1:]), :length] += offset
    return Window(values, length)


def reference(*windows):
    return Reference(np.stack([w.values for w in windows]), np.array([w.length for w in windows]))


NORMAL = reference(*[line()] * 3)


@pytest.mark.parametrize("channel", range(C))
def test_the_only_deviating_channel_has_the_whole_share(channel):
    shares = channel_shares(DistanceScorer(), line(**{f"c{channel}": 3.0}), NORMAL)
    np.testing.assert_allclose(shares, np.eye(C)[channel], atol=1e-6)


def test_two_channels_share_in_proportion_to_what_they_add():
    shares = channel_shares(DistanceScorer(), line(c0=1.0, c3=2.0), NORMAL)
    np.testing.assert_allclose(shares, [0.2, 0, 0, 0.8], atol=1e-6)


def test_a_window_no_replacement_improves_has_no_shares():
    assert channel_shares(DistanceScorer(), line(), NORMAL).tolist() == [0] * C


@pytest.mark.parametrize("length", [2, 7, L])
def test_references_of_other_lengths_are_stretched_in_time(length):
    normal = reference(line(length=5), line(length=L))
    shares = channel_shares(DistanceScorer(), line(length=length, c2=1.0), normal)
    np.testing.assert_allclose(shares, [0, 0, 1, 0], atol=1e-6)


def test_a_reference_that_does_not_fit_spoils_nothing():
    """Half of the references are odd in every channel; the better half of the replacements decides."""
    odd = line(c0=9.0, c1=9.0, c2=9.0, c3=9.0)
    shares = channel_shares(DistanceScorer(), line(c1=3.0), reference(line(), odd, odd, line()))
    np.testing.assert_allclose(shares, [0, 1, 0, 0], atol=1e-6)


def test_references_nearest_to_the_window_are_taken():
    """Two modes of normal operation, a little score apart: replacements come from the window's own mode."""

    class TwoModes(DistanceScorer):
        def score(self, windows, lengths):
            mode = windows[:, :, 0]
            mixed = np.ptp(mode, axis=1)  # channels of two modes in one window are odd
            return np.stack([mixed, np.zeros(len(windows))], axis=1).astype(np.float32)

    other_mode, own_mode = [line(c0=5.0, c1=5.0, c2=5.0, c3=5.0)] * 12, [line()] * 8
    shares = channel_shares(TwoModes(), line(c2=1.0), reference(*other_mode, *own_mode))
    np.testing.assert_allclose(shares, [0, 0, 1, 0], atol=1e-6)


def test_window_and_references_are_left_as_they_were():
    window, normal = line(c1=3.0), reference(line(length=5), line())
    before = window.values.copy(), normal.values.copy()
    channel_shares(DistanceScorer(), window, normal)
    assert np.array_equal(window.values, before[0])
    assert np.array_equal(normal.values, before[1])


def test_wide_windows_are_scored_in_batches_of_bounded_memory():
    scorer = DistanceScorer(n_channels=200, length=1_000)
    wide = line(length=1_000, n_channels=200, total=1_000)
    shares = channel_shares(scorer, line(length=1_000, n_channels=200, total=1_000, c7=1.0), reference(wide, wide))
    assert np.argmax(shares) == 7
    assert scorer.largest_batch * 200 * 1_000 * 4 <= 16_000_000


def test_scores_that_are_not_finite_give_no_shares():
    class Overflowing(DistanceScorer):
        def score(self, windows, lengths):
            return np.full((len(windows), 2), np.inf, dtype=np.float32)

    with np.errstate(invalid="ignore"):
        assert channel_shares(Overflowing(), line(c1=3.0), NORMAL).tolist() == [0] * C


@pytest.mark.parametrize(
    ("values", "lengths"),
    [((0, C, L), []), ((3, C, L), [1, 1]), ((C, L), [1] * C), ((1, C, L), [0]), ((1, C, L), [L + 1])],
)
def test_reference_that_does_not_fit_itself_is_refused(values, lengths):
    with pytest.raises(ArtifactError, match="train again"):
        Reference(np.zeros(values, dtype=np.float32), np.array(lengths, dtype=np.int64))


def test_reference_windows_are_low_scored_and_spread_over_the_lengths():
    lengths = np.array([10, 9, 8, 7, 6, 5, 4, 3, 2, 1])
    scores = np.array([0, 0, 0, 0, 0, 5, 5, 5, 5, 5.0])
    values = np.broadcast_to(np.arange(10, dtype=np.float32)[:, None, None], (10, C, L))
    chosen = reference_windows(values, lengths, scores, m=3)
    assert chosen.lengths.tolist() == [6, 8, 10]
    assert chosen.values[:, 0, 0].tolist() == [4, 2, 0]


def test_fewer_windows_than_asked_for_are_all_taken_once():
    values = np.zeros((2, C, L), dtype=np.float32)
    assert len(reference_windows(values, np.array([3, 4]), np.array([1.0, 2.0]), m=8).lengths) == 2
