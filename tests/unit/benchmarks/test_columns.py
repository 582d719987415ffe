"""The benchmark of columns reads the same windows both ways, and the columns where it says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import columns

pytest.importorskip("pyarrow")


@pytest.mark.parametrize(("ending", "n_streams"), columns.CASES)
def test_rows_and_columns_give_the_same_windows(ending: str, n_streams: int, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    columns.write(path, 2_000, n_streams)
    n_by_rows, of_rows = asyncio.run(columns.windows(columns.plant_of(path), by_column=False))
    n_by_columns, of_columns = asyncio.run(columns.windows(columns.plant_of(path), by_column=True))
    assert n_by_columns == n_by_rows > 10
    assert of_rows.by_columns == 0
    assert of_columns.by_columns == of_columns.samples == of_rows.samples == 2_000


def test_a_step_counts_cpu_seconds_and_memory(tmp_path: Path) -> None:
    columns.write(tmp_path / "a.parquet", 2_000, 1)
    found = columns.step(tmp_path / "a.parquet", by_column=True)
    assert found["rows"] == found["rows_by_column"] == 2_000
    assert found["windows"] == 16
    assert found["cpu_s"] > 0
    assert found["memory_mb"] > 10
