"""Times, positions, sequences and windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.registry.manifest import LearningRecord
from streamad.learn.store.records import Mark, TrainingRequest
from streamad.learn.trainer.status import TrainingStatus
from streamad.system.untrusted_json import decode_json
from streamad.types import FinishedSequence, Position, SampleBlock, WindowSet, from_us


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_from_us_is_exact_over_all_years(time_us: int) -> None:
    moment = from_us(time_us)
    assert moment.tzinfo is UTC
    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == time_us


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_001, 253_402_300_800_000_000])
def test_from_us_refuses_what_no_calendar_holds(time_us: int) -> None:
    with pytest.raises(OverflowError):
        from_us(time_us)


def test_positions_order_by_offset_then_index() -> None:
    assert Position(1, 9) < Position(2, 0) < Position(2, 1)


def test_a_finished_sequence_knows_its_span() -> None:
    times_us = np.array([5, 7, 11], dtype=np.int64)
    sequence = FinishedSequence("s", "q", "marker", times_us, np.zeros((3, 2), np.float32), Position(0, 0))
    assert (sequence.start_us, sequence.end_us, sequence.n_samples) == (5, 11, 3)
    assert type(sequence.start_us) is int
    assert len(SampleBlock("s", None, 0, times_us, sequence.values)) == 3


def test_taking_windows_keeps_their_ids_and_lengths() -> None:
    values = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    windows = WindowSet(values, np.array([4, 3, 2]), ("a", "b", "c"))
    taken = windows.take([2, 0, 2])
    assert taken.ids == ("c", "a", "c")
    assert taken.lengths.tolist() == [2, 4, 2]
    np.testing.assert_array_equal(taken.values, values[[2, 0, 2]])
    assert len(taken) == 3
    assert len(windows.take([])) == 0


def windows(first: float, last: float) -> WindowSet:
    values = np.full((2, 2, 4), first, np.float32)
    values[1, 1, 2] = last
    values[0, 0, 3] = 99.0  # padding
    return WindowSet(values, np.array([3, 3]), ("a", "b"))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0.0, 0.0, [0, 1]),
        (0.0, 1e-30, [0]),
        (-5.0, 5.0, [0]),
        (1.0, 1.0 + 2.0**-20, [0, 1]),  # 0.95e-6
        (1.0, 1.0 + 2.0**-19, [0]),  # 1.9e-6
        (-1e6, -1e6 + 0.5, [0, 1]),
        (-1e6, -1e6 + 2.0, [0]),
    ],
)
def test_variation_below_a_millionth_of_the_largest_value_is_none(
    first: float, last: float, expected: list[int]
) -> None:
    assert windows(first, last).constant_channels().tolist() == expected


def test_copies_of_a_window_are_one_whatever_lies_behind_its_end() -> None:
    values = np.arange(8, dtype=np.float32).reshape(4, 1, 2)
    values[1] = values[0]
    values[2, 0, 0] = values[3, 0, 0]
    data = WindowSet(values, np.array([2, 2, 1, 1]), ("a", "copy of a", "b", "copy of b"))
    assert data.distinct().ids == ("a", "b")
    assert WindowSet(values, np.array([2, 1, 1, 2]), data.ids).distinct().ids == data.ids


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_000, 0, 253_402_300_799_999_999])
def test_every_time_that_state_may_hold_is_a_datetime(time_us: int) -> None:
    content = b'{"reason": "command", "requested_us": %d}' % time_us
    moment = from_us(decode_json(content, TrainingRequest).requested_us)
    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == time_us


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_001, 253_402_300_800_000_000, 10**18, 10**30])
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"reason": "command", "requested_us": %d}', TrainingRequest),
        (b'{"reason": "relearn", "requested_us": 0, "since_us": %d}', TrainingRequest),
        *((b'{"%s": %%d}' % name, TrainingStatus) for name in (b"started_us", b"updated_us", b"last_ended_us")),
        (b'{"reason": "recordings", "since_us": %d}', LearningRecord),
        (b'{"id": "a", "judgement": "veto", "at_us": %d}', Mark),
    ],
)
def test_no_other_time_is_read_from_state(content: bytes, kind: type, time_us: int) -> None:
    with pytest.raises(msgspec.DecodeError, match=r"Expected `int`|out of range"):
        decode_json(content % time_us, kind)
