"""Boundaries of to_window: exactly at, one tick before and after each limit."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.ingest.windowing import MAX_GRID_POINTS, Unscorable, shown_share, to_window
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import ChannelSpec, FinishedSequence, Position, Window

NAN = np.nan
PLANT = (ChannelSpec("temp", "°C"), ChannelSpec("pressure", "bar"))


def finished(values, times_us=None, **more) -> FinishedSequence:
    array = np.array(values, dtype=np.float32)
    times = np.arange(len(array)) * 1_000_000 if times_us is None else times_us
    return FinishedSequence(
        "reactor-1", "B-1", "marker", np.array(times, dtype=np.int64), array, Position(0, 0), **more
    )


def window(sequence, channels=PLANT, **settings) -> Window:
    result = to_window(sequence, WindowSettings(**{"length": 4, **settings}), channels)
    assert isinstance(result, Window), result
    assert result.values.dtype == np.float32
    assert np.isfinite(result.values).all()
    assert not result.values[:, result.length :].any()
    return result


def refusal(sequence, channels=PLANT, **settings) -> str:
    result = to_window(sequence, WindowSettings(**{"length": 4, **settings}), channels)
    assert isinstance(result, Unscorable), result
    return result.detail


@pytest.mark.parametrize(("n", "row"), [(3, [1, 2, 3, 0]), (4, [1, 2, 3, 4])])
def test_up_to_the_windows_length_it_is_padded_with_zeros_at_the_end(n, row):
    result = window(finished([[i, 10 * i] for i in range(1, n + 1)]))
    assert result.length == n
    assert result.values.tolist() == [row, [10 * value for value in row]]


def test_one_sample_longer_is_truncated_squeezed_over_the_whole_span_or_rejected():
    five = finished([[0, 8], [3, 8], [6, 8], [9, 8], [12, 8]])
    assert window(five, longer="truncate").values[0].tolist() == [0, 3, 6, 9]
    squeezed = window(five, longer="resample")
    assert (squeezed.length, squeezed.values.tolist()) == (4, [[0, 4, 8, 12], [8, 8, 8, 8]])
    assert "too long: 5 points, the window holds 4" in refusal(five, longer="reject")
    assert window(finished([[1, 0]] * 4), longer="reject").length == 4


def test_squeezing_is_uniform_in_time_not_in_samples():
    sequence = finished([[0, 0], [1, 0], [2, 0], [3, 0], [30, 0]], times_us=[0, 1_000, 2_000, 3_000, 30_000])
    assert window(sequence, longer="resample").values[0].tolist() == [0, 10, 20, 30]


GRID = {"resample": {"period": "1s"}}


@pytest.mark.parametrize(
    ("sequence", "settings", "detail"),
    [
        (finished([[1, 1]] * 3, partial=True), {}, "partial: "),
        (finished(np.zeros((0, 2)), times_us=[]), {}, "too few samples: 0"),
        (finished([[1, 2, 3]] * 3), {}, "3, the plant has 2"),
        (finished([[1, 1]] * 3, times_us=[0, 5, 5]), {}, "do not increase"),
        (finished([[1, 1]] * 3, times_us=[0, 5, 4]), {}, "do not increase"),
        (finished([[1, 1]] * 3, times_us=[0, 10, 20]), GRID, "too short for the grid"),
    ],
)
def test_a_sequence_that_cannot_be_scored(sequence, settings, detail):
    assert detail in refusal(sequence, **settings)


@pytest.mark.parametrize(("n", "scorable"), [(2, False), (3, True)])
def test_fewest_samples(n, scorable):
    result = to_window(finished([[1, 1]] * n), WindowSettings(length=4, min_samples=3))
    assert isinstance(result, Window) == scorable


def test_a_single_sample_makes_a_window_if_that_is_allowed():
    assert window(finished([[1, 2]]), min_samples=1).length == 1
    assert window(finished([[1, 2]]), min_samples=1, resample={"period": "1s"}).values[:, 0].tolist() == [1, 2]


# --- missing values, no grid ----------------------------------------------------------------------------------------


def test_missing_is_interpolated_over_time_inside_and_held_at_the_edges():
    sequence = finished([[NAN, 1], [0, 1], [NAN, 1], [10, 1]], times_us=[0, 1_000, 2_000, 11_000])
    assert window(sequence, max_missing=0.5).values[0].tolist() == [0, 0, 1, 10]
    sequence = finished([[5, 1], [7, 1], [NAN, 1]])
    assert window(sequence, max_missing=0.5).values[0].tolist() == [5, 7, 7, 0]


def test_share_of_missing_exactly_at_the_limit_passes_and_one_more_does_not():
    values = np.ones((10, 2))
    values[:3, 1] = NAN
    assert window(finished(values), length=10, max_missing=0.3).length == 10
    values[3, 1] = NAN
    detail = refusal(finished(values), length=10, max_missing=0.3)
    assert "pressure" in detail
    assert "40\u00a0%" in detail


def test_missing_is_judged_per_channel_not_on_average():
    values = np.ones((10, 2))
    values[:5, 0] = NAN
    assert "temp: 50\u00a0%" in refusal(finished(values), length=10, max_missing=0.3)


def test_missing_is_judged_where_the_window_looks():
    values = np.ones((8, 2))
    values[4:, 0] = NAN
    assert window(finished(values), longer="truncate", max_missing=0).length == 4
    assert "50\u00a0%" in refusal(finished(values), longer="resample", max_missing=0.4)


def test_a_channel_without_any_value_is_named_even_if_all_may_be_missing():
    assert "channel pressure has no value" in refusal(finished([[1, NAN]] * 3), max_missing=1)
    assert "channel number 1 has no value" in refusal(finished([[1, NAN]] * 3), channels=None, max_missing=1)


def test_infinity_counts_as_missing():
    assert window(finished([[1, 1], [np.inf, 1], [3, 1]]), max_missing=0.4).values[0].tolist() == [1, 2, 3, 0]


def test_largest_finite_values_stay_finite():
    big = float(np.finfo(np.float32).max)
    values = [[big, -big], [NAN, big], [big, -big], [-big, big], [big, big]]
    assert window(finished(values), longer="resample", max_missing=0.5).values.max() == big


# --- grid -----------------------------------------------------------------------------------------------------------


def test_grid_runs_from_first_to_last_sample():
    sequence = finished([[0, 5], [10, 5], [30, 5]], times_us=[0, 1_000_000, 3_000_000])
    result = window(sequence, resample={"period": "1s"})
    assert result.values[0].tolist() == [0, 10, 20, 30]


@pytest.mark.parametrize(("end_us", "points"), [(2_999_999, 3), (3_000_000, 4), (3_000_001, 4)])
def test_grid_point_exactly_at_the_last_sample(end_us, points):
    sequence = finished([[1, 1], [1, 1]], times_us=[0, end_us])
    assert window(sequence, resample={"period": "1s"}, max_missing=1).length == points


def test_longer_grid_is_truncated_or_squeezed():
    ramp = finished([[i, 0] for i in range(7)])
    assert window(ramp, resample={"period": "1s"}, longer="truncate").values[0].tolist() == [0, 1, 2, 3]
    assert window(ramp, resample={"period": "1s"}, longer="resample").values[0].tolist() == [0, 2, 4, 6]
    assert "too long: 7 points" in refusal(ramp, resample={"period": "1s"}, longer="reject")


def test_absurd_span_under_a_fine_grid_is_refused_at_once():
    sequence = finished([[1, 1], [1, 1]], times_us=[0, 10**15])
    start = time.perf_counter()
    assert "time span too long for the grid" in refusal(sequence, resample={"period": "1ms"})
    assert time.perf_counter() - start < 5, "10^12 points would take hours"
    assert "time span too long" in refusal(finished([[1, 1]] * 2, times_us=[-(2**62), 2**62 - 1]))


def test_longest_allowed_grid():
    period_us = 1_000
    at_limit = finished([[0, 1], [1, 1]], times_us=[0, (MAX_GRID_POINTS - 1) * period_us])
    assert window(at_limit, resample={"period": "1ms"}, max_missing=1).length == 4
    beyond = finished([[0, 1], [1, 1]], times_us=[0, MAX_GRID_POINTS * period_us])
    assert "grid" in refusal(beyond, resample={"period": "1ms"}, max_missing=1)


@pytest.mark.parametrize("n", [20, 30, 51])
@pytest.mark.parametrize("first", [0, 4, 9])
def test_slow_sensor_is_not_missing_on_a_grid(n, first):
    values = np.ones((n, 2))
    values[:, 1] = NAN
    values[first::10, 1] = 7
    assert window(finished(values), length=n, resample={"period": "1s"}).values[1].tolist() == [7] * n
    assert "pressure" in refusal(finished(values), length=n)


@pytest.mark.parametrize("where", [slice(0, 15), slice(20, 35), slice(36, 51)])
def test_silent_channel_is_missing_on_a_grid(where):
    values = np.ones((51, 2))
    values[where, 0] = NAN
    detail = refusal(finished(values), length=51, resample={"period": "1s"})
    assert "temp" in detail
    assert "without a reading" in detail


def test_silence_of_a_slow_sensor_is_judged_by_its_own_rhythm():
    values = np.ones((101, 2))
    values[:, 1] = NAN
    values[0:101:10, 1] = 7
    values[30:60, 1] = NAN  # lost: 30, 40, 50; the silence of 40 s holds 30 s beyond one interval
    sequence = finished(values)
    assert window(sequence, length=101, resample={"period": "1s"}, max_missing=0.3).length == 101
    assert "30\u00a0%" in refusal(sequence, length=101, resample={"period": "1s"}, max_missing=0.29)


def test_readings_at_both_ends_only_are_no_rhythm():
    values = np.ones((51, 2))
    values[1:50, 0] = NAN
    assert "temp" in refusal(finished(values), length=51, resample={"period": "1s"})


def test_hole_in_all_channels_counts_on_a_grid():
    times = [*range(0, 20_000_000, 1_000_000), *range(40_000_000, 50_000_000, 1_000_000)]
    detail = refusal(finished(np.ones((30, 2)), times_us=times), length=64, resample={"period": "1s"})
    assert "without a reading" in detail


# --- laws -----------------------------------------------------------------------------------------------------------

_numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(
    rows=st.lists(st.tuples(_numbers, _numbers), max_size=12),
    steps=st.lists(st.integers(1, 10**13), min_size=12, max_size=12),
    longer=st.sampled_from(["truncate", "resample", "reject"]),
    period=st.sampled_from([None, {"period": "1us"}, {"period": "1s"}, {"period": "1h"}]),
    max_missing=st.floats(0, 1),
)
def test_result_is_finite_and_zero_from_its_length_on(rows, steps, longer, period, max_missing):
    values = np.array(rows, dtype=np.float32).reshape(len(rows), 2)
    sequence = finished(values, times_us=np.cumsum(steps)[: len(rows)])
    settings = WindowSettings(length=5, longer=longer, resample=period, max_missing=max_missing)
    result = to_window(sequence, settings, PLANT)
    if isinstance(result, Unscorable):
        assert result.detail
        return
    assert result.values.shape == (2, 5)
    assert result.values.dtype == np.float32
    assert 1 <= result.length <= 5
    assert np.isfinite(result.values).all()
    assert not result.values[:, result.length :].any()


@given(
    data=st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=30),
    shift=st.integers(-(10**15), 10**15),
)
def test_window_does_not_depend_on_when_the_sequence_happened(data, shift):
    values = np.array([[x, -x] for x in data])
    times = np.arange(len(data)) * 777_777
    here = window(finished(values, times), resample={"period": "500ms"}, max_missing=1)
    there = window(finished(values, times + shift), resample={"period": "500ms"}, max_missing=1)
    assert np.array_equal(here.values, there.values)


@given(data=st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=30), seed=st.integers(0, 99))
def test_complete_and_gappy_channels_are_read_alike(data, seed):
    times = np.cumsum(np.random.default_rng(seed).integers(1, 10**6, len(data)))
    complete = finished(np.array([[x, x] for x in data]), times)
    extended = np.array([[x, x] for x in data] + [[0, NAN]])
    gappy = finished(extended, [*times, times[-1] + 10])
    plain = window(complete, longer="truncate", resample={"period": "100ms"}, max_missing=1, min_samples=1)
    other = window(gappy, longer="truncate", resample={"period": "100ms"}, max_missing=1, min_samples=1)
    common = min(plain.length, other.length)
    inside = np.arange(common) * 100_000 <= times[-1] - times[0]
    np.testing.assert_allclose(other.values[1, :common][inside], plain.values[1, :common][inside], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("detail", "reason"),
    [
        ("too few samples: 3, needed are 5 (window.min_samples)", "too few samples (window.min_samples)"),
        ("too long: 9 points, the window holds 8 (window.longer is reject)", "too long (window.longer)"),
        ("channel a: b: 30\u00a0% of its samples are missing, allowed are 20\u00a0% (window.max_missing)", None),
        ("late: all samples came later than sequences.allowed_lateness allows", "late"),
        ("channel temp has no value in the sequence", "channel temp has no value in the sequence"),
        ("x" * 200, "x" * 100),
    ],
)
def test_reasons_are_the_same_whatever_the_figures(detail, reason):
    assert Unscorable(detail).reason == (reason or "channel a: b: too much is missing (window.max_missing)")


@pytest.mark.parametrize(
    ("settings", "n_samples", "span_us", "share"),
    [
        ({"longer": "resample"}, 9, 8_000_000, 1.0),
        ({"longer": "truncate"}, 4, 3_000_000, 1.0),
        ({"longer": "truncate"}, 9, 8_000_000, 3 / 8),
        ({"longer": "truncate"}, 1, 0, 1.0),
        ({"resample": {"period": "1s"}, "longer": "truncate"}, 90, 8_000_000, 3 / 8),
        ({"resample": {"period": "1s"}, "longer": "resample"}, 90, 8_500_000, 8 / 8.5),
        ({"resample": {"period": "1s"}, "longer": "truncate"}, 90, 2_500_000, 2 / 2.5),
    ],
)
def test_the_share_of_a_sequence_that_its_window_holds(settings, n_samples, span_us, share):
    assert shown_share(WindowSettings(length=4, **settings), n_samples, span_us) == pytest.approx(share)


HOLDS = (ChannelSpec("temp", "°C"), ChannelSpec("setpoint", "bar", "hold"))


def test_a_value_holds_until_the_next_reading_and_linear_channels_do_not():
    sequence = finished([[0, 20], [NAN, NAN], [2, 80], [3, NAN]])
    assert window(sequence, HOLDS, max_missing=0.3).values.tolist() == [[0, 1, 2, 3], [20, 20, 80, 80]]
    assert window(sequence, PLANT, max_missing=0.5).values[1].tolist() == [20, 50, 80, 80]


@pytest.mark.parametrize("settings", [{"resample": {"period": "1s"}}, {"length": 5, "longer": "resample"}])
def test_a_held_value_is_a_step_on_any_grid(settings):
    sequence = finished([[0, 20], [3, 80], [8, NAN]], times_us=[0, 3_000_000, 8_000_000])
    result = window(sequence, HOLDS, **{"length": 9, **settings})
    if "resample" in settings:
        assert result.values[1].tolist() == [20, 20, 20, 80, 80, 80, 80, 80, 80]
    else:
        assert result.values[1, : result.length].tolist() == [20, 80, 80]


def test_a_longer_sequence_is_squeezed_without_a_ramp():
    times_us = np.arange(9) * 1_000_000
    sequence = finished([[i, 80 if i == 5 else 20 if i == 0 else NAN] for i in range(9)], times_us=times_us)
    assert window(sequence, HOLDS, length=5, longer="resample").values.tolist() == [
        [0, 2, 4, 6, 8],
        [20, 20, 20, 80, 80],
    ]


def test_a_sequence_begins_with_what_it_carries_on():
    carried = np.array([NAN, 70], np.float32)
    assert window(finished([[0, NAN], [1, NAN]], carried=carried), HOLDS).values[1, :2].tolist() == [70, 70]
    assert window(finished([[0, NAN], [1, 90]], carried=carried), HOLDS).values[1, :2].tolist() == [70, 90]
    assert window(finished([[0, 90], [1, NAN]], carried=carried), HOLDS).values[1, :2].tolist() == [90, 90]


@pytest.mark.parametrize(("first_us", "begins"), [(499_999, 90), (500_000, 70)])
def test_a_value_that_is_carried_on_for_less_than_half_a_step_is_not_shown(first_us, begins):
    times_us = [0, first_us, 2_000_000]
    sequence = finished([[0, NAN], [NAN, 90], [2, NAN]], times_us, carried=np.array([NAN, 70], np.float32))
    shown = window(sequence, HOLDS, resample={"period": "1s"}, max_missing=1.0)
    assert shown.values[1, :3].tolist() == [begins, 90, 90]


@pytest.mark.parametrize("grid", [{}, {"resample": {"period": "1s"}}])
def test_a_channel_that_holds_is_missing_before_its_first_reading(grid):
    sequence = finished([[0, NAN], [1, 90], [2, NAN], [3, NAN], [4, NAN]])
    assert window(sequence, HOLDS, length=5, max_missing=0.25, **grid).values[1].tolist() == [90] * 5
    share = "25\u00a0% of the time lies" if grid else "20\u00a0% of its samples lie"
    refused = refusal(sequence, HOLDS, length=5, max_missing=0.1, **grid)
    assert refused == f"channel setpoint: {share} before its first reading, allowed are 10\u00a0% (window.max_missing)"


def test_a_channel_that_holds_and_has_never_had_a_value_is_refused():
    without = finished([[0, NAN], [1, NAN]], carried=np.array([5, NAN], np.float32))
    assert refusal(without, HOLDS) == "channel setpoint has no value in the sequence, nor before it"
    assert "setpoint has no value" in refusal(without, HOLDS, max_missing=1.0)
