"""JSON lines: every line that is not blank, as it is, under the offset of its first byte."""

from __future__ import annotations

import gzip
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.testing import ManualClock
from streamad_connectors.files.formats.csv_files.rows import read_csv
from streamad_connectors.files.formats.jsonl import read_jsonl
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import BatchReader, batched
from tests.support.files import read_one

CONTENT = '\ufeff{"a": "µ"}\r\n\n  \t\r\n{broken\n{"b": 2}'.encode()
RECORDS = [(0, b'{"a": "\xc2\xb5"}'), (22, b"{broken"), (30, b'{"b": 2}')]


@pytest.mark.parametrize("packed", [False, True])
async def test_bom_line_ends_blank_lines_and_a_last_line_without_end(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(gzip.compress(CONTENT) if packed else CONTENT)
    assert [(record.offset, record.value) for record in await read_one(path, tmp_path)] == RECORDS
    for begin in range(1, len(CONTENT) + 1):
        found = [(record.offset, record.value) for record in await read_one(path, tmp_path, begin=begin)]
        assert found == [item for item in RECORDS if item[0] >= begin]


@given(st.lists(st.binary(max_size=12)), st.sampled_from([b"\n", b"\r\n"]), st.integers(1, 9))
def test_lines_come_back(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, limit: int) -> None:
    # Ends of lines, and a byte order mark, are marks and no content.
    lines = [line.replace(b"\n", b"?").replace(b"\r", b"?").replace(b"\xef\xbb\xbf", b"?") for line in lines]
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b"".join(line + end for line in lines))
    context = ConnectorContext((), ManualClock(), path.parent)
    found = [record.value for record, _ in read_jsonl(path, 0, FileOptions(max_record_bytes=limit), context)]
    # Nothing readable is changed; what is cut is recognisable as too large.
    cut = [line[: limit + 1] for line in lines]
    assert found == [line for line in cut if line.strip()]


async def test_a_huge_line_is_cut_and_memory_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"x" * 1_000_000)
        file.write(b"\n{}\n")
    tracemalloc.start()
    huge, after = await read_one(path, tmp_path, max_record_bytes="100KB")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert huge.value == b"x" * 100_001
    assert (after.offset, after.value) == (40_000_001, b"{}")
    assert peak < 5_000_000


async def test_a_line_exactly_at_the_limit_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"12345\n123456\n1234567")
    records = await read_one(path, tmp_path, max_record_bytes=5)
    assert [record.value for record in records] == [b"12345", b"123456", b"123456"]
    assert [record.offset for record in records] == [0, 6, 13]


async def test_records_are_foreign_and_without_time(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}")
    (record,) = await read_one("a.jsonl", tmp_path)
    assert (record.native, record.timestamp_us, record.key) == (False, None, None)


class StopAtThirdLook(threading.Event):
    """A stop that comes while the third piece of a file is read."""

    looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        return self.looks >= 3


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz"])
async def test_a_stop_ends_a_run_of_blank_lines_at_the_next_piece(name: str, tmp_path: Path) -> None:
    """Some KB of a packed file stand for millions of lines without a record; memory is that of a piece."""
    content = b'{"a": 1}\n' if "jsonl" in name else b"a,b\n1,2\n"
    blank = b"\n" * 10_000_000
    path = tmp_path / name
    path.write_bytes(gzip.compress(content + blank, 1) if name.endswith(".gz") else content + blank)
    read = read_jsonl if "jsonl" in name else read_csv
    records = read(path, 0, FileOptions(), ConnectorContext((), ManualClock(), tmp_path))
    stop = StopAtThirdLook()
    reader = BatchReader(batched(records, "p"), path, stop)
    with pytest.raises(SourceError, match="reading it was interrupted"):
        await reader.next_batch()
    assert stop.looks == 3
    reader.close()


async def test_a_hole_of_a_sparse_file_is_one_long_line_and_read_at_once(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(b"1\n")
        file.seek(900 << 30)  # to read its zeros would take minutes
        file.write(b"\n2\n")
    records = await read_one("a.jsonl", tmp_path, max_record_bytes=1_000)
    assert [record.value for record in records] == [b"1", b"\0" * 1_001, b"2"]
    assert records[-1].offset == (900 << 30) + 1
