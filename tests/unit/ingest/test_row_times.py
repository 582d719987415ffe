"""``decode.time: row``: the time of a row is its place in its file, whatever else is read, cut or read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode import Decoder
from streamad.plant import Plant
from streamad.runtime.wiring import source_for
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.settings.plant_yaml import SequenceSettings, Settings
from streamad.testing import ManualClock
from streamad.types import FILE_OFFSETS, Record
from tests.support.ingest.decoded import block_in
from tests.support.ingest.restarts import BROKEN, Partition, Step, choosing, never
from tests.support.runtime.pipeline import START_US, settings_of

FLAT = FieldSettings(sequence="batch", values=None, end="last")
PERIOD_US = 20_000


def row_settings(**decode: Any) -> DecodeSettings:
    return DecodeSettings(**{"time": "row", "row_period": "20ms", "default_stream": "r", "fields": FLAT, **decode})


def decode(message: Any, offset: int = 0, **settings: Any) -> Any:
    channels = [ChannelSettings(name="x"), ChannelSettings(name="y")]
    return block_in(Decoder(row_settings(**settings), channels), Record(offset, json.dumps(message).encode()))


@pytest.mark.parametrize("place", [0, 1, 7, FILE_OFFSETS - 1 >> 20])
@pytest.mark.parametrize("file", [0, 3])
def test_the_time_is_the_place_in_the_file(place: int, file: int) -> None:
    block = decode({"batch": "A", "x": 1, "time": "never read"}, file * FILE_OFFSETS + place)
    assert block.relative
    assert block.times_us.tolist() == [place * PERIOD_US]


def test_the_own_format_needs_no_time_then() -> None:
    block = decode({"stream": "r", "sequence": "A", "values": {"x": 1, "y": 2}}, 5, fields=None)
    assert block.times_us.tolist() == [5 * PERIOD_US]


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ([{"batch": "A", "x": 1}, {"batch": "A", "x": 2}], FLAT),
        ({"stream": "r", "times": [1, 2], "values": [[1, 2], [3, 4]]}, None),
        ({"batch": "A", "x": [1, 2], "y": [1, 2]}, FLAT),
    ],
)
def test_a_record_of_several_samples_is_an_error(message: Any, fields: FieldSettings | None) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(message, fields=fields)
    assert caught.value.kind == "wrong_shape"


def test_a_place_beyond_the_calendar_is_an_error() -> None:
    with pytest.raises(DecodeError, match=r"row 8000: more than 230 years of decode\.row_period"):
        decode({"batch": "A", "x": 1}, 8_000, row_period="1000000000s")


@given(
    st.lists(st.tuples(st.sampled_from("AABC"), st.booleans(), st.integers(0, 9)), min_size=1, max_size=24),
    st.sampled_from([("change",), ("marker",), ("marker", "change")]),
    st.integers(1, 4),
    st.data(),
)
def test_cuts_and_restarts_at_any_row_change_nothing(
    rows: list[tuple[str, bool, int]], end: Any, crashes: int, data: st.DataObject
) -> None:
    """Rows of recurring ids; some cannot be read, and count all the same."""
    script = []
    for offset, (batch, last, kind) in enumerate(rows):
        message = {"batch": batch, "x": offset, "y": kind, "last": last and kind < 3, "recipe": None}
        value = BROKEN if kind == 9 else json.dumps(message).encode()
        script.append(Step(Record(offset, value), offset + 1))
    limits = SequenceSettings(end=end)

    def partition(choose: Any) -> Partition:
        found = Partition(limits, script, choose, from_start=True)
        found.settings = found.settings.model_copy(update={"decode": row_settings()})
        return found

    whole = partition(never).run(0)
    assert partition(choosing(data)).run(crashes) == whole
    for cut in whole:
        if hasattr(cut, "times"):
            places = [int(row[0]) for row in cut.rows]  # x is the row's number
            assert [time - cut.times[0] for time in cut.times] == [(place - places[0]) * PERIOD_US for place in places]


# --- where rows have places ------------------------------------------------------------------------------------------


def source(folder: Path, url: str, **decode: Any) -> Any:
    (folder / "a.csv").write_text("batch,temp\nA,1\n", encoding="utf-8")
    (folder / "a.jsonl").write_text('{"batch": "A", "temp": 1}\n', encoding="utf-8")
    settings: Settings = settings_of(
        source={"url": url}, decode={"time": "row", "fields": {"sequence": "batch", "values": None}, **decode}
    )
    return source_for(Plant(settings, folder, ManualClock(START_US)))


def test_rows_of_finished_csv_files_have_places(tmp_path: Path) -> None:
    assert [file.path.name for file in source(tmp_path, "a.csv").files()] == ["a.csv"]
    by_file = {"sequence_from": "file", "fields": {"sequence": None, "values": None}}
    assert len(source(tmp_path, "*.csv?files=joined", **by_file).files()) == 1


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("a.csv?follow=true", "decode.time: row is for files that are finished; leave out the option follow"),
        ("*.csv?files=joined", "decode.time: row begins anew in each file; leave out files: joined"),
        ("a.csv?sort=true", "option 'sort' needs absolute times"),
        ("a.jsonl", "decode.time: row is for csv, parquet files, not for jsonl"),
    ],
)
def test_where_a_row_has_no_place_it_is_refused(tmp_path: Path, url: str, text: str) -> None:
    with pytest.raises(SourceError) as caught:
        source(tmp_path, url).files()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        ({"row_period": "20ms"}, "row_period is for time: row"),
        ({"time": "row", "row_period": 0}, "must be longer than 0"),
        ({"time": "row", "fields": FieldSettings(time="ts")}, "leave fields.time out"),
        ({"time": "row", "time_unit": "s"}, "leave time_unit out"),
        ({"time": "row", "time_format": "unix_ms"}, "leave time_format out"),
        ({"time": "row", "fields": FieldSettings(channel="tag", value="v")}, "one reading a row"),
    ],
)
def test_settings_that_contradict_rows_are_refused(decode: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DecodeSettings(**decode)


def test_a_live_source_has_no_rows() -> None:
    with pytest.raises(ValueError, match="time: row needs recordings in files, not kafka"):
        settings_of(source={"url": "kafka://localhost:9092/t"}, decode={"time": "row"})
