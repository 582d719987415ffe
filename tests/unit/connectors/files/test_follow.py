"""A file that is followed gives the records of the finished one, however it was written, rotated and read."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import ConfigError, SourceError
from streamad.types import FILE_OFFSETS, PartitionAssigned, Record, RecordBatch
from streamad_connectors.files.follow import growing
from streamad_connectors.files.follow import source as follow_module
from tests.support.examples import examples
from tests.support.files import read_one, source
from tests.support.follow import Tail, append, delete, move, n_open_files, rotate, write_anew
from tests.support.waiting import LIMIT_S


def json_lines(first: int, after: int) -> bytes:
    return b"".join(
        json.dumps({"n": n, "text": "µ" * (n % 5)}).encode() + b"\n\r\n"[: 1 + n % 3] for n in range(first, after)
    )


def csv_rows(first: int, after: int) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    for n in range(first, after):
        writer.writerow([f"B-{n}", n / 7, f'two\nlines, "{n}" µ' if n % 3 else "x"])
        if n % 4 == 0:
            text.write("broken\n")
    return text.getvalue().encode()


FORMATS = {
    "app.jsonl": (b"", json_lines),
    "app.csv": (b"id,temp,note\r\n", csv_rows),
    "app.tsv": (b'sep=,\r\n"device, 7"\n\nid,temp,note\r\n-,C,-\n', csv_rows),
}
LINES = {"app.tsv": {"header": 4, "first_row": 6}}
OPTIONS: dict[str, Any] = {"channels": ("temp",)}


# --- the law ---------------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.integers(1, 400),  # so many bytes are appended
    st.sampled_from(["look", "look", "rotate", "copytruncate", "stop", "stop and lose"]),
)


@given(
    name=st.sampled_from(sorted(FORMATS)),
    is_joined=st.booleans(),
    is_small=st.booleans(),
    steps=st.lists(STEPS, max_size=25),
    data=st.data(),
)
@settings(max_examples=examples(150), deadline=None)
async def test_followed_equals_finished(
    name: str, is_joined: bool, is_small: bool, steps: list[int | str], data: st.DataObject
) -> None:
    """Written in any pieces, rotated and read again at any moment: the records of its generations, each once.

    If it is joined, a new file begins instead of a rotation.
    """
    header, rows = FORMATS[name]
    small = {"WINDOW_BYTES": 32, "BLOCK_BYTES": 8, "LOOK_BYTES": 16} if is_small else {"LOOK_BYTES": growing.LOOK_BYTES}
    with tempfile.TemporaryDirectory() as folder, patch.multiple(growing, **small):
        writer = Writer(Path(folder) / name, header, rows(0, 60), is_joined=is_joined)
        reader = Reader(name, Path(folder), data, is_joined=is_joined)
        writer.write(5)
        await reader.look()
        for step in steps:
            if isinstance(step, int):
                writer.write(step)
            elif step == "look":
                await reader.look()
            elif step in ("rotate", "copytruncate"):
                if step == "copytruncate" and reader.is_running:
                    await reader.look()  # what comes between a look and the cut is in the copy, too
                writer.rotate(copies=step == "copytruncate")
            else:
                await reader.stop(loses=step == "stop and lose")
        writer.write(10**6)
        await reader.look()
        await reader.stop(loses=False)
        assert reader.records == await writer.expected()


class Writer:
    """Writes a log in pieces; every generation begins with the header."""

    def __init__(self, path: Path, header: bytes, rows: bytes, *, is_joined: bool) -> None:
        self._log, self._header, self._rows = path, header, rows
        self._is_joined = is_joined
        self._options = {**OPTIONS, **LINES.get(path.name, {})}
        self._left = header + rows
        self._generations = [b""]
        self._path.touch()

    @property
    def _path(self) -> Path:
        """The file that is being written."""
        return self._log.with_stem(f"app-{len(self._generations)}") if self._is_joined else self._log

    def write(self, n_bytes: int) -> None:
        piece, self._left = self._left[:n_bytes], self._left[n_bytes:]
        append(self._path, piece)
        self._generations[-1] += piece

    def rotate(self, *, copies: bool) -> None:
        if len(self._generations[-1]) < (len(self._header) if self._log.name in LINES else 1):
            return  # a file without its header line ends the run
        if not self._is_joined:
            rotate(self._path, copies=copies)
        if self._left:  # loggers rotate between two records: what was cut off begins as a record of its own
            self._left = self._header + self._left
        self._generations.append(b"")
        self._path.touch()

    async def expected(self) -> list[tuple[int, bytes]]:
        """Offset in its generation and value of each record, as a finite source reads them."""
        found: list[tuple[int, bytes]] = []
        for number, content in enumerate(self._generations):
            is_growing = number == len(self._generations) - 1
            path = self._path.with_name(f"finished-{number}{self._path.suffix}")
            path.write_bytes(content[: content.rfind(b"\n") + 1] if is_growing else content)
            found += [(record.offset, record.value) for record in await read_one(path, path.parent, **self._options)]
        return found


class Reader:
    """Follows a log; a stop keeps what was committed, at any batch so far if it ``loses``."""

    def __init__(self, name: str, folder: Path, data: st.DataObject, *, is_joined: bool) -> None:
        self._folder, self._data = folder, data
        self._url = name.replace("app.", "app-*.") if is_joined else name
        self._options = {**OPTIONS, **LINES.get(name, {}), "files": "joined" if is_joined else "separate"}
        self._tail: Tail | None = None
        self._committed: list[Record] = []
        self._after: tuple[int, str] | None = None

    @property
    def is_running(self) -> bool:
        return self._tail is not None

    async def look(self) -> None:
        if self._tail is None:
            self._tail = Tail(self._url, self._folder, **self._options)
            if self._after is None:
                await self._tail.begin()
            else:
                await self._tail.begin(self._low_watermark(), self._after[1])
        await self._tail.catch_up()

    def _low_watermark(self) -> int:
        """Any offset to read again from: that of one of the last records, or the end of all."""
        assert self._after is not None
        offsets = [record.offset for record in self._committed[-12:]]
        return self._data.draw(st.sampled_from([*offsets, self._after[0]]))

    async def stop(self, *, loses: bool) -> None:
        if self._tail is None:
            return
        tail, self._tail = self._tail, None
        await tail.close()
        commits = [(batch.next_offset, batch.cursor) for batch in tail.batches if batch.cursor is not None]
        commits = [(at, cursor) for at, cursor in commits if self._after is None or at >= self._after[0]]
        if commits:
            number = self._data.draw(st.integers(0, len(commits) - 1)) if loses else len(commits) - 1
            at, cursor = commits[number]
            assert cursor is not None
            before = 0 if self._after is None else self._after[0]
            again = [record for record in tail.records if record.offset < before]
            assert again == self._committed[len(self._committed) - len(again) :], "read again, the same records come"
            self._committed += [record for record in tail.records if before <= record.offset < at]
            self._after = (at, cursor)

    @property
    def records(self) -> list[tuple[int, bytes]]:
        return [(record.offset % FILE_OFFSETS, record.value) for record in self._committed]


# --- what happens to files -------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of five whole lines."""
    append(tmp_path / "app.jsonl", numbers(0, 5))
    return tmp_path / "app.jsonl"


def numbers(first: int, after: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % n for n in range(first, after))


def read_numbers(tail: Tail) -> list[int]:
    return [json.loads(value)["n"] for value in tail.values]


@asynccontextmanager
async def following(url: str, base: Path, **options: Any) -> AsyncIterator[Tail]:
    async with Tail(url, base, **options) as tail:
        await tail.begin()
        await tail.catch_up()
        yield tail


async def refused(tail: Tail, text: str) -> None:
    with pytest.raises(SourceError, match=text) as caught:
        await tail.catch_up()
    assert "\n" not in str(caught.value)


async def test_a_line_counts_once_its_line_feed_is_there(log: Path) -> None:
    async with following("app.jsonl", log.parent) as tail:
        append(log, b'{"n": 5')
        await tail.catch_up()
        assert read_numbers(tail) == [0, 1, 2, 3, 4]
        append(log, b"}\n")
        await tail.catch_up()
        assert read_numbers(tail) == [0, 1, 2, 3, 4, 5]


async def test_a_row_counts_once_its_quote_is_closed(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    append(log, b"id,note\n")
    async with following("app.csv", tmp_path) as tail:
        for piece in (b'B-1,"one\n', b"two\n", b'three"'):
            append(log, piece)
            await tail.catch_up()
            assert tail.records == []
        append(log, b"\nB-2,x\n")
        await tail.catch_up()
        rows = [msgspec.msgpack.decode(value) for value in tail.values]
        assert rows == [{"id": "B-1", "note": "one\ntwo\nthree"}, {"id": "B-2", "note": "x"}]


async def test_a_line_above_the_limit_is_cut_in_bounded_memory(log: Path) -> None:
    async with following("app.jsonl", log.parent, max_record_bytes=100) as tail:
        for _ in range(5):
            append(log, b"x" * 500_000)
            await tail.catch_up()
        append(log, b"\n" + numbers(5, 6))
        await tail.catch_up()
        assert [len(value) for value in tail.values[5:]] == [101, 8]


async def test_columns_keep_their_kind_in_the_next_run(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    append(log, b"id,note\n1,x\n")
    async with following("app.csv", tmp_path) as tail:
        after, cursor = tail.batches[-1].next_offset, tail.batches[-1].cursor
    append(log, b"007,y\n" * 9)
    async with Tail("app.csv", tmp_path) as tail:
        await tail.begin(after, cursor)
        await tail.catch_up()
        assert {msgspec.msgpack.decode(value)["id"] for value in tail.values} == {"007"}
        append(log, b"2,z\n")
        await tail.catch_up()
        assert msgspec.msgpack.decode(tail.values[-1])["id"] == 2


async def test_a_large_file_is_read_in_bounded_steps(tmp_path: Path) -> None:
    append(tmp_path / "app.jsonl", numbers(0, 100_000))
    async with following("app.jsonl", tmp_path) as tail:
        assert read_numbers(tail) == list(range(100_000))
        assert max(len(batch.records) for batch in tail.batches) == 512


HOLE = 900 << 30  # to read its zeros would take minutes


def sparse(path: Path, before: bytes, after: bytes = b"") -> None:
    """Write a file of ``before``, a hole, and ``after``."""
    with path.open("wb") as file:
        file.write(before)
        file.seek(HOLE)
        file.write(after)
        file.truncate()


async def followed(url: str, folder: Path, n: int, **options: Any) -> dict[str, list[bytes]]:
    """Follow all partitions of ``url`` until they have given ``n`` records; return the values of each."""
    opened = source(url, folder, **{"follow": True, "follow_interval": "1ms", **options})
    found: dict[str, list[bytes]] = {}
    async with aclosing(cast("AsyncGenerator[Any, None]", opened.batches())) as events:
        async for event in events:
            if isinstance(event, PartitionAssigned):
                found[event.partition] = []
                await opened.seek(event.partition, None)
            else:
                found[event.partition] += [record.value for record in event.records]
            if sum(map(len, found.values())) >= n:
                break
    await opened.close()
    return found


def numbers_of(values: list[bytes]) -> list[int]:
    return [json.loads(value)["n"] for value in values]


async def test_a_hole_holds_up_neither_its_own_file_nor_others(tmp_path: Path) -> None:
    sparse(tmp_path / "a.jsonl", json_lines(0, 3), b"\n" + json_lines(3, 5))
    append(tmp_path / "b.jsonl", json_lines(5, 9))
    found = await followed("*.jsonl", tmp_path, 10, max_record_bytes=1_000)
    assert numbers_of(found["b.jsonl"]) == [5, 6, 7, 8]
    (*before, long, fourth, fifth) = found["a.jsonl"]
    assert numbers_of([*before, fourth, fifth]) == [0, 1, 2, 3, 4]
    assert long == b"\0" * 1_001


async def test_a_line_that_does_not_end_leaves_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "LOOK_BYTES", 1 << 17)
    (tmp_path / "a.jsonl").write_bytes(json_lines(0, 3) + b"x" * (1 << 22) + b"\n" + json_lines(3, 4))
    append(tmp_path / "b.jsonl", json_lines(5, 9))
    found = await followed("*.jsonl", tmp_path, 9, max_record_bytes=1_000)
    assert numbers_of(found["b.jsonl"]) == [5, 6, 7, 8]
    assert numbers_of([*found["a.jsonl"][:3], *found["a.jsonl"][4:]]) == [0, 1, 2, 3]
    assert found["a.jsonl"][3] == b"x" * 1_001


async def test_an_end_of_zeros_is_cut_once_another_file_follows(tmp_path: Path) -> None:
    sparse(tmp_path / "day-1.jsonl", json_lines(0, 3))
    async with Tail("*.jsonl", tmp_path, files="joined", max_record_bytes=1_000) as tail:
        await tail.begin()
        await tail.catch_up()
        assert numbers_of(tail.values) == [0, 1, 2]
        append(tmp_path / "day-2.jsonl", json_lines(3, 5))
        await tail.catch_up()
    assert tail.values[3] == b"\0" * 1_001
    assert numbers_of(tail.values[4:]) == [3, 4]


@pytest.mark.parametrize("line_end", ["\r", "\n"])
async def test_rows_without_a_line_feed_are_read_whole(tmp_path: Path, line_end: str) -> None:
    rows = "".join(f"B-{n},{n}{line_end}" for n in range(60_000))
    (tmp_path / "a.csv").write_bytes(b"id,temp\r\n" + rows.encode() + b"last,1\n")
    found = await followed("a.csv", tmp_path, 60_001, channels=("temp",), max_record_bytes=1_000)
    assert len(found["a.csv"]) == 60_001


async def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    opened = Tail("app.jsonl", tmp_path)
    beginning = asyncio.ensure_future(opened.begin())
    await asyncio.wait([beginning], timeout=0.05)
    assert not beginning.done()
    append(tmp_path / "app.jsonl", numbers(0, 2))
    await beginning
    await opened.catch_up()
    assert read_numbers(opened) == [0, 1]
    await opened.close()


async def test_new_files_of_a_pattern_are_partitions(log: Path) -> None:
    async with following("*.jsonl", log.parent) as tail:
        append(log.with_name("b.jsonl"), numbers(5, 6))
        await tail.catch_up()
        assert [event.partition for event in tail.assigned] == ["app.jsonl", "b.jsonl"]
        await tail.source.seek("b.jsonl", None)
        while len(tail.records) < 6:
            await tail.catch_up()
        assert read_numbers(tail) == [0, 1, 2, 3, 4, 5]


async def test_joined_files_go_on_in_the_next_one(tmp_path: Path) -> None:
    append(tmp_path / "day-9.jsonl", numbers(0, 3))
    async with following("day-*.jsonl", tmp_path, files="joined") as tail:
        append(tmp_path / "day-10.jsonl", b"")
        append(tmp_path / "day-9.jsonl", numbers(3, 4))  # the next one holds nothing yet
        await tail.catch_up()
        append(tmp_path / "day-9.jsonl", b'{"n": 4}')
        append(tmp_path / "day-10.jsonl", numbers(5, 7))
        await tail.catch_up()
        assert read_numbers(tail) == list(range(7))
        assert [record.offset // FILE_OFFSETS for record in tail.records] == [0, 0, 0, 0, 0, 1, 1]
        append(tmp_path / "day-9.jsonl", numbers(9, 10))
        await refused(tail, r"day-9\.jsonl: grew after it was finished; put what was added into a new file")


async def test_joined_files_that_come_too_late_are_refused(tmp_path: Path) -> None:
    append(tmp_path / "day-9.jsonl", numbers(0, 3))
    async with following("day-*.jsonl", tmp_path, files="joined") as tail:
        append(tmp_path / "day-8.jsonl", numbers(3, 4))
        await refused(tail, r"day-8\.jsonl: is new, but comes before day-9\.jsonl, where reading stands")


async def test_a_file_cut_without_a_copy_ends_the_run(log: Path) -> None:
    async with following("app.jsonl", log.parent) as tail:
        write_anew(log, b"")
        await refused(tail, r"app\.jsonl: no longer holds the records that were read, nor does a rotated file such as")


async def test_a_file_cut_and_filled_beyond_what_was_read_ends_the_run(log: Path) -> None:
    async with following("app.jsonl", log.parent) as tail:
        write_anew(log, numbers(10, 30))
        await refused(tail, "no longer holds the records that were read")
    async with Tail("app.jsonl", log.parent) as again:
        with pytest.raises(SourceError, match="no longer holds the records that were read"):
            await again.begin(tail.batches[-1].next_offset, tail.batches[-1].cursor)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_file_moved_away_or_deleted_is_read_to_its_end(is_deleted: bool, log: Path) -> None:
    async with following("app.jsonl", log.parent) as tail:
        append(log, numbers(5, 7))
        if is_deleted:
            delete(log)
        else:
            move(log, "elsewhere")
        await tail.catch_up()
        append(log, numbers(7, 9))
        await tail.catch_up()
        assert read_numbers(tail) == list(range(9))


async def test_several_rotations_between_two_looks_and_two_runs(log: Path) -> None:
    async with following("app.jsonl", log.parent) as tail:
        for n in range(5, 9):
            append(log, numbers(n, n + 1))
            rotate(log)
        append(log, numbers(9, 10))
        await tail.catch_up()
        assert read_numbers(tail) == list(range(10))
        after, cursor = tail.batches[-1].next_offset, tail.batches[-1].cursor
    for n in range(10, 13):
        rotate(log)
        append(log, numbers(n, n + 1))
    async with Tail("app.jsonl", log.parent) as tail:
        await tail.begin(after, cursor)
        await tail.catch_up()
        assert read_numbers(tail) == [10, 11, 12]


async def test_when_records_were_written_is_kept_with_the_position(log: Path) -> None:
    os.utime(log, (1000, 1000))
    async with following("app.jsonl", log.parent) as tail:
        rotate(log)
        append(log, numbers(5, 6))
        os.utime(log, (5000, 5000))
        await tail.catch_up()
        after, cursor = tail.batches[-1].next_offset, tail.batches[-1].cursor
        first = written(tail)
    assert first == {**dict.fromkeys(range(5), 1_000_000_000), 5: 5_000_000_000}
    for path in (log, log.with_name("app.jsonl.1")):
        os.utime(path, (9000, 9000))
    async with Tail("app.jsonl", log.parent) as tail:
        await tail.begin(0, cursor)
        append(log, numbers(6, 7))
        os.utime(log, (9000, 9000))
        await tail.catch_up()
        assert after > FILE_OFFSETS
        assert written(tail) == {**first, 6: 9_000_000_000}


def written(tail: Tail) -> dict[int, int | None]:
    return {
        json.loads(record.value)["n"]: batch.written_us(record.offset)
        for batch in tail.batches
        for record in batch.records
    }


async def test_the_rest_of_a_file_that_is_gone_at_a_start_is_missed_aloud(log: Path) -> None:
    async with following("app.jsonl", log.parent) as tail:
        after, cursor = tail.batches[-1].next_offset, tail.batches[-1].cursor
    delete(log)
    append(log, numbers(7, 8))
    async with Tail("app.jsonl", log.parent) as tail:
        with pytest.raises(SourceError, match="no longer holds the records that were read"):
            await tail.begin(after, cursor)


async def test_a_log_with_older_files_is_not_seen_from_its_start(log: Path) -> None:
    rotate(log)
    append(log, numbers(5, 6))
    async with following("app.jsonl", log.parent) as tail:
        assert tail.assigned == [PartitionAssigned("app.jsonl", seen_from_start=False)]
        assert read_numbers(tail) == [5]
    async with following("app.jsonl*", log.parent) as tail:
        assert tail.assigned == [PartitionAssigned("app.jsonl")]
        assert read_numbers(tail) == [0, 1, 2, 3, 4, 5]


async def test_a_rotated_file_that_would_be_a_new_partition_is_refused(log: Path) -> None:
    async with following("*.jsonl", log.parent) as tail:
        cursor = tail.batches[-1].cursor
        move(log, "app-2026.jsonl")
        await refused(tail, r"app-2026\.jsonl: was app\.jsonl before, so it would be judged again; let rotated files")
    again = source("*.jsonl", log.parent, follow=True)
    with pytest.raises(SourceError, match=r"app-2026\.jsonl: was app\.jsonl before"):
        again.check_cursors({"app.jsonl": cursor})
    append(log.with_name("b.jsonl"), numbers(0, 1))
    move(log.with_name("app-2026.jsonl"), "app.jsonl")
    again.check_cursors({"app.jsonl": cursor})


async def test_many_files_are_not_all_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad_connectors.files.follow.source._MAX_OPEN_FILES", 2)
    logs = [tmp_path / f"{name}.{kind}" for name in "abc" for kind in ("csv", "jsonl")]
    for log in logs:
        append(log, b"n\n0\n" if log.suffix == ".csv" else numbers(0, 1))
    held = n_open_files()
    async with Tail(".", tmp_path) as tail:
        await tail.begin()
        while len(tail.assigned) < len(logs):
            await tail.catch_up()
        for event in tail.assigned[1:]:
            await tail.source.seek(event.partition, None)
        for n in range(1, 5):
            while len(tail.records) < n * len(logs):
                await tail.catch_up()
            if n == 3:
                for log in logs:
                    rotate(log)
                    append(log, b"n\n" if log.suffix == ".csv" else b"")
            for log in logs:
                append(log, b"%d\n" % n if log.suffix == ".csv" else numbers(n, n + 1))
        for _ in range(2 * len(logs)):  # one look reports each of them
            await tail.catch_up()
        assert n_open_files() <= held + 4  # two, and those that were finished before them
    by_name = {log.name: [batch for batch in tail.batches if batch.partition == log.name] for log in logs}
    assert [sum(len(batch.records) for batch in batches) for batches in by_name.values()] == [5] * len(logs)


async def test_a_wait_ends_at_once_when_the_source_is_closed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S):
        tail = Tail("app.jsonl", log.parent)
        await tail.begin()
        await tail.catch_up()
        monkeypatch.setattr(follow_module, "_LOOKING_SHARE", 1e12)  # the next look is an hour away
        monkeypatch.setattr(follow_module, "_LONGEST_PAUSE_S", 3600.0)
        waiting = asyncio.ensure_future(tail.catch_up())
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        await tail.source.close()
        assert await waiting == []


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["a.parquet", "*.npz", "a.records.jsonl", "logs/*.jsonl.gz"])
def test_formats_that_cannot_grow_are_refused_with_the_config(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can be followed|cannot be followed") as caught:
        source(url, tmp_path, follow=True)
    assert caught.value.problems[0].path == "source.options.follow"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"follow": True, "format": "parquet"}, "follow is for JSON lines and CSV, not for parquet"),
        ({"follow": True, "encoding": "utf-16"}, "follow needs an encoding with line ends of one byte, not utf-16"),
        ({"follow": True, "sort": True}, "sort is for finished files, follow for files that grow; leave one out"),
        ({"follow": True, "at_end": "judge"}, "at_end is for recordings that end, not for follow: true"),
        ({"follow": True, "order": "time"}, "order is for files: joined only"),
        ({"follow_interval": "1s"}, "follow_interval is for follow: true; leave it out"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        source("a.csv", tmp_path, **options)


async def test_other_formats_in_a_folder_are_refused(log: Path) -> None:
    (log.parent / "b.npz").touch()
    async with Tail(".", log.parent) as tail:
        with pytest.raises(SourceError, match=r"b\.npz: only JSON lines and CSV can be followed, not npz"):
            await tail.begin()


async def test_a_followed_file_can_be_read_to_its_present_end(log: Path) -> None:
    append(log, b'{"n": 5}')
    finite = source("app.jsonl", log.parent, follow=True).between(None, None)
    found: list[Record] = []
    async for event in finite.batches():
        if isinstance(event, PartitionAssigned):
            await finite.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            found += event.records
    assert [json.loads(record.value)["n"] for record in found] == list(range(6))


# --- checkpoints -----------------------------------------------------------------------------------------------------


async def test_a_checkpoint_fits_with_and_without_follow_until_the_file_is_rotated(log: Path) -> None:
    append(log, b'{"n": 5')
    _, batches = await read_with_cursors("app.jsonl", log.parent)
    append(log, b"}\n")
    async with Tail("app.jsonl", log.parent) as tail:
        tail.source.check_cursors({"app.jsonl": batches[-1].cursor})
        await tail.begin(batches[-1].next_offset, batches[-1].cursor)
        append(log, numbers(6, 7))
        await tail.catch_up()
        assert read_numbers(tail) == [6]
        cursor = {"app.jsonl": tail.batches[-1].cursor}
        source("app.jsonl", log.parent).check_cursors(cursor)
        append(log, numbers(7, 8))
        found, _ = await read_with_cursors("app.jsonl", log.parent, tail.batches[-1])
        assert [json.loads(record.value)["n"] for record in found] == [7]
        rotate(log)
        append(log, numbers(8, 9))
        await tail.catch_up()
    cursor = {"app.jsonl": tail.batches[-1].cursor}
    source("app.jsonl", log.parent, follow=True).check_cursors(cursor)
    for options in ({}, {"files": "joined"}, {"files": "joined", "follow": True}):
        with pytest.raises(SourceError, match=r"was made with follow: true and files: separate.* set both again"):
            source("app.jsonl", log.parent, **options).check_cursors(cursor)


async def test_a_checkpoint_of_joined_files_fits_joined_files_that_are_followed(tmp_path: Path) -> None:
    append(tmp_path / "day-1.jsonl", numbers(0, 2))
    _, batches = await read_with_cursors("day-*.jsonl", tmp_path, files="joined")
    append(tmp_path / "day-1.jsonl", numbers(2, 3))
    append(tmp_path / "day-2.jsonl", numbers(3, 5))
    async with Tail("day-*.jsonl", tmp_path, files="joined") as tail:
        tail.source.check_cursors({"day-*.jsonl": batches[-1].cursor})
        await tail.begin(batches[-1].next_offset, batches[-1].cursor)
        await tail.catch_up()
        assert read_numbers(tail) == [2, 3, 4]
    append(tmp_path / "day-2.jsonl", numbers(5, 6))
    found, _ = await read_with_cursors("day-*.jsonl", tmp_path, tail.batches[-1], files="joined")
    assert [json.loads(record.value)["n"] for record in found] == [5]
    with pytest.raises(SourceError, match=r"was made with files: joined.* set source.options.files to joined"):
        source("day-*.jsonl", tmp_path, follow=True).check_cursors({"day-*.jsonl": batches[-1].cursor})


async def read_with_cursors(
    url: str, base: Path, after: RecordBatch | None = None, **options: Any
) -> tuple[list[Record], list[RecordBatch]]:
    """The records and batches of a finite source, after ``after``."""
    opened = source(url, base, **options)
    batches: list[RecordBatch] = []
    async for event in opened.batches():
        if isinstance(event, PartitionAssigned) and after is not None:
            assert after.cursor is not None
            await opened.resume(event.partition, after.next_offset, after.cursor)
        elif isinstance(event, PartitionAssigned):
            await opened.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            batches.append(event)
    return [record for batch in batches for record in batch.records], batches


async def test_followed_files_give_the_ids_of_their_sequences(tmp_path: Path) -> None:
    append(tmp_path / "B-1.jsonl", numbers(0, 2))
    async with Tail("*.jsonl", tmp_path, files="joined", sequence_from="file") as tail:
        await tail.begin()
        await tail.catch_up()
        append(tmp_path / "B-2.jsonl", numbers(2, 3))
        await tail.catch_up()
        assert [record.sequence for record in tail.records] == ["B-1", "B-1", "B-2"]
