"""The function for Spark, without Spark: frames in any pieces give the verdicts of ``Model``, or an error."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamad import Model
from streamad.errors import InputError
from streamad.spark import SCHEMA, score
from tests.support.walks import walks, with_faults

X = np.concatenate([walks(6, 1), with_faults(walks(3, 2))])
COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]


def frame(of: Sequence[int] = range(len(X)), **more: str) -> pd.DataFrame:
    rows = [
        {"id": f"batch {place}", "time": float(point), "temp": a, "pressure": b, **more}
        for place in of
        for point, (a, b) in enumerate(X[place].T.tolist())
    ]
    return pd.DataFrame(rows)


def judged(model: Model, frames: list[pd.DataFrame], **options: Any) -> pd.DataFrame:
    found = list(score(model, **options)(iter(frames)))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=COLUMNS)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_frames_in_any_pieces_give_the_verdicts_of_the_model(model: Model, size: int) -> None:
    whole = frame()
    pieces = [whole.iloc[begin : begin + size] for begin in range(0, len(whole), size)]
    found = judged(model, pieces if size > 1 else [*pieces[:500], whole.iloc[500:]])
    expected = model.verdicts(whole)
    assert found.columns.tolist() == COLUMNS
    for name in ("sequence", "stream", "decision", "n_samples"):
        assert found[name].tolist() == [getattr(each, name) for each in expected], name
    np.testing.assert_allclose(found["score"], [each.score for each in expected], rtol=1e-6)
    assert found["model"].unique().tolist() == ["default"]
    assert found["start_time"].tolist() == [pd.Timestamp(each.start_time).tz_localize(None) for each in expected]


def test_pieces_that_end_with_their_sequences_give_every_bit(model: Model) -> None:
    found = judged(model, [frame([place]) for place in range(len(X))])
    assert found["score"].tolist() == [model.verdicts(frame([place]))[0].score for place in range(len(X))]


def test_a_pickled_function_judges_alike_and_loads_a_model_once_a_process(model: Model) -> None:
    function = score(model)
    one, other = (pickle.loads(pickle.dumps(function)) for _ in range(2))  # noqa: S301 - our own
    results = [pd.concat(each([frame()])) for each in (function, one, other)]
    assert results[0].equals(results[1])
    assert results[0].equals(results[2])
    assert "_opened" not in vars(one.model) or "_opened" not in vars(other.model)


def test_ids_of_two_streams_are_two_sequences(model: Model) -> None:
    both = pd.concat([frame([0, 1], line="L1"), frame([1, 2], line="L2")], ignore_index=True)
    found = judged(model, [both.iloc[:70], both.iloc[70:]], stream="line")
    assert list(zip(found["stream"], found["sequence"], strict=True)) == [
        ("L1", "batch 0"), ("L1", "batch 1"), ("L2", "batch 1"), ("L2", "batch 2"),
    ]  # fmt: skip
    assert found["score"].iloc[1] == pytest.approx(found["score"].iloc[2], rel=1e-6)


@pytest.mark.parametrize("cut", [[60], [30], [30, 60, 80]])
def test_a_sequence_that_comes_in_pieces_is_refused(model: Model, cut: list[int]) -> None:
    again = pd.concat([frame([0, 1]), frame([0])], ignore_index=True)
    pieces = [again.iloc[begin:end] for begin, end in zip([0, *cut], [*cut, len(again)], strict=True)]
    with pytest.raises(InputError, match=r"'batch 0' comes in pieces.*sortWithinPartitions by id and time"):
        judged(model, pieces)


def test_an_empty_partition_has_no_verdict(model: Model) -> None:
    assert judged(model, []).empty
    assert judged(model, [frame().iloc[:0]]).empty


def test_rows_without_an_id_or_a_column_are_refused(model: Model) -> None:
    rows = frame([0])
    rows.loc[3, "id"] = None
    with pytest.raises(InputError, match="rows without an id"):
        judged(model, [rows])
    with pytest.raises(InputError, match="no column line"):
        judged(model, [frame([0])], stream="line")
    with pytest.raises(InputError, match="no column pressure"):
        judged(model, [frame([0]).drop(columns="pressure")])
