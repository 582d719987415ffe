"""A recording replaced by another one is refused, in every format; one that grew is continued."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch
from streamad_connectors.files.cursors import (
    BLOCK_BYTES,
    FileCursor,
    FinishedFile,
    JoinedCursor,
    Watch,
    block_starts,
    check_unchanged,
    decode_cursor,
    encode_finished,
    encode_joined,
    sample_digest,
)
from streamad_connectors.files.finding import FoundFile
from streamad_connectors.files.formats.jsonl import read_jsonl
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import Batches, ReadRecord, batched
from streamad_connectors.files.formats.records import encode_header, encode_record
from streamad_connectors.files.joined import JoinedFiles
from tests.support.files import source

Numbers = Sequence[int]


def jsonl(path: Path, numbers: Numbers) -> None:
    path.write_text("".join(f"{json.dumps({'n': number})}\n" for number in numbers))


def packed(path: Path, numbers: Numbers) -> None:
    path.write_bytes(gzip.compress("".join(f"{json.dumps({'n': number})}\n" for number in numbers).encode()))


def raw(path: Path, numbers: Numbers) -> None:
    lines = [encode_record(Record(i, json.dumps(number).encode())) for i, number in enumerate(numbers)]
    path.write_bytes(encode_header("p", from_start=True, streamad="0") + b"".join(lines))


def csv(path: Path, numbers: Numbers) -> None:
    path.write_text("".join(f"{row}\n" for row in ["n,text", *(f"{number},x" for number in numbers)]))


def as_parquet(path: Path, numbers: Numbers) -> None:
    parquet.write_table(pyarrow.table({"n": list(numbers)}), path)


def npz(path: Path, numbers: Numbers) -> None:
    np.savez(path, x=np.array(numbers, dtype=np.float32).reshape(-1, 1, 1))


WRITERS: dict[str, Callable[[Path, Numbers], None]] = {
    "a.jsonl": jsonl,
    "a.jsonl.gz": packed,
    "a.records.jsonl": raw,
    "a.csv": csv,
    "a.parquet": as_parquet,
    "a.npz": npz,
}


async def read(
    folder: Path, name: str, begin: int | None = None, cursor: str | None = None
) -> tuple[list[Record], list[RecordBatch]]:
    opened = source(name, folder)
    batches: list[RecordBatch] = []
    async with aclosing(cast("Any", opened.batches())) as events:
        async for event in events:
            if isinstance(event, PartitionAssigned) and cursor is not None:
                assert begin is not None
                await opened.resume(name, begin, cursor)
            elif isinstance(event, PartitionAssigned):
                await opened.seek(name, begin)
            elif isinstance(event, RecordBatch):
                batches.append(event)
    return [record for batch in batches for record in batch.records], batches


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("others", [range(100, 130), range(100, 120), [*range(19), 99, *range(20, 30)]])
async def test_a_replaced_recording_is_refused(name: str, others: Numbers, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, range(20))
    _, batches = await read(tmp_path, name)
    after, cursor = batches[-1].next_offset, batches[-1].cursor
    WRITERS[name](tmp_path / name, others)
    with pytest.raises(SourceError, match=r"it was replaced or cut; put the file back, or give the new") as caught:
        await read(tmp_path, name, after, cursor)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", WRITERS)
async def test_a_recording_that_grew_is_continued(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, range(20))
    _, batches = await read(tmp_path, name)
    WRITERS[name](tmp_path / name, range(30))  # gz, parquet and npz have other bytes now
    everything, _ = await read(tmp_path, name)
    grown, later = await read(tmp_path, name, batches[-1].next_offset, batches[-1].cursor)
    assert grown == everything[20:]
    assert len(grown) == 10
    again, _ = await read(tmp_path, name, everything[5].offset, later[-1].cursor)
    assert again == everything[5:]


@pytest.mark.parametrize("name", WRITERS)
async def test_the_cursor_does_not_depend_on_where_reading_resumed(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, range(1100))
    records, batches = await read(tmp_path, name)
    assert len(batches) == 3
    begin = records[100].offset
    for known in batches:
        _, later = await read(tmp_path, name, begin, known.cursor)
        assert later[-1].cursor == batches[-1].cursor


async def test_a_recording_moved_in_its_lines_is_refused(tmp_path: Path) -> None:
    """The same values at other offsets: the next record would be missed."""
    jsonl(tmp_path / "a.jsonl", range(20))
    _, batches = await read(tmp_path, "a.jsonl")
    (tmp_path / "a.jsonl").write_bytes(b"\n\n" + (tmp_path / "a.jsonl").read_bytes())
    with pytest.raises(SourceError, match="no longer holds the records"):
        await read(tmp_path, "a.jsonl", batches[-1].next_offset, batches[-1].cursor)


async def test_what_was_not_read_yet_may_change(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", range(1000))
    _, batches = await read(tmp_path, "a.jsonl")
    jsonl(tmp_path / "a.jsonl", [*range(600), *range(5000, 5010)])
    grown, _ = await read(tmp_path, "a.jsonl", batches[0].next_offset, batches[0].cursor)
    assert [json.loads(record.value)["n"] for record in grown] == [*range(512, 600), *range(5000, 5010)]


def test_the_blocks_of_a_file() -> None:
    for size in (0, 1, BLOCK_BYTES, 18 * BLOCK_BYTES):  # whole
        assert block_starts(size) == list(range(0, size, BLOCK_BYTES))
    starts = block_starts(10**9)
    assert (len(starts), starts[0], starts[-1]) == (18, 0, 10**9 - BLOCK_BYTES)


def test_a_changed_byte_at_either_end_of_a_large_file_is_noticed(tmp_path: Path) -> None:
    content = bytearray(3_000_000)
    (tmp_path / "a").write_bytes(content)
    before = sample_digest(tmp_path / "a", len(content))
    for place in (0, BLOCK_BYTES - 1, len(content) - BLOCK_BYTES, len(content) - 1):
        changed = content[:]
        changed[place] = 1
        (tmp_path / "a").write_bytes(changed)
        assert sample_digest(tmp_path / "a", len(content)) != before


def test_a_cursor_of_another_version_is_refused_in_one_line() -> None:
    with pytest.raises(
        SourceError, match=r"^a\.csv: the checkpoint's cursor cannot be read .* finish with the version"
    ):
        decode_cursor('{"x": 1}', "a.csv")


@pytest.mark.parametrize("n", [0, 1, 3])
def test_finished_files_that_are_encoded_already_give_the_same_text_of_a_cursor(n: int) -> None:
    current = FileCursor(name='a"b', size=1, digest="d", begin=0, next_offset=1)
    finished = tuple(FinishedFile(f"day-{i}.csv", i, "d", 7) for i in range(n))
    cursor = JoinedCursor(ordinal=n, current=current, mtime_ns=5, finished=finished, dropped=2, through="x")
    assert decode_cursor(encode_joined(cursor, map(encode_finished, finished)), "p") == cursor


def test_a_joined_file_that_grows_while_it_is_read_is_read_whole(tmp_path: Path) -> None:
    first, second = tmp_path / "day-1.jsonl", tmp_path / "day-2.jsonl"
    first.write_bytes(b'{"n":1}\n')
    second.write_bytes(b'{"n":3}\n')
    found = [FoundFile(path, path.name, "jsonl") for path in (first, second)]
    options = FileOptions(files="joined")

    def read(file: FoundFile, offset: int) -> Iterator[ReadRecord]:
        return read_jsonl(file.path, offset, options, ConnectorContext((), ManualClock(), tmp_path))

    def batches_of(file: FoundFile, offset: int, partition: str) -> Batches:
        return batched(read(file, offset), partition)

    values = []
    for batch in JoinedFiles("p", found, options, read, batches_of=batches_of).batches(0, None):
        assert isinstance(batch, RecordBatch)
        values += [record.value for record in batch.records]
        if values == [b'{"n":1}']:  # the reader stands behind the end of the first file
            first.write_bytes(b'{"n":1}\n{"n":2}\n')
    assert values == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


def test_a_sorted_file_that_grows_while_it_is_read_is_compared_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"4\n5\n")

    def batches() -> Generator[RecordBatch, None, None]:
        yield RecordBatch("p", (Record(0, b"4"), Record(1, b"5")), 2)

    watch = Watch(path, "a", 0, order="by time")
    watch.begin()
    path.write_bytes(b"4\n5\n1\n")
    cursor = watch.take(next(batches()))
    assert cursor.size == 4
    with pytest.raises(SourceError, match="grew by records that sort before"):
        check_unchanged(path, cursor, lambda: iter([(Record(0, b"1"), 1), (Record(1, b"4"), 2)]), order="by time")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"kind": "file"}', '{"kind": "file", "name": "\udcff"}', "\ud800",
     '{"kind": "file", "other": ' + "[" * 100_000 + "]" * 100_000 + "}"],
)  # fmt: skip
def test_a_cursor_that_no_version_wrote_is_an_error_in_one_line(text: str) -> None:
    with pytest.raises(SourceError, match="cursor cannot be read") as error:
        decode_cursor(text, "day.csv")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
