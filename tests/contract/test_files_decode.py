"""The decoder reads the records of all file formats: the examples of docs/guide/files.md, as samples."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.plugins import ConnectorContext, connect_source
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.settings.numerals import Numerals
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, PartitionAssigned, RecordBatch, SampleBlock
from tests.support.examples import examples
from tests.support.ingest.decoded import block_in

CHANNELS = ("temp_c", "pressure_bar")
T_US = 1_772_352_930_250_000  # 2026-03-01T08:15:30.250Z
WIDE = {"stream": "unit", "sequence": "batch", "time": "time", "values": None}
LONG = {"stream": "unit", "sequence": "batch", "time": "ts", "channel": "tag", "value": "value"}


async def decode(
    url: str, base: Path, fields: dict[str, Any] | None, decimal: Any = ".", thousands: Any = None
) -> list[SampleBlock | str]:
    """Return the samples of each record, or the kind of its error."""
    clock = ManualClock(T_US + 10**9)
    context = ConnectorContext(tuple(map(ChannelSpec, CHANNELS)), clock, base, decimal=decimal, thousands=thousands)
    source = connect_source(url, {}, context)
    names = None if fields is None else FieldSettings(**fields)
    decode = DecodeSettings(fields=names, decimal=decimal, thousands=thousands)
    decoder = Decoder(decode, [ChannelSettings(name=name) for name in CHANNELS])
    found: list[SampleBlock | str] = []
    async for event in source.batches():
        if isinstance(event, PartitionAssigned):
            await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            for record in event.records:
                try:
                    block = block_in(decoder, record, clock.now_us())
                except DecodeError as error:
                    found.append(error.kind)
                else:
                    assert block is not None
                    found.append(block)
    await source.close()
    return found


def expect(block: SampleBlock | str, sequence: str, time_us: int, values: list[float]) -> None:
    assert isinstance(block, SampleBlock), block
    assert (block.sequence, block.times_us.tolist()) == (sequence, [time_us])
    np.testing.assert_array_equal(block.values, np.array([values], dtype=np.float32))


async def test_wide_csv(tmp_path: Path) -> None:
    rows = [
        "unit,batch,time,temp_c,pressure_bar,remark",
        "reactor-1,1042,2026-03-01T08:15:30.250Z,81.2,3.1,",
        "reactor-1,1042,2026-03-01T08:15:30.500Z,81.3,,fine",
        "reactor-1,1042,2026-03-01T08:15:30.750Z,Bad Input,3,",
        "reactor-1,1042,2026-03-01T08:15",
        "reactor-1,0042,2026-03-01T08:15:31.000Z,81.5,NaN,",
    ]
    (tmp_path / "a.csv").write_bytes("\n".join(rows).encode().replace(b"fine", b"St\xf6rung"))
    first, second, bad, cut, last = await decode("a.csv?text=batch", tmp_path, WIDE)
    expect(first, "1042", T_US, [81.2, 3.1])
    expect(second, "1042", T_US + 250_000, [81.3, np.nan])
    expect(bad, "1042", T_US + 500_000, [np.nan, 3])
    assert isinstance(bad, SampleBlock)
    assert bad.bad is not None
    assert bad.bad.first == {(0, 1): "must be a number or null, got 'Bad Input'"}
    assert cut == "malformed"
    expect(last, "0042", T_US + 750_000, [81.5, np.nan])


MARKS = [(".", None), (".", ","), (".", "'"), (",", None), (",", "."), (",", " ")]
WRITTEN = st.one_of(
    st.from_regex(r"[+-]?[0-9]{1,4}([.,' ][0-9]{1,4}){0,3}(e[0-9])?", fullmatch=True),
    st.sampled_from(["1,001", "999", "1.780", "1.780,6", "1'000'000", "1\u202f000,5", "Bad", "nan", "-0,5", "007"]),
)


@given(st.lists(WRITTEN, min_size=1, max_size=8), st.sampled_from(MARKS))
@settings(max_examples=examples(200), deadline=None)
async def test_a_cell_is_the_number_that_the_plants_marks_make_it_or_a_bad_value(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str], marks: tuple[Any, Any]
) -> None:
    folder = tmp_path_factory.mktemp("marks")
    rows = "".join(f'r;b;2026-03-01T08:15:{second:02}Z;"{cell}";1\n' for second, cell in enumerate(cells))
    (folder / "a.csv").write_text(f"unit;batch;time;temp_c;pressure_bar\n{rows}", encoding="utf-8")
    blocks = await decode("a.csv", folder, WIDE, *marks)
    assert len(blocks) == len(cells)
    for cell, block in zip(cells, blocks, strict=True):
        assert isinstance(block, SampleBlock)
        try:
            expected = Numerals(*marks).number(cell)
        except ValueError:
            expected = math.nan
        np.testing.assert_array_equal(block.values[0, 0], np.float32(expected), err_msg=cell)
        assert (block.bad is not None) == (math.isnan(expected) and cell != "nan")


async def test_a_followed_file_has_the_plants_marks_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("batch;temp_c\nB-1;1.780,5\nB-2;999\n", encoding="utf-8")
    context = ConnectorContext((ChannelSpec("temp_c"),), ManualClock(), tmp_path, decimal=",", thousands=".")
    source = connect_source("a.csv", {"follow": True, "follow_interval": "1ms"}, context)
    values: list[Any] = []
    async with aclosing(cast("AsyncGenerator[Any, None]", source.batches())) as events:
        async for event in events:
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch):
                values += [msgspec.msgpack.decode(record.value)["temp_c"] for record in event.records]
            if len(values) == 2:
                break
    await source.close()
    assert values == [1780.5, 999]


async def test_long_csv(tmp_path: Path) -> None:
    text = "unit;batch;ts;tag;value\nR1;7;1772352930,25;temp_c;81,2\nR1;7;1772352930,25;pressure_bar;3\n"
    (tmp_path / "a.csv").write_text(text)
    first, second = await decode("a.csv?decimal=,", tmp_path, LONG)
    expect(first, "7", T_US, [81.2, np.nan])
    expect(second, "7", T_US, [np.nan, 3])


WIDE_COLUMNS = {
    "unit": ["R1"],
    "batch": [1042],
    "time": pyarrow.array([T_US], pyarrow.timestamp("us")),
    "temp_c": [81.5],
    "pressure_bar": pyarrow.array([None], pyarrow.float64()),
}
LONG_COLUMNS = {"unit": ["R1"], "batch": ["B"], "ts": [T_US / 1e6], "tag": ["pressure_bar"], "value": [3.5]}


@pytest.mark.parametrize(
    ("columns", "fields", "sequence", "values"),
    [(WIDE_COLUMNS, WIDE, "1042", [81.5, np.nan]), (LONG_COLUMNS, LONG, "B", [np.nan, 3.5])],
    ids=["wide", "long"],
)
async def test_parquet(
    columns: dict[str, Any], fields: dict[str, Any], sequence: str, values: list[float], tmp_path: Path
) -> None:
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    (block,) = await decode("a.parquet", tmp_path, fields)
    expect(block, sequence, T_US, values)


@pytest.mark.parametrize("fields", [None, WIDE])
async def test_npz_is_read_whatever_decode_contains(fields: dict[str, Any] | None, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 300)).astype(np.float32)
    x[0, 1, 7] = np.nan
    np.savez(tmp_path / "a.npz", x=x, channels=np.array(["pressure_bar", "temp_c"]))
    # Far in the future, and in a period whose microseconds no binary fraction holds.
    blocks = await decode("a.npz?start=2090-01-01T00:00:00Z&period=333us", tmp_path, fields)
    assert all(isinstance(block, SampleBlock) for block in blocks), blocks
    parts = [block for block in blocks if isinstance(block, SampleBlock)]
    assert [(part.stream, part.sequence, part.end) for part in parts] == [("a", "0000", False), ("a", "0000", True)]
    np.testing.assert_array_equal(np.concatenate([part.values for part in parts]), x[0, ::-1].T)
    times_us = np.concatenate([part.times_us for part in parts])
    np.testing.assert_array_equal(np.diff(times_us), 333)
