"""Reading by column gives what reading row by row gives, whatever the files hold; plain files are read by column."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
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
from streamad.ports import Source
from streamad.runtime import recordings
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.testing import ManualClock
from streamad_connectors.files.formats.csv_files import columns as csv_columns
from streamad_connectors.files.formats.parquet_files.reader import end_waiting

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")
csv: Any = pytest.importorskip("pyarrow.csv")

START_US = 1_767_225_600_000_000
S_US = 1_000_000
Cells = list[Any]


class RowsOnly:
    """A source without columns."""

    def __init__(self, source: Source) -> None:
        self.options_model = source.options_model
        self.batches, self.seek, self.close = source.batches, source.seek, source.close


def plant(folder: Path, decode: dict[str, Any], sequences: dict[str, Any], **more: Any) -> Plant:
    fields = {"stream": "line", "sequence": "batch", "time": "ts", "values": None} | decode.pop("fields", {})
    content = {
        "source": {"url": str(folder / "*.*")},
        "channels": [{"name": "a", "missing": [-9999]}, {"name": "b"}],
        "decode": {"fields": fields, **decode},
        "sequences": sequences,
        "window": {"length": 16},
    }
    return Plant(Settings.model_validate(content | more), folder, ManualClock(START_US))


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


def timestamps(times_us: list[int], unit: str, zone: str | None) -> Any:
    ticks = {"s": 1e-6, "ms": 1e-3, "us": 1, "ns": 1_000}[unit]
    return pa.array([min(int(time_us * ticks), (1 << 63) - 1) for time_us in times_us], pa.timestamp(unit, tz=zone))


def text_of(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()


TIMES: dict[str, Callable[[list[int]], Any]] = {
    "us": lambda of: timestamps(of, "us", "UTC"),
    "s": lambda of: timestamps(of, "s", None),
    "ms": lambda of: timestamps(of, "ms", "+05:30"),
    "ns": lambda of: timestamps(of, "ns", "Europe/Berlin"),
    "float": lambda of: pa.array([time_us / 1e6 for time_us in of]),
    "int": lambda of: pa.array([time_us // S_US for time_us in of]),
    "uint64": lambda of: pa.array([max(time_us // S_US, 0) for time_us in of], pa.uint64()),
    "text": lambda of: pa.array([text_of(time_us) for time_us in of]),
    "local text": lambda of: pa.array([text_of(time_us)[:19] for time_us in of]),
    "decimal": lambda of: pa.array([Decimal(time_us) / S_US for time_us in of], pa.decimal128(18, 6)),
    "date": lambda of: pa.array([min(time_us // 86_400_000_000, 10**6) for time_us in of], pa.int32()).cast(
        pa.date32()
    ),
    "dictionary": lambda of: timestamps(of, "us", "UTC").dictionary_encode(),
    "duration": lambda of: pa.array(of, pa.duration("us")),
    "list": lambda of: pa.array([[time_us / 1e6] for time_us in of]),
}
IDS: dict[str, Callable[[list[str | None]], Any]] = {
    "text": pa.array,
    "large": lambda of: pa.array(of, pa.large_string()),
    "dictionary": lambda of: pa.array(of).dictionary_encode(),
    "int": lambda of: pa.array([None if cell is None else len(cell) + ord(cell[-1:] or "x") for cell in of]),
    "float": lambda of: pa.array([None if cell is None else ord(cell[-1:] or "x") / (1 + (cell == "")) for cell in of]),
    "bool": lambda of: pa.array([None if cell is None else cell < "B" for cell in of]),
    "time": lambda of: timestamps([START_US + ord((cell or "x")[-1:]) for cell in of], "us", "UTC"),
}
READINGS: dict[str, Callable[[list[float | None]], Any]] = {
    "double": pa.array,
    "float": lambda of: pa.array(of, pa.float32()),
    "int8": lambda of: pa.array([whole(cell, 127) for cell in of], pa.int8()),
    "int64": lambda of: pa.array([whole(cell, 1 << 62) for cell in of], pa.int64()),
    "uint64": lambda of: pa.array(
        [None if cell is None else abs(whole(cell, 1 << 62) or 0) for cell in of], pa.uint64()
    ),
    "decimal": lambda of: pa.array(
        [None if whole(cell, 9) is None else Decimal(str(whole(cell, 9))) / 7 for cell in of]
    ),
    "bool": lambda of: pa.array([None if cell is None else cell > 0 for cell in of]),
    "text": lambda of: pa.array([None if cell is None else str(cell) for cell in of]),
    "words": lambda of: pa.array(["high" if cell is None else f"{cell} " for cell in of]).dictionary_encode(),
    "null": lambda of: pa.nulls(len(of)),
    "duration": lambda of: pa.array([whole(cell, 1 << 60) for cell in of], pa.duration("ns")),
    "time": lambda of: timestamps([START_US] * len(of), "ms", "UTC"),
    "half": lambda of: pa.array(np.array([0.5] * len(of), dtype=np.float16)),
    "list": lambda of: pa.array([[cell] for cell in of]),
    "bytes": lambda of: pa.array([b"\xff" for _ in of]),
}
ENDS: dict[str, Callable[[list[bool]], Any]] = {
    "bool": pa.array,
    "int": lambda of: pa.array([int(is_end) for is_end in of]),
    "text": lambda of: pa.array(["yes" if is_end else "" for is_end in of]),
    "odd": lambda of: pa.array([2 if is_end else None for is_end in of]),
}
NOTES: dict[str, Callable[[int], Any]] = {
    "bytes": lambda n: pa.array([b"\xff\xfe"] * n),
    "list": lambda n: pa.array([[1, None]] * n),
    "not UTF-8": lambda n: pa.Array.from_buffers(
        pa.string(), n, [None, pa.array(range(n + 1), pa.int32()).buffers()[1], pa.py_buffer(b"\xff" * n)]
    ),
    "long": lambda n: pa.array(["x" * 3_000] * n),
    "date": lambda n: pa.array([20_000] * n, pa.int32()).cast(pa.date32()),
}


def whole(cell: float | None, most: int) -> int | None:
    return None if cell is None or not np.isfinite(cell) else int(max(min(cell, most), -most))


def drawn_file(random: Random, path: Path, begin_us: int, kinds: dict[str, str]) -> int:
    """Write a file of interleaved streams, with what is odd now and then; return the time of its last row."""
    n, n_streams = random.choice([0, 1, 5, 40, 200]), random.choice([1, 1, 2, 3])
    rare = random.choice([0.0, 0.0, 0.02, 0.2])
    steps = random.choice([[1], [1, 1, 1, 2], [1, 1, 0, -2], [1] * 20 + [40, 400], [1] * 30 + [100_000]])
    length, time_us = random.choice([3, 10, 60]), begin_us
    rows: list[tuple[Any, ...]] = []

    def odd(usual: Any, *others: Any) -> Any:
        return random.choice(others) if random.random() < rare else usual

    for i in range(n):
        time_us += random.choice(steps) * S_US
        stream = f"s{i % n_streams}" if n < 100 or random.random() < 0.9 else "s0"
        rows.append((
            odd(time_us, time_us + 10**15, -1, time_us + 90 * S_US, 10**17),
            odd(stream, None, "", "a\nb", "s7"),
            odd(f"B{i // n_streams // length}", None, "", "x\ty", "B0"),
            random.random() < 1 / length or odd(False, True),
            odd(float(i % 50), None, float("nan"), float("inf"), 1e39, -9999.0),
            odd(i / 7, None, -9999.0, 1e308),
        ))  # fmt: skip
    times, streams, sequences, ends, a, b = (list(cells) for cells in zip(*rows, strict=True)) if rows else [[]] * 6
    columns: dict[str, Any] = {}
    for name, cells, makers in (
        ("ts", times, TIMES), ("line", streams, IDS), ("batch", sequences, IDS), ("end", ends, ENDS),
        ("a", a, READINGS), ("b", b, READINGS),
    ):  # fmt: skip
        if kinds[name] != "absent":
            columns[name] = makers[kinds[name]](cells)
    if n and kinds["ts"] != "absent" and random.random() < rare:
        columns["ts"] = columns["ts"].take(pa.array([None, *range(1, n)], pa.int32()))
    if kinds["note"] != "absent":
        columns["note"] = NOTES[kinds["note"]](n)
    pq.write_table(pa.table(columns), path, row_group_size=random.choice([1, 7, 50, 1000]))
    os.utime(path, (START_US // S_US, random.choice([START_US + 10**12, START_US + 300 * S_US, time_us]) / 1e6))
    return time_us


def some(random: Random, usual: str, kinds: dict[str, Any]) -> str:
    """Return a kind of column, mostly the usual one."""
    return usual if random.random() < 0.6 else random.choice([*kinds, "absent"])


def drawn_plant(random: Random, folder: Path) -> Plant:
    """Write files and return a plant that reads them."""
    kinds = {
        "ts": some(random, "us", TIMES), "line": some(random, "text", IDS), "batch": some(random, "text", IDS),
        "end": some(random, "bool", ENDS), "a": some(random, "double", READINGS),
        "b": some(random, "float", READINGS), "note": random.choice(["absent", "absent", "absent", *NOTES]),
    }  # fmt: skip
    time_us = START_US - 10**9
    for number in range(random.choice([1, 1, 2])):
        time_us = drawn_file(random, folder / f"day-{number}.parquet", time_us, kinds)
    end = random.sample(["marker", "change", "gap", "length"], random.choice([1, 2]))
    sequences: dict[str, Any] = {"end": end}
    sequences |= {"gap": "30s"} if "gap" in end else {}
    sequences |= {"length": random.choice([1, 9, 50])} if "length" in end else {}
    for name, values in {
        "allowed_lateness": ["3s", "100s"], "max_duration": ["20s", "300s"], "max_samples": [5, 30],
        "closed_memory": ["1s"], "without_id": ["skip"], "max_streams": [1, 2],
    }.items():  # fmt: skip
        if random.random() < 0.2:
            sequences[name] = random.choice(values)
    decode: dict[str, Any] = {"default_stream": "plant"} if random.random() < 0.5 else {}
    for name, values in {
        "time_unit": ["ms", "us"], "time_format": ["%Y-%m-%dT%H:%M:%S", "unix_s", "excel"],
        "timezone": ["Europe/Berlin"], "missing": [["high"]], "max_clock_skew": ["100s"],
        "max_message_bytes": [2_000], "time": ["relative"], "sequence_from": ["file"], "max_dead_letter_bytes": [10],
        "fields": [{"sequence": ["line", "batch"]}, {"sequence": None}, {"end": {"field": "batch", "value": "B1"}},
                   {"stream": "key"}, {"ignore_unknown": False}, {"end": None}, {"time": "n.ts"}, {"stream": "note.x"}],
    }.items():  # fmt: skip
        if random.random() < 0.07:
            decode[name] = random.choice(values)
    more: dict[str, Any] = {}
    if random.random() < 0.2:
        more["models"] = {"field": random.choice(["batch", "line", "product"])}
    if random.random() < 0.15:
        more["channels"] = [{"name": "a", "fill": "hold", "values": {"high": 3}}, {"name": "b"}]
    more["source"] = {"url": str(folder / "*.*"), "options": {"files": random.choice(["joined", "separate"])}}
    return plant(folder, decode, sequences, **more)


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
