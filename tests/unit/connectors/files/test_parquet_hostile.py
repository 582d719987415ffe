"""Parquet files with times and texts that Python cannot hold, damaged ones, and ones made to fill the memory.

Laws: such a cell costs itself only. Whatever the bytes of a file are, reading it raises SourceError or returns. The
process that reads it takes at most 256 MiB more than ``max_decompressed_bytes``, and this one nothing.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.testing import ManualClock
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_files import reader
from streamad_connectors.files.formats.parquet_files.rows import read_parquet
from tests.support.files import read_maps, read_one

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

both_ways = pytest.mark.parametrize("by_column", [False, True])
needs_limit = pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the memory of a process")
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


MIB = 1 << 20
LIBRARIES = 96 * MIB  # what the reading process maps of Python's and pyarrow's files, which no limit counts
MEASURE = """
import json, resource, sys
from pathlib import Path
from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.testing import ManualClock
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_files.reader import end_waiting
from streamad_connectors.files.formats.parquet_files.columns import read_parquet_columns
from streamad_connectors.files.formats.parquet_files.rows import read_parquet
from streamad.tables import Wanted
options = FileOptions.model_validate({"max_decompressed_bytes": sys.argv[2]})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows, error = 0, ""
try:
    context, wanted = ConnectorContext((), ManualClock()), Wanted(frozenset("sv"), frozenset("sv"))
    if sys.argv[3] == "row":
        for _ in read_parquet(Path(sys.argv[1]), 0, options, context):
            rows += 1
    else:
        for batch in read_parquet_columns(Path(sys.argv[1]), 0, options, context, wanted):
            at = 0
            while at < batch.n:
                at += len(batch.rows(at, min(at + 512, batch.n)))
            rows += at
except SourceError as raised:
    error = str(raised)
end_waiting()
here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
there = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([rows, error, here << 10, there << 10]))
"""


class Measured(NamedTuple):
    """What reading a file gave, and the most bytes that this process and the reading one took."""

    rows: int
    error: str
    here: int
    there: int


def measured(path: Path, limit: str = "1GiB", *, by_column: bool = False) -> Measured:
    command = [sys.executable, "-c", MEASURE, path, limit, "column" if by_column else "row"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(*json.loads(done.stdout))


def assert_refused(path: Path, limit_mib: int = 1024, *, damaged: str = "", by_column: bool = False) -> None:
    found = measured(path, f"{limit_mib}MiB", by_column=by_column)
    too_large = f"row group 0 would take more than {limit_mib} MiB unpacked; if the file is good, raise"
    assert (damaged or too_large) in found.error
    assert found.here < 32 * MIB
    if sys.platform == "linux":
        assert found.there < (limit_mib + 256) * MIB + LIBRARIES


@both_ways
def test_a_row_group_above_the_limit_is_refused_before_it_is_unpacked(by_column: bool, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"v": [0.0] * 500_000}, use_dictionary=False, compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    assert_refused(tmp_path / "a.parquet", 1, by_column=by_column)


async def test_row_groups_at_the_limit_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"v": [0.0] * 500_000}, use_dictionary=False, row_group_size=100_000)
    assert len(await read_one("a.parquet", tmp_path, max_decompressed_bytes="1MiB")) == 500_000


@both_ways
def test_one_long_text_that_comes_again_and_again_is_unpacked_once(by_column: bool, tmp_path: Path) -> None:
    """512 rows at once would take 512 MB; the file says that the row group takes one."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 512, pa.int32()), pa.array(["x" * 1_000_000]))
    write(tmp_path / "a.parquet", {"s": text})
    found = measured(tmp_path / "a.parquet", "2MiB", by_column=by_column)
    assert (found.rows, found.error) == (512, "")
    assert found.here < 32 * MIB


@needs_limit
@both_ways
def test_texts_that_repeat_the_beginning_of_the_one_before(by_column: bool, tmp_path: Path) -> None:
    """pyarrow takes the memory of all of them from some 500 bytes; no header says how much that is."""
    write(
        tmp_path / "a.parquet",
        {"s": ["x" * 1_200_000] * 512},
        use_dictionary=False,
        column_encoding={"s": "DELTA_BYTE_ARRAY"},
        compression="zstd",
        write_statistics=False,
    )
    assert (tmp_path / "a.parquet").stat().st_size < 6_000
    assert_refused(tmp_path / "a.parquet", 256, by_column=by_column)


@needs_limit
def test_columns_that_fit_into_the_limit_some_at_a_time(tmp_path: Path) -> None:
    """All at once would take 216 MB and the libraries the rest; no header says so.

    More rows are read at once by column than as records. pyarrow keeps the texts that it has read, 108 MB in the end.
    """
    write(
        tmp_path / "a.parquet",
        {"s": ["x" * 60_000] * 1_800},
        use_dictionary=False,
        column_encoding={"s": "DELTA_BYTE_ARRAY"},
        compression="zstd",
    )
    found = measured(tmp_path / "a.parquet", "1MiB", by_column=True)
    assert (found.rows, found.error) == (1_800, "")
    assert found.here < 32 * MIB


@needs_limit
def test_a_file_is_read_after_one_that_took_all_memory(tmp_path: Path) -> None:
    test_texts_that_repeat_the_beginning_of_the_one_before(False, tmp_path)
    write(tmp_path / "b.parquet", {"v": [1.5, 2.5]})
    with pytest.raises(SourceError, match="row group 0 would take more"):
        list(_records(tmp_path / "a.parquet", "256MiB"))
    assert len(list(_records(tmp_path / "b.parquet", "256MiB"))) == 2


def test_one_changed_byte_that_ends_the_process(tmp_path: Path) -> None:
    """The footer says that a column has no nulls, its statistics say that it has: pyarrow 26 aborts."""
    path = tmp_path / "a.parquet"
    write(path, {"v": [1.5, 2.5]})
    content = path.read_bytes()
    assert content.count(b"\x25\x02\x18\x01v") == 1  # field 3: optional; field 4: the name
    path.write_bytes(content.replace(b"\x25\x02\x18\x01v", b"\x25\x00\x18\x01v"))
    with pytest.raises(SourceError, match=r"a\.parquet: cannot be read as Parquet \(.*\); write it anew"):
        list(_records(path))


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGABRT, "cannot be read as Parquet (the process that read it was ended by SIGABRT); write it anew"),
        (signal.SIGSEGV, "cannot be read as Parquet (the process that read it was ended by SIGSEGV); write it anew"),
        (signal.SIGKILL, "there is not enough memory to read it; free some, or split the file"),
    ],
)
def test_a_file_that_ends_the_process_that_reads_it(number: signal.Signals, error: str, tmp_path: Path) -> None:
    """C++ aborts if there is no memory where it cannot say so; the kernel kills if the machine has none."""
    path = tmp_path / "a.parquet"
    write(path, {"v": [float(i) for i in range(100_000)]})
    assert len(list(_records(path))) == 100_000
    process = reader._idle[-1]._process  # noqa: SLF001 - nothing else names the process
    records = _records(path)
    next(records)
    os.kill(process.pid, number)
    with pytest.raises(SourceError) as raised:
        list(records)
    assert str(raised.value) == f"{path}: {error}"
    assert process.poll() is not None
    assert len(list(_records(path))) == 100_000


def test_a_waiting_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"v": [1.5, 2.5]})
    list(_records(path))
    waiting = reader._idle[-1]._process  # noqa: SLF001 - nothing else names the process
    waiting.kill()
    waiting.wait()
    assert len(list(_records(path))) == 2


def test_another_limit_needs_another_process(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"v": [0.0] * 500_000}, use_dictionary=False)
    assert len(list(_records(path))) == 500_000
    with pytest.raises(SourceError, match="row group 0 would take more than 1 MiB"):
        list(_records(path, "1MiB"))


def _records(path: Path, limit: str = "1GiB") -> Any:
    options = FileOptions.model_validate({"max_decompressed_bytes": limit})
    return read_parquet(path, 0, options, ConnectorContext((), ManualClock()))


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


def test_a_footer_that_lies_about_what_its_pages_take(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"v": [0.0] * 2_000_000}, use_dictionary=False, compression="zstd", row_group_size=2_000_000)
    path.write_bytes(_lying_footer(path.read_bytes(), pq.read_metadata(path).row_group(0).total_byte_size))
    assert pq.read_metadata(path).row_group(0).total_byte_size == 10
    found = measured(path, "1MiB")  # page after page fits
    assert (found.rows, found.error) == (2_000_000, "")
    assert found.there < 257 * MIB + LIBRARIES


@needs_limit
@pytest.mark.parametrize(("page", "damaged"), [("data", "Page was smaller"), ("dictionary", "")])
def test_a_page_header_that_claims_more_than_is_allowed(tmp_path: Path, page: str, damaged: str) -> None:
    """pyarrow takes the memory that the header names before it unpacks a byte."""
    path = tmp_path / "a.parquet"
    write(path, {"v": list(range(1000))}, use_dictionary=page == "dictionary", write_statistics=False)
    content = path.read_bytes()
    assert content[4] == content[6] == 0x15  # fields 1 (type of page) and 2 (size), whole numbers
    end = next(i for i in range(7, 20) if content[i] < 128) + 1
    path.write_bytes(content[:7] + _number(1_900_000_000) + content[end:])
    assert pq.read_metadata(path).row_group(0).total_byte_size < 20_000
    assert_refused(path, damaged=damaged)


@needs_limit
def test_a_dictionary_that_claims_more_entries_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"v": list(range(1000))}, write_statistics=False, compression="none")
    content = path.read_bytes()
    entries = _number(1000)
    at = content.index(b"\x15" + entries, 7)
    path.write_bytes(content[: at + 1] + _number(500_000_000) + content[at + 1 + len(entries) :])
    assert_refused(path)


@needs_limit
def test_a_row_with_a_list_of_one_value_again_and_again(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"v": [[0.5] * 10_000_000]})
    assert pq.read_metadata(tmp_path / "a.parquet").row_group(0).total_byte_size < 20_000
    assert_refused(tmp_path / "a.parquet", 1)
    assert measured(tmp_path / "a.parquet").rows == 1


@needs_limit
def test_a_footer_that_claims_more_elements_than_it_has(tmp_path: Path) -> None:
    """Thrift makes room for a million row groups before it reads one."""
    path = tmp_path / "a.parquet"
    write(path, {"v": [1.0]})
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[-8:-4])
    footer = content[-8 - length : -8]
    at = footer.index(b"\x19\x1c", 20)  # field 4: a list of one row group
    footer = footer[: at + 1] + b"\xfc" + bytes([0xC0, 0x84, 0x3D]) + footer[at + 2 :]
    path.write_bytes(content[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    found = measured(path, "1MiB")
    assert "cannot be read" in found.error or "its footer would take more than 1 MiB unpacked" in found.error
    assert found.there < 257 * MIB + LIBRARIES
    assert found.here < 32 * MIB


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
