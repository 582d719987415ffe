"""When a channel departs from normal, on a scorer whose right answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.judge.attribution import N_PARTS, Reference, explain
from streamad.judge.envelope import Envelope
from streamad.types import Window


class LineScorer:
    """The squared distance from the line 0..1 over the window's length, a term for each channel."""

    def __init__(self, n_channels, length):
        self.window_shape = (n_channels, length)
        self.n_terms = n_channels
        self.n_scored = 0

    def score(self, windows, lengths):
        self.n_scored += len(windows)
        terms = [
            ((values[:, :n] - np.linspace(0, 1, n)) ** 2).mean(axis=1)
            for values, n in zip(windows, lengths, strict=True)
        ]
        return np.array(terms, dtype=np.float32)


def line(n_channels=4, length=40, total=None):
    values = np.zeros((n_channels, total or length), np.float32)
    values[:, :length] = np.linspace(0, 1, length)
    return values


def explained(values, *, length=None, n_reference=9, noise=0.0, n_training=60):
    """Explain values [C, L] by lines of the same length with a little noise."""
    n_channels, total = values.shape
    length = length or total
    rng = np.random.default_rng(1)
    normal = np.stack([line(n_channels, length, total)] * n_training)
    normal[:, :, :length] += noise * rng.uniform(-1, 1, normal[:, :, :length].shape).astype(np.float32)
    lengths = np.full(n_training, length)
    reference = Reference(normal[:n_reference], lengths[:n_reference])
    scorer = LineScorer(n_channels, total)
    return explain(scorer, Window(values, length), reference, Envelope.of(normal, lengths))


@given(st.integers(0, 3), st.floats(0, 0.9), st.floats(0.02, 0.25), st.sampled_from([3.0, -3.0]), st.integers(16, 60))
def test_a_channel_off_for_a_while_has_one_segment_exactly_there(channel, begin, share, offset, length):
    values = line(4, length)
    first = min(int(begin * length), length - 1)
    last = min(length - 1, first + max(1, int(share * length)) - 1)
    values[channel, first : last + 1] += offset
    (segment,) = explained(values).segments
    assert segment.channel == channel
    assert (round(segment.start * (length - 1)), round(segment.end * (length - 1))) == (first, last)
    assert segment.direction == ("above" if offset > 0 else "below")
    assert segment.size == pytest.approx(3.0, rel=1e-4)


def test_a_size_is_measured_from_the_edge_of_the_band():
    values = line()
    values[2, 10:20] += 3.0
    (segment,) = explained(values, noise=0.1).segments
    assert segment.size == pytest.approx(2.9, abs=0.03)


@pytest.mark.parametrize("n_channels", [1, 3])
@pytest.mark.parametrize("length", [1, 3, 40])
def test_a_window_equal_to_normal_ones_has_no_segment(n_channels, length):
    found = explained(line(n_channels, length, 40), length=length)
    assert found.segments == ()
    assert found.detail is None


def test_a_change_inside_the_band_is_one_of_shape():
    """The readings swing from edge to edge of a wide band, in which normal sequences are steady."""

    class SwingScorer(LineScorer):
        def score(self, windows, lengths):
            self.n_scored += len(windows)
            return np.abs(np.diff(windows, axis=2)).sum(axis=2)

    levels = np.linspace(-1, 1, 40, dtype=np.float32)
    normal = np.repeat(levels[:, None, None], 2, axis=1) * np.ones((1, 1, 32), np.float32)
    values, lengths = np.zeros((2, 32), np.float32), np.full(40, 32)
    values[1, 12:16] = [0.5, -0.5, 0.5, -0.5]
    (segment,) = explain(
        SwingScorer(2, 32), Window(values, 32), Reference(normal, lengths), Envelope.of(normal, lengths)
    ).segments
    assert (segment.channel, segment.direction, segment.size) == (1, "shape", None)
    assert segment.start <= 12 / 31
    assert segment.end >= 15 / 31


def test_readings_on_both_sides_of_the_band_are_neither_above_nor_below():
    values = line()
    values[0, 10:14] += [3.0, -3.0, 3.0, -3.0]
    (segment,) = explained(values).segments
    assert (segment.direction, segment.size) == ("shape", None)


def test_two_departures_of_a_channel_are_two_segments_the_larger_first():
    values = line(2, 80)
    values[1, 5:8] += 2.0
    values[1, 60:65] -= 2.0
    first, second = explained(values).segments
    assert (first.direction, second.direction) == ("below", "above")
    assert round(first.start * 79) == 60


def test_a_departure_that_no_part_alone_explains_is_the_whole_sequence():
    """A scorer that asks whether the channel is off anywhere falls only if all of it is replaced."""

    class AnywhereScorer(LineScorer):
        def score(self, windows, lengths):
            return (np.abs(windows - np.linspace(0, 1, windows.shape[2])).max(axis=2) > 1).astype(np.float32)

    values, normal = line(), np.stack([line()] * 5)
    values[3] += 5.0
    found = explain(AnywhereScorer(4, 40), Window(values, 40), Reference(normal, np.full(5, 40)))
    (segment,) = found.segments
    assert (segment.channel, segment.start, segment.end, segment.direction) == (3, 0.0, 1.0, "above")


def test_three_channels_at_most_have_segments_those_with_the_largest_shares_first():
    values = line(6, 40)
    for channel, offset in enumerate((1.0, 5.0, 2.0, 4.0, 3.0)):
        values[channel, 8:12] += offset
    found = explained(values)
    assert [each.channel for each in found.segments] == [1, 3, 4]


@given(
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 1e-30, 1e30, 3e38]),
    st.integers(0, 2**32 - 1),
)
def test_no_finite_window_is_too_odd_to_explain(  # noqa: PLR0917
    n_channels, length, n_reference, is_constant, scale, seed
):
    """Constant channels, a single reference, three samples, values at the end of float32."""
    rng = np.random.default_rng(seed)
    normal = np.zeros((n_reference, n_channels, 12), np.float32)
    lengths = rng.integers(1, 13, n_reference)
    for window, n in zip(normal, lengths, strict=True):
        window[:, :n] = 1.0 if is_constant else rng.uniform(-1, 1, (n_channels, n))
    values = np.zeros((n_channels, 12), np.float32)
    values[:, :length] = scale * rng.uniform(-1, 1, (n_channels, length))
    with np.errstate(over="ignore", invalid="ignore"):
        found = explain(LineScorer(n_channels, 12), Window(values, length), Reference(normal, lengths))
    assert np.isfinite(found.shares).all()
    assert found.shares.sum() == pytest.approx(1.0) or not found.shares.any()
    assert len(found.segments) <= 6
    for segment in found.segments:
        assert 0.0 <= segment.start <= segment.end <= 1.0
        assert (segment.size is None) == (segment.direction == "shape")
        assert segment.size is None or 0 < segment.size < np.inf


@pytest.mark.parametrize(("n_channels", "most"), [(1, 160), (3, 160), (24, 160), (55, 160), (100, 160), (1000, 160)])
@pytest.mark.parametrize("n_reference", [1, 9])
def test_an_attribution_scores_at_most_160_windows(n_channels, most, n_reference):
    values = line(n_channels, 40)
    for place, channel in enumerate({0, n_channels // 2, n_channels - 1}):
        values[channel, 8:14] += 3.0 + place
    scorer, normal = LineScorer(n_channels, 40), np.stack([line(n_channels, 40)] * n_reference)
    found = explain(scorer, Window(values, 40), Reference(normal, np.full(n_reference, 40)))
    assert 1 < scorer.n_scored <= most
    assert {each.channel for each in found.segments} == {0, n_channels // 2, n_channels - 1}
    screened = n_channels * min(2, n_reference) > 160 - 1 - 3 * 2 * N_PARTS
    assert (found.detail is None) != screened
    if screened:
        assert found.detail.startswith(f"{n_channels} channels are too many to replace each")
