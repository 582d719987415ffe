"""A table of batches with what messages may hold: local times that come twice, lists, chunks, values that hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.table.reading import read_table
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Record, RecordBatch


def cut(
    folder: Path, rows: list[str], messages: list[dict[str, Any]], **sections: Any
) -> tuple[list[FinishedSequence], Counters]:
    """Return the sequences of ``messages`` by a table with these rows."""
    (folder / "batches.csv").write_text("\n".join(["stream,id,begin,end", *rows]))
    sections = {"channels": [{"name": "temp"}], **sections}
    settings = Settings(source={"url": "x"}, sequences={"end": ["table"], "table": "batches.csv"}, **sections)
    counters, table = Counters(), read_table(settings, folder)
    intake = Intake("p", settings, Decoder(settings.decode, settings.channels), counters, table=table)
    records = tuple(Record(at, json.dumps(message).encode()) for at, message in enumerate(messages))
    found = intake.take(RecordBatch("p", records, len(records)), 0) + intake.end_of_input(0)
    return [closed.sequence for closed in found], counters


def test_a_sequence_has_its_further_columns_wherever_the_reading_restarts(tmp_path: Path) -> None:
    text = "stream,id,begin,end,recipe\nr1,A,10,20,PX-7\nr1,B,30,40,\nr1,C,50,60,PX-9\n"
    (tmp_path / "batches.csv").write_text(text)
    sequences = {"end": ["table"], "table": "batches.csv"}
    settings = Settings(source={"url": "x"}, channels=[{"name": "temp"}], sequences=sequences)
    table = read_table(settings, tmp_path)
    messages = [{"stream": "r1", "time": time, "values": {"temp": time}} for time in (10, 15, 30, 35, 50, 55, 5)]
    records = [Record(at, json.dumps(message).encode()) for at, message in enumerate(messages)]
    for stop in range(len(records) + 1):
        found: list[FinishedSequence] = []
        progress: Progress | None = None
        for end in (stop, len(records)):
            decoder = Decoder(settings.decode, settings.channels)
            intake = Intake("p", settings, decoder, Counters(), table=table, progress=progress)
            begin = 0 if progress is None else progress.low_watermark
            closed = intake.take(RecordBatch("p", tuple(records[begin:end]), end), 0)
            closed += intake.end_of_input(0) if progress is not None else []
            for each in closed:
                intake.committed(each)
            found += [each.sequence for each in closed]
            progress = merge(progress, intake.progress())
        assert [(one.sequence, dict(one.batch)) for one in found] == [
            ("A", {"recipe": "PX-7"}),
            ("B", {}),
            ("C", {"recipe": "PX-9"}),
        ]


def readings(found: list[FinishedSequence]) -> dict[str, list[float]]:
    return {sequence.sequence: sequence.values[:, 0].tolist() for sequence in found}


def test_an_hour_that_comes_twice_lies_in_the_row_of_its_reading(tmp_path: Path) -> None:
    rows = ["r1,A,2026-10-25T00:00:00Z,2026-10-25T01:00:00Z", "r1,B,2026-10-25T01:00:00Z,2026-10-25T02:00:00Z"]
    times = ["02:10", "02:50", "02:10", "02:50"]
    messages = [
        {"stream": "r1", "time": f"2026-10-25T{time}:00", "values": {"temp": at}} for at, time in enumerate(times)
    ]
    found, counters = cut(tmp_path, rows, messages, decode={"timezone": "Europe/Berlin"})
    assert readings(found) == {"A": [0.0, 1.0], "B": [2.0, 3.0]}
    assert (counters.outside, counters.late_samples) == (0, 0)


def test_a_chunk_and_a_list_are_cut_at_the_rows(tmp_path: Path) -> None:
    rows = ["r1,A,10,20", "r1,B,30,40", "r2,A,0,15"]
    times = [5, 10, 19, 20, 29, 30, 41]
    chunk = {"stream": "r1", "times": times, "values": [[float(time)] for time in times]}
    found, counters = cut(tmp_path, rows, [chunk])
    assert readings(found) == {"A": [10.0, 19.0], "B": [30.0]}
    assert counters.outside == 4
    fields = {"each": "list", "stream": "unit", "sequence": None, "time": "t", "values": None}
    elements = [{"unit": unit, "t": time, "temp": time} for time in times for unit in ("r1", "r2")]
    found, counters = cut(tmp_path, rows, [{"list": elements}], decode={"fields": fields})
    assert sorted((one.stream, one.sequence, one.values[:, 0].tolist()) for one in found) == [
        ("r1", "A", [10.0, 19.0]),
        ("r1", "B", [30.0]),
        ("r2", "A", [5.0, 10.0]),
    ]
    assert counters.samples == counters.sequence_samples + counters.outside == 14


def test_ids_and_end_marks_in_messages_do_not_count(tmp_path: Path) -> None:
    messages = [
        {"stream": "r1", "sequence": f"X{time}", "time": time, "values": {"temp": time}, "end": True}
        for time in (10, 12, 14)
    ]
    found, _ = cut(tmp_path, ["r1,A,10,20"], messages)
    assert readings(found) == {"A": [10.0, 12.0, 14.0]}


def test_a_value_holds_from_a_sample_in_no_row(tmp_path: Path) -> None:
    channels = [{"name": "temp"}, {"name": "valve", "fill": "hold"}]
    values = [(5, {"valve": 7.0}), (10, {"temp": 1.0}), (12, {"temp": 2.0}), (25, {"valve": 8.0}), (31, {"temp": 3.0})]
    messages = [{"stream": "r1", "time": time, "values": of} for time, of in values]
    found, counters = cut(tmp_path, ["r1,A,10,20", "r1,B,30,40"], messages, channels=channels)
    assert [one.carried is not None and one.carried.tolist()[1] for one in found] == [7.0, 8.0]
    assert counters.outside == 2
