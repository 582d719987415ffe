"""Sorting: reading a shuffled file sorted equals reading the sorted file, from any rank on, in bounded memory."""

from __future__ import annotations

import asyncio
import random
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.commands.shared.plants import check_parts
from streamad.errors import SourceError
from streamad.ingest.record_times import times_for
from streamad.plant import Plant
from streamad.plugins import ConnectorContext, RecordTimes, connect_source
from streamad.ports import SizedSource
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch
from streamad_connectors.files.formats import sorting
from streamad_connectors.files.formats.sorting import sorted_records
from tests.support.runtime.pipeline import CHANNELS, line, settings_of, until
from tests.support.runtime.recordings import write_recording

TIMES = times_for(settings_of())
assert TIMES is not None


def sort(values: Sequence[bytes], offset: int = 0, run_bytes: int = sorting.RUN_BYTES) -> list[tuple[int, bytes, int]]:
    assert TIMES is not None
    records = ((Record(10 * number, value), 10 * number + 10) for number, value in enumerate(values))
    found = sorted_records(Path("a.jsonl"), offset, records, TIMES, threading.Event(), run_bytes=run_bytes)
    return [(record.offset, record.value, after) for record, after in found]


def message(time_s: int, number: int) -> bytes:
    return line("a", f"B-{number}", [float(time_s)])


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40), st.sampled_from([1, 800, 10**6]))
@settings(deadline=None)
def test_it_equals_a_stable_sort_whose_unreadable_records_stay_behind_the_one_before(
    drawn: list[tuple[int, bool]], run_bytes: int
) -> None:
    values, keys, newest = [], [], -1
    for number, (time_s, is_readable) in enumerate(drawn):
        values.append(message(time_s, number) if is_readable else b"{%d" % number)
        newest = time_s if is_readable else newest
        keys.append(newest)
    expected = [values[i] for i in sorted(range(len(values)), key=keys.__getitem__)]
    found = sort(values, run_bytes=run_bytes)
    assert [value for _, value, _ in found] == expected
    assert [(offset, after) for offset, _, after in found] == [(rank, rank + 1) for rank in range(len(values))]
    for offset in range(0, len(values) + 1, 7):
        assert sort(values, offset, run_bytes) == found[offset:]


def test_many_runs_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "MOST_RUNS", 3)
    values = [message(time_s, time_s) for time_s in range(50)]
    shuffled = random.Random(1).sample(values, len(values))
    assert [value for _, value, _ in sort(shuffled, run_bytes=700)] == values


def test_memory_is_bounded() -> None:
    n = 10_000
    values = (message(hash((number, 1)) % 1000, number) for number in range(n))
    assert TIMES is not None
    records = ((Record(number, value), number + 1) for number, value in enumerate(values))
    tracemalloc.start()
    count = sum(1 for _ in sorted_records(Path("a.jsonl"), 0, records, TIMES, threading.Event(), run_bytes=256 * 1024))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == n
    assert peak < 2_000_000  # the records are 4.5 MB in memory


def test_a_file_that_ends_before_the_offset_is_refused() -> None:
    with pytest.raises(SourceError, match=r"a\.jsonl: has only 2 records, but reading resumes at 3"):
        sort([message(1, 1), message(0, 0)], 3)


def test_no_room_for_the_runs_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sorting.tempfile, "TemporaryFile", full)
    with pytest.raises(SourceError, match=r"a\.jsonl: cannot be sorted in .* \(No space left on device\); set TMPDIR"):
        sort([message(1, 1), message(0, 0)], run_bytes=1)


def context_of(folder: Path, **decode: object) -> ConnectorContext:
    found = settings_of(decode=decode)
    return ConnectorContext(found.channel_specs, ManualClock(), folder, times=times_for(found))


async def read(url: str, context: ConnectorContext, **options: object) -> list[tuple[int, object]]:
    source = connect_source(url, options, context)
    assert isinstance(source, SizedSource)
    found: list[tuple[int, object]] = []
    async for event in source.batches():
        if isinstance(event, PartitionAssigned):
            await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            assert source.share_read() == 0 or not options.get("sort")  # sorting reads the file first
            found += [(record.offset, msgspec.msgpack.decode(record.value)) for record in event.records]
        else:
            assert isinstance(event, PartitionEnded)
    await source.close()
    return found


def write(folder: Path, kind: str, name: str, rows: list[tuple[int, float]]) -> str:
    header = ("ts", *CHANNELS)
    cells = [(ts, value, value, value) for ts, value in rows]
    if kind == "csv":
        text = "\n".join(",".join(map(str, row)) for row in (header, *cells))
        (folder / f"{name}.csv").write_text(text + "\n")
    else:
        columns = dict(zip(header, zip(*cells, strict=True), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    return f"{name}.{kind}"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
async def test_a_shuffled_file_sorted_equals_the_sorted_file_offsets_included(kind: str, tmp_path: Path) -> None:
    rows = [(1_772_352_000 + i // 2, i / 8) for i in range(100)]  # each time twice
    shuffled = random.Random(3).sample(range(50), 50)
    context = context_of(tmp_path, fields={"time": "ts", "values": None}, default_stream="a")
    plain = await read(write(tmp_path, kind, "sorted", rows), context)
    pairs = [rows[2 * i + k] for i in shuffled for k in range(2)]
    assert await read(write(tmp_path, kind, "shuffled", pairs), context, sort=True) == plain


async def test_a_sorted_file_may_name_its_sequence(tmp_path: Path) -> None:
    found = settings_of(decode={"sequence_from": "file"})
    context = ConnectorContext(
        found.channel_specs, ManualClock(), tmp_path, times=times_for(found), sequence_from="file"
    )
    write_recording(tmp_path / "B-7.jsonl", [message(2, 0), message(1, 1)])
    source = connect_source("B-7.jsonl", {"sort": True}, context)
    async for event in source.batches():
        if isinstance(event, PartitionAssigned):
            await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            expected = [(0, message(1, 1), "B-7"), (1, message(2, 0), "B-7")]
            assert [(one.offset, one.value, one.sequence) for one in event.records] == expected


class CountedTimes:
    """The times of the records, counted: the sort asks for one after the other."""

    def __init__(self, times: RecordTimes) -> None:
        self._times, self.identity, self.n_asked = times, times.identity, 0

    def of(self, record: Record) -> int | None:
        self.n_asked += 1
        return self._times.of(record)


async def test_a_stop_does_not_wait_for_the_sort(tmp_path: Path) -> None:
    lines = [message(time_s, time_s) for time_s in range(1000)]
    write_recording(tmp_path / "a.jsonl", lines * 100)
    assert TIMES is not None
    times = CountedTimes(TIMES)
    context = ConnectorContext(settings_of().channel_specs, ManualClock(), tmp_path, times=times)
    source = connect_source("a.jsonl", {"sort": True}, context)
    events = source.batches()
    await source.seek((await anext(events)).partition, None)  # type: ignore[union-attr]
    pull = asyncio.ensure_future(anext(events))
    await until(lambda: times.n_asked > 0)
    pull.cancel()
    await asyncio.gather(pull, return_exceptions=True)
    assert pull.cancelled()
    assert times.n_asked < 100_000, "it sorted to the end"
    await source.close()


def test_formats_in_order_by_nature_are_refused(tmp_path: Path) -> None:
    write_recording(tmp_path / "a.npz", [b""])
    source = connect_source("a.npz", {"sort": True}, context_of(tmp_path))
    with pytest.raises(SourceError, match="option 'sort' is for jsonl, csv, parquet files only; leave it out"):
        source.files()  # type: ignore[attr-defined]


@pytest.mark.parametrize("decode", [{"time": "relative"}, {"fields": {"time": "record"}}])
def test_times_that_are_not_in_the_messages_are_refused_when_the_config_is_read(
    decode: dict[str, object], tmp_path: Path
) -> None:
    found = settings_of(source={"url": "a.csv", "options": {"sort": True}}, decode=decode)
    (problem,) = check_parts(Plant(found, tmp_path, ManualClock()))
    assert problem.path == "source.url"
    assert "a.csv: option 'sort' needs absolute times in the messages; leave it out" in problem.message


def test_a_problem_of_the_decoder_is_said_once(tmp_path: Path) -> None:
    channels = [{"name": "a", "field": "x"}, {"name": "b", "field": "x"}]
    found = settings_of(channels=channels, source={"url": "a.csv", "options": {"sort": True}})
    (problem,) = check_parts(Plant(found, tmp_path, ManualClock()))
    assert problem.message == "two channels read the field x"
