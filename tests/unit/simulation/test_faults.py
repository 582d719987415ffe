"""Every fault shows in its channel after its onset and not before, against the same batch without it."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from streamad.simulation.faults import CHANNELS, FAULTS
from streamad.simulation.plant import State
from streamad.simulation.recordings import simulate_batch

NAMES = [name for name, _ in CHANNELS]
BY_NAME = {fault.name: fault for fault in FAULTS}
SEED = 21
INDEXES = (0, 1, 2)


batch = functools.cache(simulate_batch)


def pair(fault, index):
    normal, normal_course, _, _ = batch(SEED, index, None)
    faulty, faulty_course, injection, onset = batch(SEED, index, fault)
    return normal, normal_course, faulty, faulty_course, injection, onset


def usual_noise(channel):
    """The standard deviation of a channel's change from sample to sample in normal batches."""
    changes = [np.diff(batch(SEED, index, None)[0][:, channel]) for index in INDEXES]
    return float(np.nanmedian(np.abs(np.concatenate(changes)))) + 1e-3


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_shows_in_its_channel_after_onset_and_not_before(fault):
    channel = NAMES.index(fault.channel)
    sigma = usual_noise(channel)
    for index in INDEXES:
        normal, _, faulty, _, injection, onset = pair(fault, index)
        both = min(len(normal), len(faulty))
        assert onset < both - 5
        assert fault.severity[0] <= injection.severity <= fault.severity[1]
        gap = np.abs(faulty[:both] - normal[:both])
        before = gap[:onset]
        if before.size:
            assert np.nanmax(before / (np.abs(normal[:onset]) + 1.0)) < 0.01
        assert np.nanmax(gap[onset:, channel]) > 3 * sigma


def test_names_are_unique_channels_known_and_both_kinds_present():
    assert len(BY_NAME) == len(FAULTS) >= 12
    assert {fault.kind for fault in FAULTS} == {"process", "sensor"}
    for fault in FAULTS:
        assert fault.channel in NAMES
        assert sum(effect is not None for effect in (fault.upset, fault.charge, fault.shape)) == 1


def test_a_stuck_temperature_probe_repeats_one_reading_and_drives_the_loop_away():
    fault = BY_NAME["temp_sensor_stuck"]
    channel = NAMES.index("temp_c")
    for index in INDEXES:
        _, normal_course, faulty, faulty_course, _, onset = pair(fault, index)
        seen = faulty[onset:, channel]
        assert len(np.unique(seen[np.isfinite(seen)])) == 1
        # the loop acts on the frozen reading: true temperature leaves its band, or the cooling differs from the twin's
        assert np.abs(faulty_course.signals[onset:, channel] - 37.0).max() > 0.8
        both = min(len(faulty_course.hours), len(normal_course.hours))
        cooling = NAMES.index("coolant_flow")
        assert np.abs(faulty_course.signals[:both, cooling] - normal_course.signals[:both, cooling]).max() > 50.0


def test_a_biased_ph_probe_moves_the_true_ph_the_other_way():
    fault = BY_NAME["ph_sensor_bias"]
    moved = []
    for index in range(6):
        _, normal_course, _, faulty_course, injection, onset = pair(fault, index)
        last = min(len(faulty_course.hours), len(normal_course.hours)) - 1
        shift = faulty_course.states[last, State.PH] - normal_course.states[last, State.PH]
        if last - onset > 30:  # time for the loop to follow
            moved.append(shift / (injection.direction * injection.severity))
    assert moved
    np.testing.assert_allclose(moved, -1.0, atol=0.35)


def test_a_weak_feed_pump_makes_the_batch_longer():
    for index in INDEXES:
        normal, _, faulty, _, _, _ = pair(BY_NAME["feed_pump_loss"], index)
        assert len(faulty) > len(normal)


def test_lost_air_makes_the_agitator_work_harder_or_starves_the_cells():
    for index in INDEXES:
        _, normal_course, _, faulty_course, _, onset = pair(BY_NAME["aeration_loss"], index)
        both = min(len(faulty_course.hours), len(normal_course.hours))
        power, oxygen = NAMES.index("agitator_power"), NAMES.index("dissolved_oxygen")
        more_power = faulty_course.signals[onset:both, power] - normal_course.signals[onset:both, power]
        less_oxygen = normal_course.signals[onset:both, oxygen] - faulty_course.signals[onset:both, oxygen]
        assert max(more_power.max() / 2.5, less_oxygen.max() / 100.0) > 0.05


def test_a_stuck_coolant_valve_lets_the_vessel_run_hot():
    for index in INDEXES:
        _, _, _, course, _, _ = pair(BY_NAME["coolant_valve_stuck"], index)
        assert course.states[-1, State.TEMPERATURE] > 38.0


def test_dropout_reads_zero_for_the_stated_share_and_then_recovers():
    fault = BY_NAME["feed_meter_dropout"]
    for index in INDEXES:
        _, _, faulty, _, injection, onset = pair(fault, index)
        feed = faulty[onset:, NAMES.index("feed_rate")]
        zeros = int((feed == 0.0).sum())
        assert zeros == pytest.approx(injection.severity * len(faulty), abs=3)
        assert feed[-1] > 1.0


@pytest.mark.parametrize("index", range(6))
def test_a_runaway_heater_is_cut_by_the_jacket_thermostat(index):
    _, course, _, _ = batch(SEED, index, BY_NAME["temp_sensor_stuck"])
    assert course.states[:, State.TEMPERATURE].min() > 5.0
    assert course.states[:, [State.TEMPERATURE, State.JACKET]].max() < 51.0
