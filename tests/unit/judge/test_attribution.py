"""Channel shares on a scorer whose right answer is known."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import ArtifactError
from streamad.judge.attribution import TOGETHER, Reference, explain, printable, reference_windows
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


def reference(*windows, names=()):
    return Reference(np.stack([w.values for w in windows]), np.array([w.length for w in windows]), names)


NORMAL = reference(*[line()] * 3)


@pytest.mark.parametrize("channel", range(C))
def test_the_only_deviating_channel_has_the_whole_share(channel):
    shares = explain(DistanceScorer(), line(**{f"c{channel}": 3.0}), NORMAL).shares
    np.testing.assert_allclose(shares, np.eye(C)[channel], atol=1e-6)


def test_two_channels_share_in_proportion_to_what_they_add():
    shares = explain(DistanceScorer(), line(c0=1.0, c3=2.0), NORMAL).shares
    np.testing.assert_allclose(shares, [0.2, 0, 0, 0.8], atol=1e-6)


def test_a_window_no_replacement_improves_has_no_shares():
    assert explain(DistanceScorer(), line(), NORMAL).shares.tolist() == [0] * C


@pytest.mark.parametrize("length", [2, 7, L])
def test_references_of_other_lengths_are_stretched_in_time(length):
    normal = reference(line(length=5), line(length=L))
    shares = explain(DistanceScorer(), line(length=length, c2=1.0), normal).shares
    np.testing.assert_allclose(shares, [0, 0, 1, 0], atol=1e-6)


def test_a_reference_that_does_not_fit_spoils_nothing():
    """Half of the references are odd in every channel; the better half of the replacements decides."""
    odd = line(c0=9.0, c1=9.0, c2=9.0, c3=9.0)
    shares = explain(DistanceScorer(), line(c1=3.0), reference(line(), odd, odd, line())).shares
    np.testing.assert_allclose(shares, [0, 1, 0, 0], atol=1e-6)


def test_references_nearest_to_the_window_are_taken():
    """Two modes of normal operation, a little score apart: replacements come from the window's own mode."""

    class TwoModes(DistanceScorer):
        def score(self, windows, lengths):
            mode = windows[:, :, 0]
            mixed = np.ptp(mode, axis=1)  # channels of two modes in one window are odd
            return np.stack([mixed, np.zeros(len(windows))], axis=1).astype(np.float32)

    other_mode, own_mode = [line(c0=5.0, c1=5.0, c2=5.0, c3=5.0)] * 12, [line()] * 8
    shares = explain(TwoModes(), line(c2=1.0), reference(*other_mode, *own_mode)).shares
    np.testing.assert_allclose(shares, [0, 0, 1, 0], atol=1e-6)


class Recording(DistanceScorer):
    """Keeps all windows that it scored."""

    def __init__(self):
        super().__init__()
        self.scored = []

    def score(self, windows, lengths):
        self.scored += list(windows.copy())
        return super().score(windows, lengths)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 11])
def test_the_named_windows_are_the_nearest_of_those_that_channels_were_replaced_from(n):
    offsets = np.random.default_rng(n).permutation(np.linspace(0.1, 0.9, n)).tolist()
    normal = reference(
        *[line(c0=each, c1=each, c2=each, c3=each) for each in offsets], names=tuple(f"r/{each}" for each in offsets)
    )
    scorer, window = Recording(), line(c1=3.0)
    nearest = explain(scorer, window, normal).nearest
    replaced_by = {round(float(each[2, 0]), 6) for each in scorer.scored if each[2, 0] != window.values[2, 0]}
    assert replaced_by == {round(each, 6) for each in sorted(offsets)[:8]}
    assert [each.sequence for each in nearest] == [f"r/{each}" for each in sorted(offsets)[:3]]
    distances = [each.distance for each in nearest]
    assert distances == sorted(distances)


def test_a_distance_is_in_spreads_of_a_channel_and_ignores_an_anomalous_one():
    normal = reference(line(), line(c0=2.0, c1=2.0, c2=2.0, c3=2.0), names=("a", "b"))
    spread = float(np.concatenate([np.linspace(0, 1, L), np.linspace(2, 3, L)]).std())
    (nearest, other) = explain(DistanceScorer(), line(c0=0.5, c1=0.5, c2=0.5, c3=99.0), normal).nearest
    assert (nearest.sequence, other.sequence) == ("a", "b")
    assert (nearest.distance, other.distance) == pytest.approx((0.5 / spread, 1.5 / spread), rel=1e-5)


def test_without_names_there_are_shares_and_nothing_is_named():
    explained = explain(DistanceScorer(), line(c1=3.0), NORMAL)
    np.testing.assert_allclose(explained.shares, [0, 1, 0, 0], atol=1e-6)
    assert explained.nearest == ()


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c", "d")])
def test_references_with_names_for_some_of_them_are_refused(names):
    with pytest.raises(ArtifactError, match=r"3 reference windows with . names: train again"):
        reference(line(), line(), line(), names=names)


@given(st.text(st.characters(codec=None), max_size=600))
def test_a_printable_name_is_bounded_and_survives_messages_and_arrays(name):
    shown = printable(name)
    assert len(shown) == min(len(name), 513)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
    assert np.array([shown], dtype=np.str_).tolist() == [shown]


@pytest.mark.parametrize("name", ["reactor-1/B-1042", "Anlage Süd/Charge 7 (Öl) °é", "[bold]r[/]/{x}", "a/b/c", ""])
def test_a_name_that_can_be_printed_stays_as_it_is(name):
    assert printable(name) == name


def test_window_and_references_are_left_as_they_were():
    window, normal = line(c1=3.0), reference(line(length=5), line())
    before = window.values.copy(), normal.values.copy()
    explain(DistanceScorer(), window, normal)
    assert np.array_equal(window.values, before[0])
    assert np.array_equal(normal.values, before[1])


def test_wide_windows_are_scored_in_batches_of_bounded_memory():
    scorer = DistanceScorer(n_channels=200, length=1_000)
    wide = line(length=1_000, n_channels=200, total=1_000)
    shares = explain(scorer, line(length=1_000, n_channels=200, total=1_000, c7=1.0), reference(wide, wide)).shares
    assert np.argmax(shares) == 7
    assert scorer.largest_batch * 200 * 1_000 * 4 <= 16_000_000


class CoupledScorer(DistanceScorer):
    """Terms: how far the first two channels lie apart, and a little for their distance from the line."""

    def score(self, windows, lengths):
        terms = super().score(windows, lengths)
        terms[:, 1] = 10 * np.square(windows[:, 0] - windows[:, 1]).mean(axis=1)
        return terms


def test_channels_that_depart_together_share_by_what_lies_outside_the_band():
    found = explain(CoupledScorer(), line(c0=3.0, c1=3.0), NORMAL)
    np.testing.assert_allclose(found.shares, [0.5, 0.5, 0, 0], atol=1e-6)
    of_each = [(each.channel, each.start, each.end, each.direction) for each in found.segments]
    assert of_each == [(0, 0.0, 1.0, "above"), (1, 0.0, 1.0, "above")]
    assert found.segments[0].size == pytest.approx(3.0)
    assert found.detail == TOGETHER


def test_a_channel_that_departs_alone_has_its_share_from_the_scores():
    shares = explain(CoupledScorer(), line(c0=3.0, c3=30.0), NORMAL).shares
    assert shares.tolist() == [1.0, 0, 0, 0]


def test_scores_that_are_not_finite_name_what_lies_outside_the_band():
    class Overflowing(DistanceScorer):
        def score(self, windows, lengths):
            return np.full((len(windows), 2), np.inf, dtype=np.float32)

    with np.errstate(invalid="ignore"):
        assert explain(Overflowing(), line(c1=3.0), NORMAL).shares.tolist() == [0, 1, 0, 0]
        assert explain(Overflowing(), line(), NORMAL).shares.tolist() == [0] * C


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


def test_reference_windows_keep_their_names():
    lengths, scores = np.array([3, 1, 2, 4]), np.array([0.0, 0.0, 9.0, 9.0])
    chosen = reference_windows(
        np.zeros((4, C, L), np.float32), lengths, scores, ["r/a", "r/b\x1b[2J", "r/c", "r/d"], m=2
    )
    assert chosen.names == ("r/b\N{REPLACEMENT CHARACTER}[2J", "r/a")
