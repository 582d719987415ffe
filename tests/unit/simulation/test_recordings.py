"""Recordings are deterministic, keep their truth, and do not depend on how many are asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from streamad.simulation.batch import Recipe
from streamad.simulation.faults import CHANNELS, FAULTS
from streamad.simulation.recordings import simulate, simulate_batch


@pytest.fixture(scope="module")
def recordings():
    return simulate(6, 16, seed=3)


def test_a_batch_does_not_depend_on_how_many_there_are_or_where_the_call_began():
    few, many = simulate(3, 0, seed=4), simulate(5, 0, seed=4, n_streams=3)
    later = simulate(2, 0, seed=4, first_index=3)
    for a, b in zip(few + later, many, strict=True):
        assert a.sequence == b.sequence
        np.testing.assert_array_equal(a.values, b.values)


def test_each_kind_of_fault_occurs_and_places_are_mixed(recordings):
    faults = [recording.fault for recording in recordings]
    assert sorted(filter(None, faults)) == sorted(fault.name for fault in FAULTS)
    assert faults.count("") == 6
    assert faults != sorted(faults)


def test_truth_is_consistent(recordings):
    channels = {name for name, _ in CHANNELS}
    for recording in recordings:
        if recording.fault:
            assert recording.fault_channel in channels
            assert recording.onset_us in recording.times_us
            assert recording.severity > 0
        else:
            assert (recording.fault_channel, recording.onset_us, recording.severity) == (None, None, 0.0)


def test_arrays_have_the_stated_types_and_shapes(recordings):
    for recording in recordings:
        n = len(recording.times_us)
        assert recording.values.shape == (n, len(CHANNELS))
        assert (recording.values.dtype, recording.times_us.dtype) == (np.float32, np.int64)
        assert recording.times_us[0] == recording.start_us
        assert np.isnan(recording.values).mean() < 0.02
        assert not np.isinf(recording.values).any()


def test_batches_follow_each_other_on_a_stream_with_a_pause(recordings):
    for stream in ("fermenter-1", "fermenter-2"):
        own = [recording for recording in recordings if recording.stream == stream]
        assert len(own) == 11
        for before, after in itertools.pairwise(own):
            pause_h = (after.start_us - before.times_us[-1]) / 3.6e9
            assert 1.5 <= pause_h <= 4.0


def test_a_later_call_comes_after_an_earlier_one():
    first, later = simulate(4, 0, seed=4), simulate(2, 0, seed=4, first_index=4)
    for recording in later:
        ends = [other.times_us[-1] for other in first if other.stream == recording.stream]
        assert recording.start_us > max(ends)
    assert len({recording.sequence for recording in first + later}) == 6


def test_progress_counts_every_batch():
    seen = []
    simulate(2, 1, seed=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_nothing_asked_gives_nothing():
    assert simulate(0, 0, seed=1) == []


@pytest.mark.parametrize("wrong", [{"n_normal": -1}, {"n_faulty": -1}, {"first_index": -1}, {"n_streams": 0}])
def test_impossible_requests_are_refused(wrong):
    with pytest.raises(ValueError, match="simulate needs"):
        simulate(**{"n_normal": 1, "n_faulty": 0, "seed": 1, **wrong})


def test_a_changed_recipe_changes_how_batches_run_and_not_what_varies_between_them():
    """More feed from the start brings the planned amount in earlier; the channels before the feed stay as they were."""
    usual, changed = (simulate_batch(4, 0, recipe=recipe)[1] for recipe in (Recipe(), Recipe(feed_start_l_h=1.5)))
    feed = [name for name, _ in CHANNELS].index("feed_rate")
    fed = int(np.argmax(usual.signals[:, feed] > 0))
    np.testing.assert_array_equal(usual.signals[: fed - 1], changed.signals[: fed - 1])
    assert changed.signals[fed + 1, feed] == pytest.approx(1.5 * usual.signals[fed + 1, feed], rel=0.05)
    assert len(changed.hours) < len(usual.hours) - 5


@pytest.mark.parametrize("fault", [None, FAULTS[0]])
def test_a_sensor_that_reads_off_moves_its_channel_alone(fault):
    true, off = (simulate_batch(4, 0, fault, offsets=offsets)[0] for offsets in ({}, {"offgas_co2": 0.5}))
    co2 = [name for name, _ in CHANNELS].index("offgas_co2")
    # Never below zero, rounded to 0.01: while the reading is at zero it moves by less.
    assert np.nanmedian(off[:, co2] - true[:, co2]) == pytest.approx(0.5, abs=0.011)
    np.testing.assert_array_equal(np.delete(off, co2, axis=1), np.delete(true, co2, axis=1))


@pytest.mark.parametrize(("channel", "says"), [("co2", "no channel 'co2'"), ("ph", "ph closes a loop")])
def test_offsets_that_no_sensor_can_have_are_refused(channel, says):
    with pytest.raises(ValueError, match=says):
        simulate_batch(4, 0, offsets={channel: 0.1})
