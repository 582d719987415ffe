"""Which sequences X holds, in each of its forms, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

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


def test_an_array_a_list_and_frames_of_three_libraries_are_the_same_sequences() -> None:
    X = walks(3, length=5)
    expected = X.astype(np.float32)
    data = frame(X)
    shuffled = pd.DataFrame(data).sample(frac=1.0, random_state=1)
    first = shuffled["id"].drop_duplicates().tolist()
    for found in (sequences_of(X, COLUMNS), sequences_of(list(X), COLUMNS), sequences_of(X.tolist(), COLUMNS)):
        np.testing.assert_array_equal(values(found), expected)
        assert [each.sequence for each in found] == ["0", "1", "2"]
    for table in (pd.DataFrame(data), pl.DataFrame(data), pa.table(data)):
        found = sequences_of(table, COLUMNS)
        np.testing.assert_array_equal(values(found), expected)
        assert found.channels == ("a", "b")
        assert [each.sequence for each in found] == ["batch 0", "batch 1", "batch 2"]
    for table in (shuffled, pl.from_dict(shuffled.to_dict("list"))):
        found = sequences_of(table, COLUMNS)
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
        [START - datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=each) for each in (0, 1, 2.5)],
    ],
    ids=["datetimes", "datetimes without a zone", "seconds", "durations"],
)
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_times_of_frames_are_datetimes_or_seconds(times: list[Any], library: Any) -> None:
    found = sequences_of(library(frame(walks(1, length=3), times)), COLUMNS)
    start_us = round(START.timestamp() * 1e6)
    assert found.items[0].times_us.tolist() == [start_us, start_us + 1_000_000, start_us + 2_500_000]


@pytest.mark.parametrize("library", [pl.DataFrame, pa.table])
def test_days_are_times(library: Any) -> None:
    days = [(START + timedelta(days=each)).date() for each in range(3)]
    found = sequences_of(library(frame(walks(1, length=3), days)), COLUMNS)
    assert np.diff(found.items[0].times_us).tolist() == [86_400_000_000] * 2


def test_frames_of_polars_may_have_nulls_kinds_and_chunks() -> None:
    table = pl.DataFrame(frame(walks(2, length=3)))
    expected = np.array(values(sequences_of(table, COLUMNS)))
    of_kinds = table.with_columns(pl.col("id").cast(pl.Categorical), pl.col("time").cast(pl.UInt8), pl.col("a") > 0)
    found = sequences_of(pl.concat([of_kinds.head(2), of_kinds.tail(4)], rechunk=False), COLUMNS)
    assert [each.sequence for each in found] == ["batch 0", "batch 1"]
    np.testing.assert_array_equal(np.array(values(found)), np.stack([expected[:, 0] > 0, expected[:, 1]], axis=1))
    for missing in (None, NAN):
        lacking = table.with_columns(pl.when(pl.col("time") == 1).then(missing).otherwise(pl.col("b")).alias("b"))
        found = sequences_of(lacking, COLUMNS)
        assert np.isnan(found.items[1].values[:, 1]).tolist() == [False, True, False]


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
        ("recordings.csv", r"X is the text .*: read a file before, such as pandas\.read_csv\('recordings\.csv'\)"),
        (Path("a.csv"), "X is the text 'a.csv'"),
        ([np.zeros((2, 4)), np.zeros((3, 4))], r"different numbers of channels: \[2, 3\]"),
        (np.array([[["a"]]]), "not numbers"),
        (np.full((1, 1, 2), np.inf), "infinite"),
        (np.zeros((1, 1, 0)), "'0' has no point"),
        (np.full((1, 1, 2), 1e300), "too large"),
        (pd.DataFrame({"id": ["a"], "t": [1.0], "x": [1.0]}), "no column time .*in streamad.load with id="),
        (pd.DataFrame({"id": ["a"], "time": [1.0]}), "no channel"),
        (pd.DataFrame({"id": ["a", None], "time": [1.0, 2.0], "x": [1.0, 2.0]}), "without an id"),
        (pd.DataFrame({"id": ["a", "a"], "time": [1.0, None], "x": [1.0, 2.0]}), "without a time"),
        (pd.DataFrame({"id": ["a", "a"], "time": [1.0, 1.0], "x": [1.0, 2.0]}), "two rows of one time"),
        (pd.DataFrame({"id": ["a"], "time": ["Monday"], "x": [1.0]}), "times are datetimes"),
        (pd.DataFrame({"id": ["a"], "time": [1e300], "x": [1.0]}), "no seconds"),
        (pd.DataFrame({"id": ["a"], "time": [1.0], "x": ["on"]}), "column 'x' holds"),
        (
            pd.DataFrame({"id": ["a"], "time": [1.0], "site": ["Basel"], "x": [1.0], "y": [2.0]}),
            r"column 'site' holds String, not numbers: name the channels with channels=\['x', 'y'\]",
        ),
        (pd.DataFrame({"id": ["a"], "time": np.array(["20000"], "M8[s]"), "x": [1.0]}), "outside the years"),
        (pd.DataFrame({"id": ["a"], "time": [1.0], 0: [1.0]}), "column 0 has no text as its name"),
        ([pd.DataFrame({"a": [1.0], "b": [2.0]})], r"X\[0\] is a data frame"),
        ([[[None, 1.0]]], r"X\[0\] holds None"),
        (pl.LazyFrame({"id": ["a"], "time": [1.0], "x": [1.0]}), "no eager data frame"),
        (pl.DataFrame({"id": ["a"], "time": [None], "x": [1.0]}), "without a time"),
        (pl.DataFrame({"id": [None], "time": [1.0], "x": [1.0]}), "without an id"),
        (pl.DataFrame({"id": ["a"], "time": ["Monday"], "x": [1.0]}), "times are datetimes"),
        (pl.DataFrame({"id": ["a"], "time": [1.0], "x": [START]}), "column 'x' holds Datetime"),
        (torch.zeros((1, 1, 2), requires_grad=True), "X is no array"),
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
