"""The plant obeys its balances, its loops hold, and batches differ as the batches of a plant do."""

from __future__ import annotations

import numpy as np
import pytest

from streamad.simulation.batch import draw_plan, run_batch
from streamad.simulation.faults import CHANNELS
from streamad.simulation.plant import BASE_MAX_L_H, COOLANT_MAX_L_H, FEED_MAX_L_H, State, activity, cell_rates
from streamad.simulation.recordings import simulate_batch

NAMES = [name for name, _ in CHANNELS]
INDEXES = range(6)


@pytest.fixture(scope="module")
def courses():
    return [simulate_batch(5, index)[1] for index in INDEXES]


def column(course, name):
    return course.signals[:, NAMES.index(name)]


def integral(course, name):
    values = column(course, name)
    return np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(course.hours))])


def test_volume_grows_by_the_integrated_flows(courses):
    for course in courses:
        volume = column(course, "volume")
        added = integral(course, "feed_rate") + integral(course, "base_flow")
        np.testing.assert_allclose(volume - volume[0], added, atol=0.25)
        assert volume[-1] - volume[0] > 35.0


def test_glucose_that_went_in_is_in_the_vessel_or_was_taken_up(courses):
    """Biomass made lies between the overflow yield and the oxidative yield of the glucose consumed."""
    for index, course in zip(INDEXES, courses, strict=True):
        plan = draw_plan(np.random.default_rng((5, index, 1)))
        volume, state = course.states[:, State.VOLUME], course.states
        fed_g = plan.feed_glucose_g_l * state[:, State.FED]
        eaten_g = plan.volume_l * plan.glucose_g_l + fed_g - volume * state[:, State.GLUCOSE]
        grown_g = volume * state[:, State.BIOMASS] - plan.volume_l * plan.biomass_g_l
        assert eaten_g[-1] > 20_000
        assert 0.3 < grown_g[-1] / eaten_g[-1] < 0.62


def test_concentrations_stay_physical(courses):
    for course in courses:
        liquid = course.states[:, [State.BIOMASS, State.GLUCOSE, State.ACETATE, State.OXYGEN]]
        assert liquid.min() > -1e-3
        assert course.states[:, State.OXYGEN].max() < 101.0
        assert column(course, "offgas_co2").min() > 0.0
        assert column(course, "offgas_co2").max() < 15.0


def test_loops_hold_normal_batches_in_their_bands(courses):
    for course in courses:
        settled = course.hours > 1.0
        assert abs(column(course, "temp_c")[settled] - 37.0).max() < 0.8
        assert abs(column(course, "ph")[settled] - 7.0).max() < 0.15
        fed = course.hours > course.hours[-1] - 3.0
        assert column(course, "dissolved_oxygen")[fed].min() > 15.0


def test_actuators_stay_within_their_limits(courses):
    for course in courses:
        for name, limit in (("feed_rate", 1.02 * FEED_MAX_L_H), ("base_flow", BASE_MAX_L_H)):
            assert column(course, name).min() >= 0.0
            assert column(course, name).max() <= limit
        assert 0.0 <= column(course, "coolant_flow").min() <= column(course, "coolant_flow").max() <= COOLANT_MAX_L_H


def test_feeding_starts_when_the_glucose_is_used_up_and_ends_with_the_planned_amount(courses):
    for index, course in zip(INDEXES, courses, strict=True):
        plan = draw_plan(np.random.default_rng((5, index, 1)))
        first = int(np.argmax(column(course, "feed_rate") > 0))
        assert course.states[first - 1, State.GLUCOSE] < 1.0
        assert course.states[-1, State.FED] == pytest.approx(plan.feed_total_l, abs=FEED_MAX_L_H / 6 * 1.02)


def test_durations_vary_and_fit_the_window():
    lengths = [len(run_batch(draw_plan(np.random.default_rng((9, index)))).hours) for index in range(20)]
    assert min(lengths) >= 60
    assert max(lengths) <= 128
    assert np.std(lengths) > 2.0


def test_samples_are_ten_minutes_apart(courses):
    for course in courses:
        np.testing.assert_allclose(np.diff(course.hours), 1 / 6, atol=1e-9)


def test_activity_is_one_at_the_set_points_and_zero_outside_the_limits_of_growth():
    assert activity(37.0, 7.0) == pytest.approx(1.0)
    assert activity(30.0, 7.0) < activity(34.0, 7.0) < 1.0
    assert activity(37.0, 6.0) < 1.0
    assert activity(48.0, 7.0) == activity(5.0, 7.0) == activity(37.0, 3.9) == activity(37.0, 9.1) == 0.0


def test_cells_overflow_on_much_glucose_and_take_acetate_up_on_little():
    uptake, acetate, growth, oxygen = cell_rates(10.0, 0.0, 100.0, 1.0)
    assert uptake == pytest.approx(0.6356 * 10.0 / 10.037)
    assert acetate > 0.1
    assert 0.25 < growth < 0.35
    assert oxygen > 0.1
    assert cell_rates(0.02, 1.0, 100.0, 1.0)[1] < 0.0


def test_cells_without_oxygen_stop_breathing():
    assert cell_rates(5.0, 0.5, 0.0, 1.0)[3] == 0.0
