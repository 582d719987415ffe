"""Which sequences X holds, in each of its forms, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamad.errors import InputError
from streamad.notebook.sequences import FrameColumns, Sequences, sequences_of
from tests.support.walks import walks

NAN = float("nan")
COLUMNS = FrameColumns()
START = datetime(2026, 1, 5, 8, tzinfo=UTC)


def frame(X: Any, times: list[Any] | None = None) -> dict[str, list[Any]]:
    """Return the columns of a frame that holds the sequences of ``X``, whose rows are mixed."""
    rows = [
        (f"batch {place}", (times or list(range(X.shape[2])))[point], *X[place, :, point])
        for point in range(X.shape[2])
        for place in range(len(X))
    ]
    return {name: list(values) for name, values in zip(("id", "time", "a", "b"), zip(*rows, strict=True), strict=True)}


def values(sequences: Sequences) -> list[Any]:
    return [each.values.T for each in sequences]


def test_an_array_a_list_and_frames_of_two_libraries_are_the_same_sequences() -> None:
    X = walks(3, length=5)
    expected = X.astype(np.float32)
    data = frame(X)
    shuffled = pd.DataFrame(data).sample(frac=1.0, random_state=1)
    first = shuffled["id"].drop_duplicates().tolist()
    for found in (sequences_of(X, COLUMNS), sequences_of(list(X), COLUMNS), sequences_of(X.tolist(), COLUMNS)):
        np.testing.assert_array_equal(values(found), expected)
        assert [each.sequence for each in found] == ["0", "1", "2"]
    for table in (pd.DataFrame(data), pa.table(data)):
        found = sequences_of(table, COLUMNS)
        np.testing.assert_array_equal(values(found), expected)
        assert found.channels == ("a", "b")
        assert [each.sequence for each in found] == ["batch 0", "batch 1", "batch 2"]
    found = sequences_of(shuffled, COLUMNS)
    assert [each.sequence for each in found] == first
    np.testing.assert_array_equal(values(found), expected[[int(name[-1]) for name in first]])


def test_points_at_the_end_without_a_value_are_padding_and_those_within_are_not() -> None:
    X = np.array([[[1.0, NAN, 3.0, NAN], [1.0, NAN, NAN, NAN]]])
    (found,) = sequences_of(X, COLUMNS)
    np.testing.assert_array_equal(found.values, [[1, 1], [NAN, NAN], [3, NAN]])


def test_masked_values_are_missing() -> None:
    X = np.ma.masked_greater(np.array([[[1.0, 9.0, 3.0]]]), 8)
    (found,) = sequences_of(X, COLUMNS)
    np.testing.assert_array_equal(found.values, [[1], [NAN], [3]])


@pytest.mark.parametrize(
    "times",
    [
        [START + timedelta(seconds=each) for each in (0, 1, 2.5)],
        [(START + timedelta(seconds=each)).replace(tzinfo=None) for each in (0, 1, 2.5)],
        [START.timestamp() + each for each in (0, 1, 2.5)],
    ],
    ids=["datetimes", "datetimes without a zone", "seconds"],
)
def test_times_of_frames_are_datetimes_or_seconds(times: list[Any]) -> None:
    found = sequences_of(pd.DataFrame(frame(walks(1, length=3), times)), COLUMNS)
    start_us = round(START.timestamp() * 1e6)
    assert found.items[0].times_us.tolist() == [start_us, start_us + 1_000_000, start_us + 2_500_000]


def test_columns_are_named() -> None:
    data = pd.DataFrame(frame(walks(2, length=3))).rename(columns={"id": "batch", "time": "at"})
    found = sequences_of(data, FrameColumns("batch", "at", ("b",)))
    assert (found.channels, found.items[0].values.shape) == (("b",), (3, 1))


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.zeros((3, 4)), r"2 dimensions.*X\[None\].*X\[:, None, :\]"),
        (np.zeros(7), "1 dimensions"),
        (None, "X is no array"),
        ({"a": 1}, "X is no array"),
        ([np.zeros(7)], r"X\[0\] has 1 dimensions"),
        ("recordings.csv", "X is an array"),
        ([np.zeros((2, 4)), np.zeros((3, 4))], r"different numbers of channels: \[2, 3\]"),
        (np.array([[["a"]]]), "not numbers"),
        (np.full((1, 1, 2), np.inf), "infinite"),
        (np.zeros((1, 1, 0)), "'0' has no point"),
        (np.full((1, 1, 2), 1e300), "too large"),
        (pd.DataFrame({"id": ["a"], "t": [1.0], "x": [1.0]}), "no column time"),
        (pd.DataFrame({"id": ["a"], "time": [1.0]}), "no channel"),
        (pd.DataFrame({"id": ["a", None], "time": [1.0, 2.0], "x": [1.0, 2.0]}), "without an id"),
        (pd.DataFrame({"id": ["a", "a"], "time": [1.0, None], "x": [1.0, 2.0]}), "without a time"),
        (pd.DataFrame({"id": ["a", "a"], "time": [1.0, 1.0], "x": [1.0, 2.0]}), "two rows of one time"),
        (pd.DataFrame({"id": ["a"], "time": ["Monday"], "x": [1.0]}), "times are datetimes"),
        (pd.DataFrame({"id": ["a"], "time": [1e300], "x": [1.0]}), "no seconds"),
        (pd.DataFrame({"id": ["a"], "time": [1.0], "x": ["on"]}), "column 'x' holds"),
        (pd.DataFrame({"id": ["a"], "time": np.array(["20000"], "M8[s]"), "x": [1.0]}), "outside the years"),
        (pd.DataFrame({"id": ["a"], "time": [1.0], 0: [1.0]}), "column 0 has no text as its name"),
        (pd.DataFrame([["a", 1.0, 1.0, 2.0]], columns=["id", "time", "x", "x"]), "the same name"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else type(value).__name__,
)
def test_what_is_no_sequence_is_refused_with_what_is_one(X: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        sequences_of(X, COLUMNS)


def test_ids_that_differ_in_a_last_character_alone_are_two() -> None:
    data = pd.DataFrame({"id": ["a", "a\0", "a"], "time": [2.0, 2.0, 1.0], "x": [1.0, 2.0, 3.0]})
    found = sequences_of(data, COLUMNS)
    assert [(each.sequence, each.values[:, 0].tolist()) for each in found] == [("a", [3.0, 1.0]), ("a\0", [2.0])]


@pytest.mark.parametrize(
    ("ids", "says"),
    [(["a"], "2 sequences and 1 ids"), (["a", "a"], "two sequences: a"), (["a", "\ud800"], "half a character")],
)
def test_ids_name_each_sequence_once(ids: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        sequences_of(walks(2), COLUMNS, ids=ids)
