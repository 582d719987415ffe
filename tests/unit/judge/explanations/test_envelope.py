"""The envelope of normal windows, and the band that it gives a window of any length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from streamad.errors import ArtifactError
from streamad.judge.envelope import LEVELS, Envelope, stretched

C, L = 2, 8


def windows(*courses, n_channels=C, total=L):
    """Windows whose channels all have the same course, zero-padded."""
    values = np.zeros((len(courses), n_channels, total), np.float32)
    for window, course in zip(values, courses, strict=True):
        window[:, : len(course)] = course
    return values, np.array([len(course) for course in courses])


def test_levels_are_the_quantiles_of_the_windows_that_reach_a_point():
    values, lengths = windows([0.0, 0, 0, 0], [1.0, 1, 1, 1, 1, 1], [2.0, 2, 2, 2, 2, 2])
    envelope = Envelope.of(values, lengths)
    assert envelope.clock_n.tolist() == [3, 3, 3, 3, 2, 2, 0, 0]
    np.testing.assert_allclose(envelope.clock[:, 0, 0], np.quantile([0, 1, 2], LEVELS), rtol=1e-6)
    np.testing.assert_allclose(envelope.clock[:, 1, 5], np.quantile([1, 2], LEVELS), rtol=1e-6)
    assert not envelope.clock[:, :, 6:].any()
    assert envelope.phase_n.tolist() == [3] * L
    np.testing.assert_allclose(envelope.phase[:, 0, -1], np.quantile([0, 1, 2], LEVELS), rtol=1e-6)
    assert envelope.clock.dtype == envelope.phase.dtype == np.float32


@given(st.data())
def test_every_training_window_lies_between_the_extremes_and_has_no_reading_outside_by_more(data):
    n, n_channels, total = (data.draw(st.integers(1, most)) for most in (5, 3, 9))
    readings = st.floats(-1e6, 1e6, width=32)
    lengths = data.draw(arrays.arrays(np.int64, n, elements=st.integers(1, total)))
    values = data.draw(arrays.arrays(np.float32, (n, n_channels, total), elements=readings))
    values[np.broadcast_to((np.arange(total) >= lengths[:, None])[:, None], values.shape)] = 0.0
    envelope = Envelope.of(values, lengths)
    for window, length in zip(values, lengths.tolist(), strict=True):
        band = envelope.band(length)
        assert (envelope.clock[0, :, :length] <= window[:, :length]).all()
        assert (window[:, :length] <= envelope.clock[-1, :, :length]).all()
        assert np.isfinite(band.deviation(window[:, :length])).all()
        assert (band.bottom <= band.middle).all()
        assert (band.middle <= band.top).all()


@given(st.integers(1, 6), st.integers(1, L))
def test_equal_windows_have_a_band_in_which_they_lie(n, length):
    course = np.random.default_rng(n).normal(size=length).astype(np.float32)
    values, lengths = windows(*[course] * n)
    band = Envelope.of(values, lengths).band(length)
    for channel in range(C):
        assert not band.above(channel, course.astype(float)).any()
        assert not band.below(channel, course.astype(float)).any()
    assert (band.width > 0).all()


def test_readings_outside_are_measured_from_the_edge_of_the_band():
    values, lengths = windows(*[[float(level)] * L for level in range(21)])  # 5 % at 1, 95 % at 19
    band = Envelope.of(values, lengths).band(L)
    course = np.array([25.0, 20.0, 19.0, 10.0, 1.0, 0.0, -4.0, 10.0])
    assert band.above(0, course).tolist() == pytest.approx([6.0, 0, 0, 0, 0, 0, 0, 0], abs=1e-4)
    assert band.below(0, course).tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 5.0, 0], abs=1e-4)


def test_one_extreme_training_window_does_not_widen_the_band():
    values, lengths = windows(*[[float(level)] * L for level in range(20)], [1e6] * L)
    band = Envelope.of(values, lengths).band(L)
    assert band.above(0, np.full(L, 100.0)).min() > 0


def test_stretched_windows_make_the_band_if_they_agree_better_than_on_their_own_clock():
    ramps = [np.linspace(0, 1, n) for n in (4, 5, 6, 7, 8)]
    band = Envelope.of(*windows(*ramps)).band(6)
    np.testing.assert_allclose(band.middle[0], np.linspace(0, 1, 6), atol=1e-6)
    assert band.above(0, np.linspace(0, 1, 6) + 0.2).min() > 0.15


def test_the_own_clock_makes_the_band_if_windows_agree_better_on_it():
    begun = [np.arange(n, dtype=float) for n in (4, 5, 6, 7, 8)]  # all rise by one a sample
    band = Envelope.of(*windows(*begun)).band(6)
    np.testing.assert_allclose(band.middle[0], np.arange(6), atol=1e-6)
    assert band.above(0, np.arange(6) + 0.5).min() > 0.45


def test_a_sequence_longer_than_almost_all_is_compared_phase_by_phase():
    begun = [np.arange(4, dtype=float)] * 8 + [np.arange(8, dtype=float)]
    band = Envelope.of(*windows(*begun)).band(8)
    assert np.isfinite(band.high).all()
    assert band.middle[0, -1] == pytest.approx(3.0)


def test_short_faults_count_in_the_deviation_as_lasting_ones_do():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 3, 100)).astype(np.float32)
    band = Envelope.of(values, np.full(40, 100)).band(100)
    odd = rng.normal(size=(3, 100)).astype(np.float32)
    odd[1, 40:45] += 8.0
    assert int(np.argmax(band.deviation(odd))) == 1


@pytest.mark.parametrize("change", ["order", "nan", "shape", "count", "empty"])
def test_levels_that_are_none_are_refused(change):
    good = Envelope.of(*windows([0.0, 1, 2], [1.0, 2, 3]))
    clock, clock_n, phase, phase_n = (each.copy() for each in (good.clock, good.clock_n, good.phase, good.phase_n))
    if change == "order":
        clock = clock[::-1]
    elif change == "nan":
        phase[0, 0, 0] = np.nan
    elif change == "shape":
        phase = phase[:, :1]
    elif change == "count":
        phase_n[0] = 0
    else:
        clock = clock[:, :0]
    with pytest.raises(ArtifactError, match="train again"):
        Envelope(clock, clock_n, phase, phase_n)


@given(st.integers(1, L), st.integers(1, 12))
def test_stretching_keeps_both_ends_and_is_numpys_interpolation(length, to_length):
    courses = np.random.default_rng(length).normal(size=(C, L)).astype(np.float32)
    found = stretched(courses, length, to_length)
    at = np.linspace(0, length - 1, to_length)
    for course, expected in zip(found, courses, strict=True):
        np.testing.assert_allclose(course, np.interp(at, np.arange(length), expected[:length]), atol=1e-6)


def test_the_band_on_either_clock_can_be_named_and_ends_where_no_window_reaches():
    values, lengths = windows(np.arange(4.0), np.arange(6.0))
    envelope = Envelope.of(values, lengths)
    own, aligned = envelope.band(8, "own"), envelope.band(8, "aligned")
    np.testing.assert_allclose(own.middle[0, :6], [0, 1, 2, 3, 4, 5])
    assert np.isnan(own.middle[:, 6:]).all()
    np.testing.assert_allclose(aligned.lowest[0, [0, -1]], [0, 3])
    np.testing.assert_allclose(aligned.highest[0, [0, -1]], [0, 5])
    for length in range(1, 9):
        chosen = envelope.band(length, envelope.clock_for(length))
        np.testing.assert_array_equal(envelope.band(length).middle, chosen.middle)
        assert np.isfinite(chosen.middle).all()
