"""Reading by column gives what reading row by row gives, whatever the files hold; plain files are read by column."""

from __future__ import annotations

import asyncio
import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.errors import SourceError
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.table.rows import BatchTable, Row
from streamad.messages import OutputRecord
from streamad.plant import Plant
from streamad.plugins import connect_source
from streamad.runtime import recordings
from streamad.telemetry.metrics import Counters
from streamad_connectors.files.formats.csv_files import columns as csv_columns
from streamad_connectors.files.formats.parquet_files.reader import end_waiting
from tests.support.runtime.drawn_tables import (
    ENDS,
    IDS,
    READINGS,
    S_US,
    START_US,
    TIMES,
    RowsOnly,
    drawn_plant,
    plant,
    timestamps,
)

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")
csv: Any = pytest.importorskip("pyarrow.csv")

Cells = list[Any]


def taken(of: Plant, *, by_column: bool, table: BatchTable | None = None) -> tuple[list[list[Any]], Counters]:
    """Return the sequences, what lies aside and the notices of reading the plant's files, and the counters."""
    sequences: list[Any] = []
    found: list[Any] = []
    notices: list[Any] = []

    class Recording(Intake):
        def take_aside(self) -> list[OutputRecord]:
            aside = super().take_aside()
            found.extend((each.role, each.key, msgspec.to_builtins(each.message)) for each in aside)
            # How many streams were refused is told by the wall clock.
            notices.extend(each for each in self.take_notices(START_US) if each.kind != "too_many_streams")
            return aside

    async def read() -> Counters:
        counters = Counters()
        source: Any = connect_source(of.settings.source.url, of.settings.source.options, of.context)
        source = source if by_column else RowsOnly(source)
        try:
            reading = recordings.read_by_partition(of.settings, source, of.clock, counters, table=table)
            async for partition, closed in reading:
                sequences.append((partition, plain(closed)))
        except SourceError as error:
            sequences.append(str(error))
            found.clear()  # how many of the last batch were told before depends on its size
        finally:
            await source.close()
        return counters

    with patch.object(recordings, "Intake", Recording):
        counters = asyncio.run(read())
    return [sequences, found, sorted(notices, key=str)], counters


def plain(closed: Closed) -> list[Any]:
    sequence = closed.sequence
    arrays = [sequence.times_us.tolist(), str(sequence.values.tolist()), str(sequence.carried)]
    names = ("stream", "sequence", "reason", "first_position", "partial", "routes", "n_late", "merged", "displaced")
    own = [getattr(sequence, name) for name in (*names, "batch", "begun_us", "ended_us")]
    return [*own, *arrays, closed.key, closed.at_us, closed.through_us, closed.offset, closed.before, closed.held]


def assert_alike(of: Plant, *, table: BatchTable | None = None) -> Counters:
    rows, counted = taken(of, by_column=False, table=table)
    columns, counters = taken(of, by_column=True, table=table)
    assert columns == rows
    by_columns, counters.by_columns = counters.by_columns, 0
    assert vars(counters) == vars(counted)
    counters.by_columns = by_columns
    return counters


# --- whatever the files hold ---------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_columns_give_what_rows_give(seed: int) -> None:
    """Two readings of a few hundred rows are 0.1 s."""
    with TemporaryDirectory() as name:
        try:
            drawn = drawn_plant(Random(seed), Path(name))
        except (
            ValidationError,
            pa.ArrowNotImplementedError,
        ):  # settings that exclude each other, arrays that no file has
            reject()
        assert_alike(drawn)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_columns_of_csv_give_what_rows_give(seed: int) -> None:
    """Two readings of a few hundred rows are 0.1 s."""
    random = Random(seed)
    sizes = {"FEWEST_CHARACTERS": 1, "CHARACTERS": random.choice([40, 300, 5_000])}
    with TemporaryDirectory() as name, patch.multiple(csv_columns, **sizes):
        try:
            drawn = drawn_plant(random, Path(name))
        except (ValidationError, pa.ArrowNotImplementedError):
            reject()
        for path in sorted(Path(name).iterdir()):
            try:
                drawn_csv(random, path)
            except pa.ArrowInvalid:  # a type that CSV does not have
                reject()
        assert_alike(drawn)


def miscounted(path: Path, n: int) -> None:
    """Let the footer say ``n`` rows of the first row group, which has another number of them."""
    content = path.read_bytes()
    for place in range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content) - 8):
        damaged = content[:place] + bytes([2 * n]) + content[place + 1 :]
        try:
            metadata = pq.read_metadata(io.BytesIO(damaged))
        except (OSError, pa.ArrowException):
            continue
        if metadata.num_row_groups and metadata.row_group(0).num_rows == n:
            path.write_bytes(damaged)
            return
    raise AssertionError


@pytest.mark.parametrize("n", [21, 40])
@pytest.mark.parametrize("by_column", [False, True])
def test_a_footer_that_miscounts_rows_does_not_move_their_offsets(n: int, by_column: bool, tmp_path: Path) -> None:
    times = timestamps([START_US + i * S_US for i in range(40)], "us", "UTC")
    table = pa.table({"ts": times, "a": [0.5] * 40, "b": [0.5] * 40})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=20)
    miscounted(tmp_path / "x.parquet", n)
    of = plant(tmp_path, {"default_stream": "p", "fields": {"sequence": None}}, {"end": ["gap"], "gap": "30s"})
    (sequences, _, _), _ = taken(of, by_column=by_column)
    assert sequences[-1].endswith("(row group 0: its footer says another number of rows); write it anew")


@pytest.mark.filterwarnings("error")
def test_a_nan_with_a_signal_is_missing_without_a_warning(tmp_path: Path) -> None:
    times = timestamps([START_US + i * S_US for i in range(40)], "us", "UTC")
    readings = np.full(40, 0x7FF0000000000001, np.uint64).view(np.float64)
    pq.write_table(pa.table({"ts": times, "a": readings, "b": [0.5] * 40}), tmp_path / "x.parquet")
    assert_alike(plant(tmp_path, {"default_stream": "p", "fields": {"sequence": None}}, {"end": ["gap"], "gap": "30s"}))


ODD_CELLS = ["007", "-0", "-0.0", "nan(1)", "+1.5", "1e400", " 3 ", "NA", "n/a", "1_0", "0x10", "1,5", '"x"', "\xa05",
             '"a, b"', '"a\nb"', 'x"y', "é", "inf", "12345678901234567890",
             ".5", "5.", "1 000", "\t7"]  # fmt: skip
ODD_LINES = ["", "  ", "1", ",,,,,,,,,", '"', "\x0c", "a\rb", "é", "\x00", '"",""', "\t\t", "sep=,"]


def drawn_csv(random: Random, path: Path) -> None:
    """Replace a Parquet file by the same in CSV, with odd cells and lines now and then."""
    buffer, delimiter = io.BytesIO(), random.choice([",", ";", "\t"])
    style = random.choice(["none", "needed", "all_valid"])
    table = pq.read_table(path)
    csv.write_csv(table, buffer, csv.WriteOptions(delimiter=delimiter, quoting_style=style))
    lines = buffer.getvalue().decode("utf-8", "surrogateescape").splitlines()
    rare = random.choice([0.0, 0.01, 0.1])
    for at in range(1, len(lines)):
        if random.random() < rare:
            cells = lines[at].split(delimiter)
            cells[random.randrange(len(cells))] = random.choice(ODD_CELLS)
            lines[at] = delimiter.join(cells)
        if random.random() < rare / 4:
            lines[at] = random.choice([*ODD_LINES, lines[at] + delimiter, lines[at] + delimiter + "x"])
    end = random.choice(["\n", "\n", "\r\n"])
    text = end.join(lines) + random.choice(["", end])
    content = text.encode("utf-8", "surrogateescape")
    if random.random() < rare:
        content = content.replace(b"B1", b"B\xff")
    path.with_suffix(".csv").write_bytes(content)
    os.utime(path.with_suffix(".csv"), (path.stat().st_mtime,) * 2)
    path.unlink()


# --- plain files are read by column --------------------------------------------------------------------------------

PLAIN: dict[str, dict[str, str]] = {
    "texts first": {"line": "text"},
    "numbers": {"a": "int64", "b": "decimal"},
    "small numbers": {"a": "int8", "b": "float"},
    "large numbers": {"a": "uint64", "b": "duration"},
    "texts that are numbers": {"a": "text", "b": "bool"},
    "a channel without readings": {"a": "null"},
    "seconds": {"ts": "float", "end": "int"},
    "whole seconds": {"ts": "int", "line": "int", "batch": "float"},
    "decimal seconds": {"ts": "decimal", "line": "bool"},
    "nanoseconds": {"ts": "ns", "line": "dictionary", "batch": "dictionary"},
    "times without a zone": {"ts": "s", "batch": "large"},
    "times of an offset": {"ts": "ms", "end": "text"},
    "times as text": {"ts": "text"},
    "no stream and no id": {"line": "absent", "batch": "absent"},
}


def written(path: Path, n: int, kinds: dict[str, str] | None = None, n_streams: int = 1, length: int = 50) -> None:
    """Write a plain file: every second row of ``n_streams`` streams, sequences of ``length`` rows."""
    usual = {"ts": "us", "line": "text", "batch": "text", "end": "bool", "a": "double", "b": "double"}
    kinds = (kinds or {}) | {name: kind for name, kind in usual.items() if name not in (kinds or {})}
    rows = range(n)
    cells: dict[str, Any] = {
        "ts": [START_US + 2 * S_US * i for i in rows],
        "line": [f"s{i % n_streams}" for i in rows],
        "batch": [f"B{chr(65 + i // n_streams // length % 26)}" for i in rows],
        "end": [i // n_streams % length == length - 1 for i in rows],
        "a": [float(i % 100) for i in rows],
        "b": [i / 7 for i in rows],
    }
    makers: dict[str, Any] = {"ts": TIMES, "line": IDS, "batch": IDS, "end": ENDS, "a": READINGS, "b": READINGS}
    table = {name: makers[name][kind](cells[name]) for name, kind in kinds.items() if kind != "absent"}
    pq.write_table(pa.table(table), path, row_group_size=1_000)
    os.utime(path, (START_US // S_US + n * 2,) * 2)


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_files_are_read_by_column(kind: str, tmp_path: Path) -> None:
    end_waiting()  # a new process has imported nothing
    written(tmp_path / "a.parquet", 2_500, PLAIN[kind], n_streams=2)
    counters = assert_alike(plant(tmp_path, {"default_stream": "plant"}, {"end": ["marker", "change"]}))
    assert counters.by_columns == counters.records == 2_500
    assert counters.samples == 2_500


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_plain_rows_in_stretches_are_cut_alike(seed: int) -> None:
    """Streams take turns of many rows, with pauses now and then: limits, gaps and silence end sequences inside."""
    random = Random(seed)
    cells: list[tuple[Any, ...]] = []
    time_us, number = START_US, 0
    behind_us = {"a": 0, "b": random.choice([0, 90, 900]) * S_US, "c": random.choice([0, 9_000]) * S_US}
    while len(cells) < 400:
        stream, is_new = random.choice("abc"), random.random() < 0.5
        number += is_new
        for _ in range(random.choice([1, 5, 30, 100])):
            time_us += random.choice([1] * 15 + [2, 7, 31, random.choice([0, -2, 100, 1_000])]) * S_US
            of_stream_us = time_us - behind_us[stream]
            cells.append(
                (
                    stream,
                    of_stream_us,
                    f"B{number - random.choice([0] * 20 + [1])}",
                    random.random() < 0.02,
                    1.0 * len(cells),
                    "xy"[number % 2],
                )
            )
    names = ("line", "ts", "batch", "end", "a", "product")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*cells, strict=True)), strict=True))
    columns["ts"] = pa.array(columns["ts"], pa.timestamp("us", tz="UTC"))
    end = random.choice([["change"], ["marker"], ["gap"], ["length"], ["marker", "gap"], ["change", "length"]])
    sequences: dict[str, Any] = {"end": end, "max_duration": random.choice(["1h", "25s", "60s"])}
    sequences |= {"gap": random.choice(["3s", "30s"])} if "gap" in end else {}
    sequences |= {"length": random.choice([6, 40])} if "length" in end else {}
    sequences |= random.choice([{}, {}, {"max_samples": 20}, {"closed_memory": "5s"}])
    more: dict[str, Any] = random.choice([{}, {"models": {"field": "product"}}])
    with TemporaryDirectory() as name:
        path = Path(name) / "a.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=random.choice([100, 1_000]))
        os.utime(path, (time_us / 1e6 + 1e5,) * 2)
        of = plant(Path(name), {"fields": {"sequence": random.choice(["batch", "batch", None])}}, sequences, **more)
        assert assert_alike(of).by_columns == len(cells)


@pytest.mark.parametrize("style", ["none", "all_valid"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_plain_csv_is_read_by_column(style: str, delimiter: str, tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 2_500, n_streams=2)
    table, options = pq.read_table(tmp_path / "a.parquet"), csv.WriteOptions(quoting_style=style, delimiter=delimiter)
    (tmp_path / "a.parquet").unlink()
    csv.write_csv(table, tmp_path / "a.csv", options)
    with patch.multiple(csv_columns, FEWEST_CHARACTERS=1, CHARACTERS=50_000):
        counters = assert_alike(plant(tmp_path, {}, {"end": ["marker"]}))
    assert counters.by_columns == counters.samples == 2_500


@pytest.mark.parametrize(
    "sequences",
    [
        {"end": ["change"], "max_samples": 30},
        {"end": ["gap"], "gap": "2s"},
        {"end": ["length"], "length": 33},
        {"end": ["marker"], "max_duration": "21s"},
        {"end": ["marker", "gap"], "gap": "3s", "closed_memory": "1s"},
        {"end": ["change"], "allowed_lateness": "5s"},
    ],
)
@pytest.mark.parametrize("n_streams", [1, 7])
def test_sequences_are_cut_alike(sequences: dict[str, Any], n_streams: int, tmp_path: Path) -> None:
    for day in range(2):
        written(tmp_path / f"day-{day}.parquet", 1_500, n_streams=n_streams)
    of = plant(tmp_path, {}, sequences, source={"url": f"{tmp_path}/*.parquet", "options": {"files": "joined"}})
    assert assert_alike(of).by_columns == 3_000


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Berlin", "2026-10-25T00:30"),  # 3:00 becomes 2:00 at 1:00 UTC
        ("Europe/Berlin", "2026-03-29T00:30"),  # 2:00 becomes 3:00
        ("America/St_Johns", "1990-10-28T02:00"),  # 0:01 becomes 23:01
        ("Africa/Monrovia", "1972-12-31T23:00"),
    ],
)
@pytest.mark.parametrize("kind", ["timestamp", "text", "csv", "format"])
def test_local_times_are_read_alike(zone: str, begin: str, kind: str, tmp_path: Path) -> None:
    first = datetime.fromisoformat(begin).replace(tzinfo=UTC)
    local = [(first + timedelta(seconds=20 * i)).astimezone(ZoneInfo(zone)).replace(tzinfo=None) for i in range(500)]
    times = pa.array(local, pa.timestamp("us"))
    if kind != "timestamp":
        times = pa.array([each.strftime("%d.%m.%Y %H:%M:%S") if kind == "format" else str(each) for each in local])
    n = len(local)
    table = pa.table({"line": ["s"] * n, "ts": times, "batch": ["B"] * n, "a": [1.5] * n, "b": range(n)})
    if kind == "csv":
        csv.write_csv(table, tmp_path / "a.csv")
    else:
        pq.write_table(table, tmp_path / "a.parquet")
    decode = {"timezone": zone} | ({"time_format": "%d.%m.%Y %H:%M:%S"} if kind == "format" else {})
    with patch.multiple(csv_columns, FEWEST_CHARACTERS=1):
        assert assert_alike(plant(tmp_path, decode, {"end": ["change"]})).by_columns == n


def test_rows_of_a_table_of_batches_are_placed_alike(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 600, {"batch": "absent"})
    (tmp_path / "batches.csv").write_text("")  # the config names it; the rows are these
    rows = [Row("s0", f"T{i}", START_US + i * 200 * S_US, START_US + (i * 200 + 150) * S_US, i + 1) for i in range(6)]
    of = plant(
        tmp_path,
        {"fields": {"sequence": None}},
        {"end": ["table"], "table": str(tmp_path / "batches.csv")},
        source={"url": f"{tmp_path}/a.parquet"},
    )
    assert assert_alike(of, table=BatchTable("batches.csv", rows)).by_columns == 600


def test_one_row_that_is_not_plain_is_read_from_its_bytes_alone(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 2_000)
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    table["a"][700], table["ts"][1_500] = float("inf"), None
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    counters = assert_alike(plant(tmp_path, {}, {"end": ["change"]}))
    assert counters.by_columns == 2_000
    assert counters.dead_letters == {"bad_value": 1, "missing_field": 1}


def test_what_rows_alone_can_say_is_read_row_by_row(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 50)
    relative = plant(tmp_path, {"time": "relative", "time_unit": "us"}, {"end": ["change"]})
    assert assert_alike(relative).by_columns == 0
    written(tmp_path / "a.parquet", 50, {"a": "list"})
    assert assert_alike(plant(tmp_path, {}, {"end": ["change"]})).by_columns == 0


@pytest.mark.parametrize("cut", ["a\rb", "a\r\nb", '"a\rb";c', "\r", "\ra"])
def test_a_carriage_return_ends_a_line_wherever_lines_are_read_ahead(cut: str, tmp_path: Path) -> None:
    lines = [f"{START_US // S_US + i};s;B;1;2" for i in range(6)]
    (tmp_path / "a.csv").write_bytes("\n".join(["ts;line;batch;a;b", *lines[:3], cut, *lines[3:], ""]).encode())
    of = plant(tmp_path, {}, {"end": ["change"]})
    wanted = taken(of, by_column=False)[0]
    before = 3 * (len(lines[0]) + 1)
    for characters in range(before - 1, before + len(cut) + 2):
        with patch.multiple(csv_columns, FEWEST_CHARACTERS=1, CHARACTERS=characters):
            assert taken(of, by_column=True)[0] == wanted


def test_the_folders_of_a_file_are_columns(tmp_path: Path) -> None:
    for line in ("1", "2"):
        (tmp_path / f"line={line}").mkdir()
        written(tmp_path / f"line={line}" / "a.parquet", 100, {"line": "absent"})
    of = plant(tmp_path, {}, {"end": ["marker"]}, source={"url": str(tmp_path)})
    counters = assert_alike(of)
    assert counters.by_columns == counters.samples == 200
