"""Parquet: rows as maps of plain values, read group by group."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from streamad.errors import SourceError
from tests.support.files import read_maps, read_one


async def test_wide_rows_become_plain_values(tmp_path: Path) -> None:
    noon = dt.datetime(2026, 3, 1, 12, 0, 0, 250_000)  # noqa: DTZ001  (a naive column is what is tested)
    table = pyarrow.table(
        {
            "batch": pyarrow.array(["007", "008"]).dictionary_encode(),
            "naive": pyarrow.array([noon, None], pyarrow.timestamp("ns")),
            "zoned": pyarrow.array([noon, noon], pyarrow.timestamp("ms", tz="Europe/Berlin")),
            "age": pyarrow.array([dt.timedelta(seconds=1.5), None]),
            "temp_c": pyarrow.array([81.5, None], pyarrow.float32()),
            "count": pyarrow.array([3, -1], pyarrow.int16()),
            "open": [True, None],
            "price": pyarrow.array([Decimal("1.25"), None]),
            "chunk": [[1.0, 2.0], []],
            "__index_level_0__": [0, 1],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    assert await read_maps("a.parquet", tmp_path) == [
        {
            "batch": "007",
            "naive": "2026-03-01T12:00:00.250000+00:00",
            "zoned": "2026-03-01T13:00:00.250000+01:00",
            "age": 1.5,
            "temp_c": 81.5,
            "count": 3,
            "open": 1,
            "price": 1.25,
            "chunk": [1.0, 2.0],
        },
        {
            "batch": "008",
            "naive": None,
            "zoned": "2026-03-01T13:00:00.250000+01:00",
            "age": None,
            "temp_c": None,
            "count": -1,
            "open": None,
            "price": None,
            "chunk": [],
        },
    ]


async def test_long_rows_and_seeking_across_row_groups(tmp_path: Path) -> None:
    n_rows = 1000
    table = pyarrow.table({"tag": ["a", "b"] * (n_rows // 2), "value": [float(i) for i in range(n_rows)]})
    parquet.write_table(table, tmp_path / "a.pq", row_group_size=300)
    for begin in (0, 1, 299, 300, 301, 899, 900, 999, 1000):
        records = await read_one("a.pq", tmp_path, begin=begin)
        assert [record.offset for record in records] == list(range(begin, n_rows))
    assert (await read_maps("a.pq", tmp_path))[301] == {"tag": "b", "value": 301.0}


async def test_no_rows(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"value": pyarrow.array([], pyarrow.float64())}), tmp_path / "a.parquet")
    assert await read_one("a.parquet", tmp_path) == []


async def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"needs pyarrow: pip install pyarrow"):
        await read_one("a.parquet", tmp_path)
