"""Parquet files with times and texts that Python cannot hold, damaged ones, and ones made to fill the memory.

Law: such a cell costs itself only; whatever the bytes of a file are, reading it raises SourceError or returns.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.testing import ManualClock
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_pages import unpacked_bytes
from streamad_connectors.files.formats.parquet_rows import read_parquet
from tests.support.files import read_maps, read_one

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

GOOD_S = 1_767_225_600  # 2026-01-01T00:00:00Z
TEXT = "2026-01-01T00:00:00+00:00"


def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


@pytest.mark.parametrize(
    ("unit", "value"),
    [("ms", 10**15), ("ms", -(10**15)), ("us", 2**60), ("us", -(2**60)), ("ms", 2**62), ("us", -(2**62))],
)
@pytest.mark.parametrize("zone", [None, "UTC"])
async def test_a_time_beyond_the_calendar_costs_its_row_only(
    unit: str, value: int, zone: str | None, tmp_path: Path
) -> None:
    good = GOOD_S * {"ms": 10**3, "us": 10**6}[unit]
    write(tmp_path / "a.parquet", {"time": pa.array([good, value, None, good], pa.timestamp(unit, zone))})
    cells = [row["time"] for row in await read_maps("a.parquet", tmp_path)]
    assert cells == [TEXT, f"{value} as timestamp[{unit}{', tz=UTC' if zone else ''}]", None, TEXT]


async def test_a_date_beyond_the_calendar(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"day": pa.array([20_454, 2**31 - 1], pa.date32())})
    assert [row["day"] for row in await read_maps("a.parquet", tmp_path)] == [
        "2026-01-01",
        f"{2**31 - 1} as date32[day]",
    ]


async def test_long_durations_do_not_wrap_around(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"d": pa.array([2**62, 1_500], pa.duration("ms"))})
    assert [row["d"] for row in await read_maps("a.parquet", tmp_path)] == [2**62 / 1_000, 1.5]


@pytest.mark.parametrize("dictionary", [False, True])
async def test_text_that_is_no_utf8_costs_its_cell_only(dictionary: bool, tmp_path: Path) -> None:
    offsets = pa.py_buffer(struct.pack("<4i", 0, 2, 3, 5))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"ok\xffok")])
    write(tmp_path / "a.parquet", {"s": texts}, use_dictionary=dictionary)
    assert [row["s"] for row in await read_maps("a.parquet", tmp_path)] == ["ok", b"\xff", "ok"]


async def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["v", "v"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet: column 'v' appears twice; rename one"):
        await read_one("a.parquet", tmp_path)


async def test_a_row_group_above_the_limit_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"v": [0.0] * 500_000}, use_dictionary=False, compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    with pytest.raises(SourceError, match=r"a\.parquet: row group 0 would take more than 1 MiB unpacked; .*split"):
        await read_one("a.parquet", tmp_path, max_decompressed_bytes="1MiB")
    assert pa.total_allocated_bytes() - before < 1 << 20


async def test_row_groups_at_the_limit_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"v": [0.0] * 500_000}, use_dictionary=False, row_group_size=100_000)
    assert len(await read_one("a.parquet", tmp_path, max_decompressed_bytes="1MiB")) == 500_000


async def test_one_long_text_that_comes_again_and_again_is_unpacked_once(tmp_path: Path) -> None:
    """512 rows at once would take 512 MB; the file says that the row group takes one."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 512, pa.int32()), pa.array(["x" * 1_000_000]))
    write(tmp_path / "a.parquet", {"s": text})
    pool = pa.default_memory_pool()
    records = _records(tmp_path / "a.parquet")
    assert len(next(records)[0].value) > 1_000_000
    assert pool.bytes_allocated() < 64 << 20
    records.close()


def _records(path: Path) -> Any:
    return read_parquet(path, 0, FileOptions.model_validate({}), ConnectorContext((), ManualClock()))


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 5_000))
@settings(max_examples=60, deadline=None)
async def test_any_bytes_changed_or_cut(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], length: int
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    path = folder / "a.parquet"
    times = pa.array([GOOD_S * 1_000 + i for i in range(20)], pa.timestamp("ms"))
    write(path, {"time": times, "v": [1.5 * i for i in range(20)], "s": ["a", "b"] * 10})
    content = bytearray(path.read_bytes())
    for at, value in changes:
        content[at % len(content)] = value
    path.write_bytes(content[:length] if length < 1_000 else content)
    with suppress(SourceError):
        await read_one("a.parquet", folder)


def _number(value: int, size: int = 0) -> bytes:
    """Return ``value`` as Thrift's compact protocol writes it, ``size`` bytes long at least."""
    rest, content = value << 1, bytearray()
    while rest > 127 or len(content) < size - 1:
        content.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*content, rest])


def _lying_footer(content: bytes, honest: int) -> bytes:
    """Return the file with a footer that says 10 bytes wherever it says ``honest``."""
    (length,) = struct.unpack("<I", content[-8:-4])
    body, footer = content[: -8 - length], content[-8 - length :]
    true = _number(honest)
    assert true in footer
    return body + footer.replace(true, _number(10, len(true)))


async def test_a_footer_that_lies_about_what_its_pages_take(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"v": [0.0] * 2_000_000}, use_dictionary=False, compression="zstd")
    path.write_bytes(_lying_footer(path.read_bytes(), pq.read_metadata(path).row_group(0).total_byte_size))
    assert pq.read_metadata(path).row_group(0).total_byte_size == 10
    before = pa.total_allocated_bytes()
    with pytest.raises(SourceError, match=r"row group 0 would take more than 1 MiB unpacked"):
        await read_one("a.parquet", tmp_path, max_decompressed_bytes="1MiB")
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert len(await read_one("a.parquet", tmp_path, max_decompressed_bytes="17MB")) == 2_000_000


@pytest.mark.parametrize("page", ["data", "dictionary"])
async def test_a_page_header_that_claims_more_than_is_allowed(tmp_path: Path, page: str) -> None:
    """pyarrow takes the memory that the header names before it unpacks a byte."""
    path = tmp_path / "a.parquet"
    write(path, {"v": list(range(1000))}, use_dictionary=page == "dictionary", write_statistics=False)
    content = path.read_bytes()
    assert content[4] == content[6] == 0x15  # fields 1 (type of page) and 2 (size), whole numbers
    end = next(i for i in range(7, 20) if content[i] < 128) + 1
    path.write_bytes(content[:7] + _number(1_900_000_000) + content[end:])
    assert pq.read_metadata(path).row_group(0).total_byte_size < 20_000
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(SourceError, match=r"row group 0 would take more than 1024 MiB unpacked"):
        await read_one("a.parquet", tmp_path)
    assert pa.default_memory_pool().max_memory() - peak < 1 << 20


async def test_a_dictionary_that_claims_more_entries_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"v": list(range(1000))}, write_statistics=False, compression="none")
    content = path.read_bytes()
    entries = _number(1000)
    at = content.index(b"\x15" + entries, 7)
    path.write_bytes(content[: at + 1] + _number(500_000_000) + content[at + 1 + len(entries) :])
    with pytest.raises(SourceError, match=r"row group 0 would take more than 1024 MiB unpacked"):
        await read_one("a.parquet", tmp_path)


async def test_a_row_with_a_list_of_one_value_again_and_again(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"v": [[0.5] * 1_000_000]})
    assert pq.read_metadata(tmp_path / "a.parquet").row_group(0).total_byte_size < 10_000
    with pytest.raises(SourceError, match=r"row group 0 would take more than 1 MiB unpacked"):
        await read_one("a.parquet", tmp_path, max_decompressed_bytes="1MiB")
    assert len(await read_one("a.parquet", tmp_path, max_decompressed_bytes="9MB")) == 1


@given(
    rows=st.integers(1, 3_000),
    compression=st.sampled_from(["none", "snappy", "zstd", "gzip"]),
    version=st.sampled_from(["1.0", "2.0"]),
    page_bytes=st.sampled_from([64, 1_000, 1 << 20]),
    statistics=st.booleans(),
    dictionary=st.booleans(),
    checksum=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_what_an_honest_file_takes_is_what_its_footer_says(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    rows: int,
    compression: str,
    version: str,
    page_bytes: int,
    statistics: bool,
    dictionary: bool,
    checksum: bool,
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    columns = {
        "time": pa.array([GOOD_S * 1_000 + i for i in range(rows)], pa.timestamp("ms")),
        "s": [None if i % 7 == 0 else f"text {i % 90}" * 20 for i in range(rows)],
        "l": [[float(i)] * (i % 3) for i in range(rows)],
    }
    write(
        path,
        columns,
        compression=compression,
        data_page_version=version,
        data_page_size=page_bytes,
        write_statistics=statistics,
        use_dictionary=dictionary,
        write_page_checksum=checksum,
        row_group_size=1_000,
    )
    metadata = pq.read_metadata(path)
    with path.open("rb") as file:
        for group in range(metadata.num_row_groups):
            for i in range(metadata.num_columns):
                column = metadata.row_group(group).column(i)
                found = unpacked_bytes(file, column, 1 << 40)
                said = column.total_uncompressed_size  # headers of the pages included
                entries = 16 * rows if column.has_dictionary_page else 0
                assert 0 < found <= said + entries
                if i == 0 and not dictionary:  # times take 8 bytes each
                    assert found >= 8 * metadata.row_group(group).num_rows


async def test_a_column_whose_name_holds_a_nul(tmp_path: Path) -> None:
    pq.write_table(pa.table({"stre\0m": ["r1"], "v": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet: the name of column 'stre\\x00m' holds a NUL character"):
        await read_one("a.parquet", tmp_path)


async def test_a_column_whose_name_is_no_utf8(tmp_path: Path) -> None:
    pq.write_table(pa.table({"stream": ["r1"], "vvvv": [1.0]}), tmp_path / "a.parquet", store_schema=False)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content.replace(b"vvvv", b"\x80vvv"))
    with pytest.raises(SourceError, match=r"a\.parquet: cannot be read as Parquet \(.*can't decode byte 0x80"):
        await read_one("a.parquet", tmp_path)
