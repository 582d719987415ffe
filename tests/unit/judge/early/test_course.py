"""The course of a running sequence, and looks at it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamad.judge.early.course import Course, course_of, look_at, n_seen, n_seen_of, whole_course
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import ChannelSpec, FinishedSequence, FloatArray, Position

NAN = float("nan")
SECOND = 1_000_000
TWO = (ChannelSpec("a"), ChannelSpec("b"))
EVERY_SAMPLE = WindowSettings(length=64, max_missing=1.0)
GRID = WindowSettings.model_validate({"length": 64, "max_missing": 1.0, "resample": {"period": "1s"}})


def sequence_of(times_us: list[int], rows: list[list[float]], carried: list[float] | None = None) -> FinishedSequence:
    return FinishedSequence(
        "s",
        "1",
        "marker",
        np.array(times_us, dtype=np.int64),
        np.array(rows, dtype=np.float32),
        Position(0, 0),
        carried=None if carried is None else np.array(carried, dtype=np.float32),
    )


def until(sequence: FinishedSequence, time_us: int) -> FinishedSequence:
    """Return the samples up to ``time_us``."""
    n = int(np.searchsorted(sequence.times_us, time_us, side="right"))
    return replace(sequence, times_us=sequence.times_us[:n], values=sequence.values[:n])


def same(one: FloatArray, other: FloatArray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@st.composite
def sequences(draw: st.DrawFn) -> FinishedSequence:
    n = draw(st.integers(1, 12))
    steps = draw(st.lists(st.integers(1, 3 * SECOND), min_size=n - 1, max_size=n - 1))
    times_us = np.concatenate([[7], 7 + np.cumsum(steps, dtype=np.int64)]).astype(np.int64)
    reading = st.one_of(st.just(NAN), st.floats(-9, 9, width=32))
    rows = draw(st.lists(st.lists(reading, min_size=2, max_size=2), min_size=n, max_size=n))
    carried = draw(st.none() | st.lists(reading, min_size=2, max_size=2))
    return sequence_of(times_us.tolist(), rows, carried)


@given(sequences())
def test_the_course_of_the_samples_so_far_is_the_beginning_of_the_whole_course(sequence: FinishedSequence) -> None:
    whole = whole_course(sequence, GRID)
    for n in range(1, len(whole) + 1):
        seen = course_of(until(sequence, sequence.start_us + (n - 1) * SECOND), GRID, n)
        assert same(seen.values, whole.values[:, :n])
        assert same(seen.own, whole.own[:, :n])


@given(sequences())
def test_without_a_grid_each_sample_but_the_last_is_a_point(sequence: FinishedSequence) -> None:
    whole = whole_course(sequence, EVERY_SAMPLE)
    assert len(whole) == n_seen_of(sequence, EVERY_SAMPLE) == sequence.n_samples - 1
    for n in range(1, sequence.n_samples):
        so_far = replace(sequence, times_us=sequence.times_us[:n], values=sequence.values[:n])
        seen = course_of(so_far, EVERY_SAMPLE, n)
        assert same(seen.values, whole.values[:, :n])
        assert same(seen.own, whole.own[:, :n])


def test_a_point_is_seen_once_a_sample_lies_behind_it() -> None:
    assert [n_seen(GRID, 9, span) for span in (0, 1, SECOND, SECOND + 1, 2 * SECOND)] == [0, 1, 1, 2, 2]
    assert [n_seen(EVERY_SAMPLE, n, 10 * SECOND) for n in (1, 2, 3)] == [0, 1, 2]


def test_before_the_first_sample_of_a_sequence_that_began_earlier_lies_what_it_carries_on() -> None:
    late = replace(sequence_of([2 * SECOND, 4 * SECOND], [[1, 2], [3, 4]], [NAN, 7]), begun_us=0)
    assert np.array_equal(course_of(late, GRID, 4).values, [[NAN, NAN, 1, 1], [7, 7, 2, 2]], equal_nan=True)
    assert n_seen_of(late, GRID) == 4


def test_a_point_has_the_newest_reading_at_or_before_it() -> None:
    slow = sequence_of([0, SECOND, 2 * SECOND + 1, 3 * SECOND], [[1, 5], [2, NAN], [3, NAN], [NAN, 6]])
    course = course_of(slow, GRID, 5)
    assert course.values.tolist() == [[1, 2, 2, 3, 3], [5, 5, 5, 6, 6]]
    assert course.own.tolist() == [[True, True, False, True, False], [True, False, False, True, False]]


def test_what_lies_before_the_first_reading_gets_it_but_a_carried_reading_stands() -> None:
    late = sequence_of([0, SECOND, 2 * SECOND], [[1, NAN], [2, NAN], [3, 7]])
    window = look_at(course_of(late, GRID, 3), 3, GRID, TWO)
    assert window is not None
    assert window.values.tolist() == [[1, 2, 3], [7, 7, 7]]
    held = replace(late, carried=np.array([NAN, 4], dtype=np.float32))
    window = look_at(course_of(held, GRID, 3), 3, GRID, TWO)
    assert window is not None
    assert window.values.tolist() == [[1, 2, 3], [4, 4, 7]]


@pytest.mark.parametrize("settings", [EVERY_SAMPLE, GRID])
def test_a_look_is_not_taken_beyond_the_course_or_of_a_channel_without_a_reading(settings: WindowSettings) -> None:
    course = course_of(sequence_of([0, SECOND, 2 * SECOND], [[1, NAN], [2, NAN], [3, 7]]), settings, 3)
    assert look_at(course, 2, settings, TWO) is None
    assert look_at(course, 3, settings, TWO) is not None
    assert look_at(course, 4, settings, TWO) is None


@pytest.mark.parametrize("base", [EVERY_SAMPLE, GRID])
def test_a_look_is_not_taken_if_more_than_max_missing_is_missing_up_to_there(base: WindowSettings) -> None:
    settings = base.model_copy(update={"max_missing": 0.25})
    rows = [[1.0, 1.0], [2.0, 2.0], [3.0, NAN], [4.0, NAN], [5.0, NAN], [6.0, 6.0], [7.0, 7.0], [8.0, 8.0]]
    course = course_of(sequence_of([SECOND * n for n in range(8)], rows), settings, 8)
    assert look_at(course, 2, settings, TWO) is not None
    assert look_at(course, 5, settings, TWO) is None
    assert look_at(course, 8, settings.model_copy(update={"max_missing": 0.5}), TWO) is not None


def test_of_a_channel_that_holds_only_what_lies_before_its_first_reading_is_missing() -> None:
    settings = EVERY_SAMPLE.model_copy(update={"max_missing": 0.5})
    course = course_of(sequence_of([0, 1, 2, 3], [[1, NAN], [2, 5], [3, NAN], [4, NAN]]), settings, 4)
    holds = (TWO[0], ChannelSpec("b", fill="hold"))
    assert look_at(course, 4, settings, TWO) is None
    window = look_at(course, 4, settings, holds)
    assert window is not None
    assert window.values.tolist() == [[1, 2, 3, 4], [5, 5, 5, 5]]


def test_a_course_is_cut_at_a_point() -> None:
    course = course_of(sequence_of([0, 1, 2], [[1, 4], [2, 5], [3, 6]]), EVERY_SAMPLE, 3)
    assert len(course.up_to(2)) == 2
    assert isinstance(course.up_to(2), Course)
