"""Recordings of raw records: any bytes are read back unchanged; whole files or none."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamad.errors import OutputError, SourceError, UsageError
from streamad.plugins import ConnectorContext, connect_feed
from streamad.ports import Feed, FeedRecord, RangedSource
from streamad.ranges import Span
from streamad.testing import ManualClock, check_source
from streamad.types import PartitionAssigned, Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.records import encode_header, encode_record, read_records
from tests.support.files import file_size_limit, read, read_one, source

CONTEXT = ConnectorContext((), ManualClock())
OFFSETS = st.integers(0, 2**63 - 1)
TIMES_OF_RECORDS = st.none() | st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
VALUES = (
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    | st.text(alphabet='{}[]",:\\ \n\r\t01e-.ntf\x00\ufeff').map(str.encode)
    | st.integers(1, 3000).map(lambda depth: b"[" * depth + b"]" * depth)
)
KEYS = st.none() | st.binary() | st.text().map(str.encode)
RECORDS = st.lists(
    st.builds(
        Record,
        OFFSETS,
        VALUES,
        TIMES_OF_RECORDS,
        KEYS,
        schema=st.none() | st.just("01ab"),
        label=st.none() | st.just("a/b"),
    ),
    unique_by=lambda record: record.offset,
    max_size=6,
).map(lambda records: sorted(records, key=lambda record: record.offset))


def write(path: Path, records: Sequence[Record], *, from_start: bool = True, partition: str = "t-0") -> Path:
    header = encode_header(partition, from_start=from_start, streamad="0")
    path.write_bytes(header + b"".join(map(encode_record, records)))
    return path


def feed(url: str | Path, **options: Any) -> Feed:
    return connect_feed(str(url), options, CONTEXT)


def read_folder(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def sent(records: Sequence[Record]) -> list[FeedRecord]:
    return [
        FeedRecord(record.value, record.key, record.timestamp_us, record.offset, record.schema, record.label)
        for record in records
    ]


def record(offset: int, time_us: int | None = None, value: bytes = b"{}", key: bytes | None = None) -> Record:
    return Record(offset, value, time_us, key)


# --- the format ---


@given(RECORDS)
@example([Record(0, b""), Record(1, b" {} "), Record(2, b'{"a": NaN}'), Record(3, b'{\n"a": 1}')])
@example([Record(0, b'"\xff"'), Record(1, b'"\\ud800"'), Record(2, b"1e999"), Record(3, b'1,"offset":7')])
@example([Record(0, b"null"), Record(1, b"{}\r"), Record(2, b"[[1]"), Record(3, "\u2028\x85".encode())])
@example([Record(0, b"1", 253_402_300_800_000_000, b""), Record(1, b"1", -62_135_596_800_000_001, b"\xff")])
def test_every_record_is_read_back(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    path = write(tmp_path_factory.mktemp("records") / "t-0.records.jsonl", records)
    found = list(read_records(path, 0, FileOptions(), CONTEXT))
    assert [item for item, _ in found] == records
    assert [after for _, after in found] == [item.offset + 1 for item in records]


@given(RECORDS)
def test_every_line_is_json_and_one_line(records: list[Record]) -> None:
    for item in records:
        line = encode_record(item)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        decoded = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert decoded["offset"] == item.offset
        assert ("value" in decoded) != ("value_base64" in decoded)


def test_json_and_text_are_readable_in_a_line() -> None:
    line = encode_record(Record(7, b'{"temp":  81.2}', 1_767_225_600_250_000, b"reactor-1"))
    assert line == b'{"offset":7,"time":"2026-01-01T00:00:00.250000Z","key":"reactor-1","value":{"temp":  81.2}}\n'
    assert (
        encode_record(Record(7, b"\xff\n", None, b"\xff"))
        == b'{"offset":7,"key_base64":"/w==","value_base64":"/wo="}\n'
    )


async def test_the_format_is_known_by_the_ending_also_packed(tmp_path: Path) -> None:
    records = [record(5, 1_000_000, b'{"a":1}', b"k"), record(9, None, b"\x00")]
    packed = write(tmp_path / "T-1.Records.JSONL", records).read_bytes()
    (tmp_path / "T-2.records.jsonl.gz").write_bytes(gzip.compress(packed))
    (tmp_path / "records.jsonl").write_bytes(b"{}\n")
    (tmp_path / "t-3.records.jsonl.part").write_bytes(b"")
    found = await read(tmp_path, tmp_path)
    assert found == {"T-1.Records.JSONL": records, "T-2.records.jsonl.gz": records, "records.jsonl": [Record(0, b"{}")]}
    write(tmp_path / "other.log", records)
    assert await read_one("other.log", tmp_path, format="records") == records


async def test_the_law_of_sources(tmp_path: Path) -> None:
    write(tmp_path / "t-0.records.jsonl", [record(3 * i, i, b"%d" % i) for i in range(1300)])
    write(tmp_path / "t-1.records.jsonl", [])
    await check_source(lambda: source(tmp_path, tmp_path))


async def test_a_value_of_the_largest_size_is_whole_and_a_longer_line_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0.records.jsonl", [record(0, 0, b"\xff" * 1000, b"k")])
    assert await read_one(path, tmp_path, max_record_bytes=1000) == [record(0, 0, b"\xff" * 1000, b"k")]
    with pytest.raises(SourceError, match="line 2 is too long; raise the option max_record_bytes"):
        await read_one(path, tmp_path, max_record_bytes=600)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (b'{"offset":1}\n', "neither value nor value_base64"),
        (b'{"offset":1,"value_base64":"*"}\n', "line 2 is no record"),
        (b'{"offset":1,"value":{}}\n{"offset":1,"value":{}}\n', "line 3: offset 1 does not come after 1"),
        (b'{"offset":1,"value":{}}\n\n{"offset":2,"val', "line 4 is no record .the file ends in the middle of it"),
        (b'{"offset":1,"time":"2026-01-01T00:00:00","value":{}}\n', "no zone"),
        (b'{"stream":"a"}\n', "line 2 is no record"),
    ],
)
async def test_a_damaged_file_is_an_error_with_the_line(lines: bytes, why: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t-0.records.jsonl", [])
    path.write_bytes(path.read_bytes() + lines)
    with pytest.raises(SourceError, match=why):
        await read_one(path, tmp_path)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "does not say 'streamad records'"),
        (b'{"stream":"a"}\n', "give the option format=jsonl"),
        (b"\xff\n", "does not say 'streamad records'"),
        (b'{"format":"streamad records","version":2,"partition":"p","from_start":true,"streamad":"9"}\n', "newer"),
    ],
)
async def test_a_foreign_file_is_refused(first: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "t-0.records.jsonl").write_bytes(first)
    with pytest.raises(SourceError, match=why):
        await read_one("t-0.records.jsonl", tmp_path)


async def test_continuing_behind_the_end_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0.records.jsonl", [record(5), record(6)])
    assert await read_one(path, tmp_path, begin=7) == []
    with pytest.raises(SourceError, match="reading resumes at 8"):
        await read_one(path, tmp_path, begin=8)


# --- ranges of time ---

TIMES_US = [10, 30, 20, None, 30, 40, 35, 50]


@pytest.mark.parametrize(
    ("since_us", "until_us", "offsets"),
    [
        (None, None, range(8)),
        (10, None, range(8)),
        (11, None, range(1, 8)),  # the late record of 20 and the one without a time lie behind the first of 30
        (31, 36, []),
        (31, 41, range(5, 7)),
        (None, 30, range(1)),
        (None, 31, range(5)),
        (51, None, []),
    ],
)
async def test_a_range_begins_and_ends_as_in_a_topic(
    since_us: int | None, until_us: int | None, offsets: Sequence[int], tmp_path: Path
) -> None:
    records = [record(offset, time_us) for offset, time_us in enumerate(TIMES_US)]
    path = write(tmp_path / "t-0.records.jsonl", records)
    for begin in range(8):
        found = read_records(path, begin, FileOptions(), CONTEXT, Span(since_us, until_us))
        assert [item.offset for item, _ in found] == [offset for offset in offsets if offset >= begin]


@pytest.mark.parametrize(
    ("from_start", "since_us", "seen"),
    [(True, None, True), (True, 10, True), (True, 11, False), (False, None, False), (False, 5, False)],
)
async def test_a_cut_beginning_is_reported(from_start: bool, since_us: int | None, seen: bool, tmp_path: Path) -> None:
    write(tmp_path / "t-0.records.jsonl", [record(0, 10), record(1, 20)], from_start=from_start)
    opened = source(tmp_path, tmp_path)
    assert isinstance(opened, RangedSource)
    events = opened.between(since_us, None).batches()
    assert await anext(events) == PartitionAssigned("t-0.records.jsonl", seen)


async def test_files_without_record_times_have_no_ranges(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    write(tmp_path / "t-0.records.jsonl", [])
    with pytest.raises(UsageError, match=r"a.jsonl: has no record times to cut by"):
        source(tmp_path, tmp_path).between(None, 5)
    assert source(tmp_path, tmp_path).between(None, None).files()


# --- the feed ---


@given(RECORDS, st.integers(1, 5))
def test_fed_records_are_read_back(tmp_path_factory: pytest.TempPathFactory, records: list[Record], step: int) -> None:
    folder = tmp_path_factory.mktemp("fed")

    async def work() -> list[Record]:
        feeding = feed(folder / "new" / "t-0.records.jsonl")
        for first in range(0, len(records), step):
            await feeding.send(sent(records[first : first + step]))
        await feeding.flush()
        await feeding.close()
        return await read_one(folder / "new", folder)

    assert asyncio.run(work()) == records
    assert read_folder(folder / "new") == ["t-0.records.jsonl"]


async def test_a_recording_appears_with_flush_and_grows_then(tmp_path: Path) -> None:
    path = tmp_path / "t-0.records.jsonl"
    feeding = feed(path, partition="t-0", from_start=False)
    await feeding.send([FeedRecord(b"{}"), FeedRecord(b"{}", offset=7), FeedRecord(b"1")])
    assert not path.exists()
    await feeding.flush()
    await feeding.send([FeedRecord(b"2", b"k", 5)])
    await feeding.flush()
    await feeding.close()
    await feeding.close()
    found = await read_one(path, tmp_path)
    assert found == [Record(0, b"{}"), Record(7, b"{}"), Record(8, b"1"), Record(9, b"2", 5, b"k")]
    header = json.loads(path.read_bytes().splitlines()[0])
    assert (header["partition"], header["from_start"]) == ("t-0", False)


async def test_records_never_flushed_are_kept_in_an_unfinished_file(tmp_path: Path) -> None:
    feeding = feed(tmp_path / "t-0.records.jsonl")
    await feeding.send([FeedRecord(b"{}")])
    await feeding.close()
    assert read_folder(tmp_path) == ["t-0.records.jsonl.part"]
    with pytest.raises(OutputError, match=r"remove its \.part to keep what it holds"):
        await feed(tmp_path / "t-0.records.jsonl").send([FeedRecord(b"{}")])
    (tmp_path / "t-0.records.jsonl.part").rename(tmp_path / "t-0.records.jsonl")
    assert await read_one(tmp_path, tmp_path) == [Record(0, b"{}")]


async def test_an_existing_recording_is_never_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0.records.jsonl", [record(3)])
    with pytest.raises(OutputError, match="is there already"):
        await feed(path).send([FeedRecord(b"{}")])
    assert await read_one(path, tmp_path) == [record(3)]
    late = feed(tmp_path / "t-1.records.jsonl")
    await late.send([FeedRecord(b"{}")])
    other = write(tmp_path / "t-1.records.jsonl", [record(4)])
    with pytest.raises(OutputError, match="is there already"):
        await late.flush()
    await late.close()
    assert await read_one(other, tmp_path) == [record(4)]


async def test_nothing_sent_is_an_empty_recording(tmp_path: Path) -> None:
    feeding = feed(tmp_path / "t-0.records.jsonl")
    await feeding.flush()
    await feeding.close()
    assert await read_one(tmp_path, tmp_path) == []


async def test_offsets_must_rise(tmp_path: Path) -> None:
    feeding = feed(tmp_path / "t-0.records.jsonl")
    await feeding.send([FeedRecord(b"{}", offset=5)])
    with pytest.raises(OutputError, match="offset 5 does not come after 6"):
        await feeding.send([FeedRecord(b"{}"), FeedRecord(b"{}", offset=5)])
    await feeding.send([FeedRecord(b"1")])
    await feeding.flush()
    await feeding.close()
    assert [item.offset for item in await read_one(tmp_path, tmp_path)] == [5, 6]


@pytest.mark.parametrize("name", ["t-0.jsonl", ".records.jsonl", ""])
def test_the_name_must_have_the_ending(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"ends in \.records\.jsonl"):
        feed(f"file:{tmp_path}/{name}")


async def test_a_full_disk_is_one_line_and_leaves_whole_lines(tmp_path: Path) -> None:
    feeding = feed(tmp_path / "t-0.records.jsonl")
    await feeding.send([FeedRecord(b"{}")])
    full = pytest.raises(OutputError, match=r"cannot write .*\.part: .*; raise the file size limit")
    with file_size_limit(1000), full as refused:
        await feeding.send([FeedRecord(b"1" * 300)] * 5)
    assert "\n" not in str(refused.value)
    await feeding.send([FeedRecord(b"2")])
    await feeding.flush()
    await feeding.close()
    assert await read_one(tmp_path, tmp_path) == [Record(0, b"{}"), Record(1, b"2")]


async def test_a_full_disk_at_the_first_line_leaves_nothing(tmp_path: Path) -> None:
    with file_size_limit(10), pytest.raises(OutputError, match="cannot write"):
        await feed(tmp_path / "t-0.records.jsonl").send([FeedRecord(b"{}")])
    assert read_folder(tmp_path) == []
