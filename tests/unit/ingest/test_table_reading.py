"""The table of batches is read with the rules of ``decode``, and a bad one is refused with its line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamad.errors import SourceError
from streamad.ingest.table.reading import read_table
from streamad.ingest.table.rows import BatchTable
from tests.support.runtime.pipeline import settings_of

HEADER = "stream,id,begin,end\n"
NOTED = "stream,id,begin,end,note\n"
DAY_US = 86_400_000_000


def read(tmp_path: Path, text: str | bytes, table: Any = "batches.csv", **sections: Any) -> BatchTable:
    (tmp_path / "batches.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_table(settings_of(sequences={"end": ["table"], "table": table}, **sections), tmp_path)
    assert found is not None
    return found


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


def test_rows_are_read_with_their_lines(tmp_path: Path) -> None:
    text = (
        HEADER + 'r1,"B,2",1970-01-03T00:00:00Z,\n\nr1,B1,1970-01-02T00:00:00Z,1970-01-03T00:00:00Z\nr2,7,0,86400.5\n'
    )
    table = read(tmp_path, text)
    assert table.name == "batches.csv"
    first, second = table.of("r1").rows
    assert (first.sequence, first.begin_us, first.end_us, first.line) == ("B1", DAY_US, 2 * DAY_US, 4)
    assert (second.sequence, second.begin_us, second.end_us, second.line) == ("B,2", 2 * DAY_US, None, 2)
    assert [(row.sequence, row.end_us) for row in table.of("r2").rows] == [("7", DAY_US + 500_000)]
    assert table.of("r3").rows == []
    assert (table.n_rows, table.of("r1").gives_routes) == (3, False)


@pytest.mark.parametrize(
    "text", ["\ufeffunit;batch;start;stop\nr1;B1;0;1\n", "unit\tbatch\tstart\tstop\r\nr1\tB1\t0\t1\r\n"]
)
def test_columns_may_have_other_names_and_delimiters(tmp_path: Path, text: str) -> None:
    names = {"file": "batches.csv", "stream": "unit", "sequence": "batch", "begin": "start", "end": "stop"}
    assert [row.sequence for row in read(tmp_path, text, names).of("r1").rows] == ["B1"]


def test_further_columns_are_kept_in_bounds(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(20)]
    header = ",".join(["stream", "id", "begin", "end", "recipe", "operator", *names])
    cells = ["r1", "A", "10", "20", "PX-7", " ", *["y" * 100] * 20]
    (row,) = read(tmp_path, "\n".join([header, ",".join(cells)])).of("r1").rows
    assert row.further[0] == ("recipe", "PX-7")
    assert row.further[1:] == tuple((name, "y" * 79 + "…") for name in names[:14])


@pytest.mark.parametrize("text", [",stream,id,begin,end\n0,r1,B1,0,1\n", "stream,id,begin,end,\nr1,B1,0,1,x\n"])
def test_a_column_may_lack_a_name(tmp_path: Path, text: str) -> None:
    """As pandas writes a table with its index."""
    assert [row.sequence for row in read(tmp_path, text).of("r1").rows] == ["B1"]


def test_without_a_stream_the_default_stream_is_meant(tmp_path: Path) -> None:
    table = read(tmp_path, "sequence,begin,end\nB1,0,1\n", decode={"default_stream": "r1"})
    assert [row.sequence for row in table.of("r1").rows] == ["B1"]


@pytest.mark.parametrize(
    ("decode", "text", "expected"),
    [
        ({"timezone": "Europe/Berlin"}, "2026-03-01 08:00:00", us("2026-03-01T07:00:00")),
        ({"timezone": "Europe/Berlin"}, "2026-10-25 02:30:00+01:00", us("2026-10-25T01:30:00")),
        ({"time_format": "unix_ms"}, "1772352930250", us("2026-03-01T08:15:30.250")),
        ({"time_unit": "ms"}, "1772352930250", us("2026-03-01T08:15:30.250")),
        ({"time_format": "%d.%m.%Y %H:%M", "timezone": "UTC"}, "01.03.2026 08:15", us("2026-03-01T08:15:00")),
        ({"fields": {"time": "record"}}, "2026-03-01T08:15:00Z", us("2026-03-01T08:15:00")),
    ],
)
def test_times_are_read_as_those_of_samples(tmp_path: Path, decode: dict[str, Any], text: str, expected: int) -> None:
    assert read(tmp_path, f"{HEADER}r1,B1,{text},\n", decode=decode).of("r1").rows[0].begin_us == expected


def test_the_column_of_the_models_field_chooses_the_model(tmp_path: Path) -> None:
    text = "stream,id,begin,end,recipe,operator\nr1,B1,0,1,PX,me\nr1,B2,1,2,,\n"
    table = read(tmp_path, text, models={"field": "recipe"})
    assert [row.route for row in table.of("r1").rows] == ["PX", None]
    assert table.of("r1").gives_routes
    assert not read(tmp_path, text, models={"field": "product"}).of("r1").gives_routes


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no column begin and end and sequence or id and stream (columns: none)"),
        ("stream,id,from,to\n", "no column begin and end (columns: stream, id, from, to): a table has the columns"),
        ("id,begin,end\n", "no column stream"),
        ("stream,id,begin,end,end\n", "has the column end twice"),
        (HEADER + "r1,,0,1\n", "line 2: id: is empty"),
        (HEADER + ",B1,0,1\n", "line 2: stream: is empty, and decode.default_stream is null"),
        (HEADER + "r1,B1,,1\n", "line 2: begin: ''"),
        (HEADER + "r1,B1,0,soon\n", "line 2: end: 'soon' is neither an RFC 3339 time"),
        (HEADER + "r1,B1,2026-03-01 08:00:00,\n", "line 2: begin: 2026-03-01T08:00:00 has no UTC offset"),
        (HEADER + "r1,B1,5,5\n", "line 2: B1 of r1 ends at its begin, or before it"),
        (HEADER + "r1,B1,5,4\n", "line 2: B1 of r1 ends at its begin, or before it"),
        (HEADER + "r1,B1,0,1\nr1,B1,1,2\n", "line 3: B1 of r1 stands in line 2, too"),
        (HEADER + "r1,B1,0,2\nr1,B2,1,3\n", "line 3: B2 of r1 overlaps B1 (line 2)"),
        (HEADER + "r1,B2,1,3\nr1,B1,0,2\n", "line 3: B1 of r1 overlaps B2 (line 2)"),
        (HEADER + "r1,B1,0,2\nr1,B2,0,2\n", "line 3: B2 of r1 overlaps B1 (line 2)"),
        (HEADER + "r1,B1,0,\nr1,B2,5,6\n", "line 2: B1 of r1 has no end, but B2 (line 3) begins after it"),
        (HEADER + "r1,B1,0,\nr1,B2,0,\n", "line 2: B1 of r1 has no end, but B2 (line 3)"),
        (HEADER + "r1,B1,0,1,2\n", "line 2: has more cells than the header"),
        (HEADER + f"r1,{'B' * 300},0,1\n", "line 2: id: is longer than"),
        (HEADER + "r1,B\x011,0,1\n", "line 2: id: holds control characters"),
        (HEADER.encode() + b"r1,\xff,0,1\n", "is not a CSV file in UTF-8"),
        (HEADER + "r1,B1,-5,1\n", "line 2: begin: '-5' lies before 1970"),
        # What follows a quote that nothing closes would be one cell: the rows there would be gone without a word.
        (
            NOTED + 'r1,B1,0,1,"5 bar\nr1,B2,1,2,\n',
            "line 2: the row that begins there is no CSV (unexpected end of data)",
        ),
        (NOTED + 'r1,B1,0,1,\nr1,B2,1,2,"5" pipe\nr1,B3,2,3,"6" pipe\n', "line 3: the row that begins there is no CSV"),
        (HEADER + f"r1,{'B' * 200_000},0,1\n", "line 2: the row that begins there is no CSV (field larger than"),
        # As a file that is being written, or a full disk, may end: the batch would run still.
        (HEADER + "r1,B1,0,1\nr1,B2,1", "line 3: has fewer cells than the header"),
        ("stream,id,begin,end,recipe,recipe\nr1,B1,0,1,PX,PY\n", "has the column recipe twice"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path: Path, text: str | bytes, error: str) -> None:
    with pytest.raises(SourceError) as raised:
        read(tmp_path, text, models={"field": "recipe"})
    assert str(raised.value).startswith(f"batches.csv: {error}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["2026-10-25 02:30:00", "2026-03-29 02:30:00"])
def test_a_local_time_that_comes_twice_or_never_needs_its_offset(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError, match=r"line 2: begin: .* comes twice or never.*write its UTC offset"):
        read(tmp_path, f"{HEADER}r1,B1,{text},\n", decode={"timezone": "Europe/Berlin"})


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = settings_of(sequences={"end": ["table"], "table": "nowhere.csv"})
    with pytest.raises(SourceError, match=r"nowhere\.csv: cannot be read"):
        read_table(settings, tmp_path)
    assert read_table(settings_of(), tmp_path) is None


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ({"sequences": {"end": ["table"]}}, "end mode table and the key table go together"),
        ({"sequences": {"end": ["marker"], "table": "b.csv"}}, "end mode table and the key table go together"),
        ({"sequences": {"end": ["table", "gap"], "gap": "1s", "table": "b.csv"}}, "write end: [table] alone"),
        ({"sequences": {"without_id": "skip"}}, "leave without_id out"),
        ({"sequences": {"table": "kafka://host/topic"}}, "write the path of a CSV file"),
        ({"sequences": {"table": {"file": "b.csv", "begin": "t", "end": "t"}}}, "name one column twice"),
        ({"sequences": {"table": {"stream": "unit"}}}, "Field required"),
        ({"decode": {"time": "relative"}}, "decode.time is relative: write decode.time: absolute"),
        ({"decode": {"time": "row"}}, "decode.time is row"),
        ({"decode": {"sequence_from": "file"}}, "leave decode.sequence_from: file out"),
        ({"decode": {"fields": {"sequence": "batch"}}}, "write decode.fields.sequence: null"),
        (
            {"decode": {"fields": {"begin": {"field": "event", "value": "START"}}}},
            "leave decode.fields.begin, and a tag",
        ),
    ],
)
def test_what_contradicts_a_table_is_refused(sections: dict[str, Any], error: str) -> None:
    sequences = {"end": ["table"], "table": "b.csv"}
    if "end" in sections.get("sequences", {}):
        sequences = {}
    with pytest.raises(ValidationError) as raised:
        settings_of(**{**sections, "sequences": {**sequences, **sections.get("sequences", {})}})
    assert error in str(raised.value)
