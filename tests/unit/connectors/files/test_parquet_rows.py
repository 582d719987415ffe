"""Parquet: rows as maps of plain values, read group by group."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from pathlib import Path

import msgspec
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


async def test_an_index_without_a_name_is_a_column_unless_it_counts_rows(tmp_path: Path) -> None:
    """pandas writes a nameless index so; whole numbers are those of the rows before some were left out."""
    noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    columns = {
        "temp_c": [81.5, 82.5],
        "__index_level_0__": pyarrow.array([noon, noon], pyarrow.timestamp("us", tz="UTC")),
        "__index_level_1__": pyarrow.array([7, 9], pyarrow.int64()),
        "__index_level_2__": [0.5, 1.5],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    first, _ = await read_maps("a.parquet", tmp_path)
    assert first == {"temp_c": 81.5, "__index_level_0__": "2026-03-01T12:00:00+00:00", "__index_level_2__": 0.5}


LISTS = [[1, 2], None, [], [3], [None, 4], [5, 6, 7]]


@pytest.mark.parametrize("begin", [0, 2, 5])
async def test_cells_of_lists_are_those_of_columns(begin: int, tmp_path: Path) -> None:
    millis = [some and [n and n * 1_000 for n in some] for some in LISTS]
    columns = {
        "time": pyarrow.array(millis, pyarrow.list_(pyarrow.timestamp("ms"))),
        "age": pyarrow.array(millis, pyarrow.large_list(pyarrow.duration("ms"))),
        "price": pyarrow.array([some and [n and Decimal(n) for n in some] for some in LISTS]),
        "open": pyarrow.array([some and [n and n > 3 for n in some] for some in LISTS]),
        "pair": pyarrow.array([[1.5, n] if n != 1 else None for n in range(6)], pyarrow.list_(pyarrow.float64(), 2)),
        "deep": pyarrow.array([some and [[n], []] for n, some in enumerate(LISTS)]),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    rows = [
        {
            "time": some and [n and f"1970-01-01T00:00:{n:02}+00:00" for n in some],
            "age": some and [n and float(n) for n in some],
            "price": some and [n and float(n) for n in some],
            "open": some and [n and int(n > 3) for n in some],
            "pair": [1.5, float(number)] if number != 1 else None,
            "deep": some and [[number], []],
        }
        for number, some in enumerate(LISTS)
    ]
    found = await read_one("a.parquet", tmp_path, begin=begin)
    assert [msgspec.msgpack.decode(record.value) for record in found] == rows[begin:]
