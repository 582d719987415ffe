"""Dates of ``decode.time_format`` in every form of message, and that nothing changes without it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.record_times import DecodedTimes
from streamad.plant import Plant
from streamad.runtime.wiring import source_for
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.settings.plant_yaml import Settings
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch, SampleBlock
from tests.support.ingest.decoded import block_in

GERMAN = "%d.%m.%Y %H:%M:%S"
CHANNELS = [ChannelSettings(name="temp")]
FLAT = FieldSettings(values=None)
T = datetime(2026, 3, 23, 6, 0, tzinfo=UTC)
T_US = int(T.timestamp()) * 1_000_000


def settings_for(form: str | None, *, flat: bool = False, zone: str | None = "UTC") -> DecodeSettings:
    return DecodeSettings(time_format=form, timezone=zone, fields=FLAT if flat else None)


def decoded(message: Any, settings: DecodeSettings, **record: Any) -> SampleBlock:
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    block = block_in(Decoder(settings, CHANNELS), Record(0, value, **record))
    assert block is not None
    return block


def forms(time: Any) -> list[tuple[Any, bool]]:
    """Return a sample at ``time`` in every form, and whether its fields are mapped."""
    head = {"stream": "r1", "sequence": "B"}
    single = {**head, "time": time, "values": {"temp": 1.5}}
    flat = {**head, "time": time, "temp": "1.5"}
    return [
        (single, False),
        ({**head, "times": [time], "values": [[1.5]]}, False),
        ([single], False),
        (flat, True),
        (msgspec.msgpack.encode(flat), True),
        (msgspec.msgpack.encode(single), False),
    ]


@pytest.mark.parametrize(
    ("form", "zone", "time"),
    [
        (GERMAN, "UTC", "23.03.2026 06:00:00"),
        (GERMAN, "UTC", " 23.03.2026 06:00:00 "),
        (GERMAN, "Europe/Berlin", "23.03.2026 07:00:00"),
        (GERMAN, "Europe/Berlin", "2026-03-23T06:00:00Z"),  # RFC 3339 is no other date's format
        ("%m/%d/%Y %I:%M:%S %p", "America/New_York", "03/23/2026 02:00:00 AM"),
        ("%d.%m.%Y %H:%M %z", None, "23.03.2026 07:00 +0100"),
        ("%Y%m%d%H%M%S", "UTC", 20260323060000),
        ("%Y%m%d%H%M%S", "UTC", "20260323060000"),
        ("excel", "UTC", 46104.25),
        ("excel", "Europe/Berlin", 46104.25 + 1 / 24),
        ("excel", "UTC", "46104.25"),
        ("unix_s", None, T_US // 10**6),
        ("unix_ms", None, T_US // 10**3),
        ("unix_us", None, str(T_US)),
        ("unix_ns", None, T_US * 10**3),
        ("unix_ms", None, "2026-03-23T06:00:00Z"),
        ("dotnet_ticks", None, (T_US + 62_135_596_800_000_000) * 10 + 4),
        ("dotnet_ticks", None, str((T_US + 62_135_596_800_000_000) * 10 - 5)),
        ("filetime", "Europe/Berlin", (T_US + 11_644_473_600_000_000) * 10),
        ("garmin_fit", None, 1_143_180_000),
        ("garmin_fit", None, 1_143_180_000.0),
        ("garmin_fit", None, "/Date(1774245600000)/"),
        (None, None, "/Date(1774245600000)/"),
        (None, None, "/Date(1774245600000+0100)/"),  # the number is UTC
    ],
)
def test_dates_in_every_form_of_message(form: str | None, zone: str | None, time: Any) -> None:
    for message, is_flat in forms(time):
        block = decoded(message, settings_for(form, flat=is_flat, zone=zone))
        assert block.times_us.tolist() == [T_US]
        assert block.values.tolist() == [[1.5]]


@pytest.mark.parametrize(
    ("form", "time", "kind", "text"),
    [
        (GERMAN, "03/23/2026 06:00:00", "bad_time", "'03/23/2026 06:00:00' is not of decode.time_format '%d.%m.%Y"),
        (GERMAN, "x" * 5_000, "bad_time", "is not of decode.time_format"),
        (GERMAN, T_US // 10**6, "bad_time", "is not of decode.time_format"),
        (GERMAN, 1.5, "wrong_type", "must be a date of decode.time_format"),
        (GERMAN, True, "wrong_type", "got true"),
        (GERMAN, {}, "wrong_type", "got an object"),
        (GERMAN, "23.03.1969 06:00:00", "bad_time", "before 1970"),
        (GERMAN, "23.03.2201 06:00:00", "bad_time", "after the year 2200"),
        (GERMAN, "01.01.0001 00:00:00", "bad_time", "before 1970"),
        (GERMAN, "31.12.9999 23:59:59", "bad_time", "after the year 2200"),
        ("excel", -1, "bad_time", "-1 is no Excel date"),
        ("excel", 1e300, "bad_time", "is no Excel date"),
        ("excel", "soon", "bad_time", "soon"),
        ("excel", True, "bad_time", "true is no Excel date"),
        ("excel", 1.0, "bad_time", "before 1970"),
        ("dotnet_ticks", T_US * 1_000, "bad_time", "is no time of 1970 to 2200 (time_format is dotnet_ticks)"),
        ("filetime", 0, "bad_time", "0 is no time of 1970 to 2200"),
        ("garmin_fit", -700_000_000, "bad_time", "is no time of 1970 to 2200"),
        ("garmin_fit", True, "bad_time", "true is no time"),
        ("garmin_fit", 1e300, "bad_time", "is no time of 1970 to 2200"),
        ("unix_ms", "/Date(-1)/", "bad_time", "before 1970"),
        ("unix_ms", "/Date(99999999999999999)/", "bad_time", "decode.time_format names other formats"),
        ("unix_ms", "23.03.2026", "bad_time", "decode.time_format names other formats"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_what_is_no_date_of_the_format_is_an_error_that_names_it(
    form: str, time: Any, kind: str, text: str, zone: str
) -> None:
    for message, is_flat in forms(time):
        with pytest.raises(DecodeError) as caught:
            decoded(message, settings_for(form, flat=is_flat, zone=zone))
        assert caught.value.kind == kind
        assert text in str(caught.value)
        assert len(str(caught.value)) < 300


def test_without_a_format_the_error_names_the_key() -> None:
    with pytest.raises(DecodeError, match=r"neither an RFC 3339 time .* decode.time_format names other formats"):
        decoded(forms("23.03.2026 06:00:00")[0][0], DecodeSettings())


@given(times=st.lists(st.integers(0, 4_000_000_000), min_size=1, max_size=5), form=st.sampled_from([GERMAN, "excel"]))
def test_chunked_equals_single(times: list[int], form: str) -> None:
    def written(time_s: int) -> Any:
        time = datetime.fromtimestamp(time_s, UTC)
        return time.strftime(GERMAN) if form == GERMAN else 25_569 + time_s / 86_400

    head = {"stream": "r1", "sequence": "B"}
    settings = settings_for(form)
    chunk = {**head, "times": [written(time) for time in times], "values": [[1.0]] * len(times)}
    singles = [decoded({**head, "time": written(time), "values": {"temp": 1}}, settings) for time in times]
    expected = sorted(time * 1_000_000 for time in times)
    assert sorted(int(block.times_us[0]) for block in singles) == expected
    assert decoded(chunk, settings).times_us.tolist() == expected


def test_the_hour_that_comes_twice_keeps_both_readings() -> None:
    block = decoded(forms("25.10.2026 02:30:00")[0][0], settings_for(GERMAN, zone="Europe/Berlin"))
    assert block.later_us is not None
    first, second = (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1))
    assert [int(block.times_us[0]), int(block.later_us[0])] == [
        int(time.timestamp()) * 1_000_000 for time in (first, second)
    ]


def test_recorded_arrays_have_their_own_times() -> None:
    message = msgspec.msgpack.encode({"stream": "r1", "times": [T_US / 1e6], "values": [[1.5]]})
    assert decoded(message, settings_for(GERMAN), native=True).times_us.tolist() == [T_US]


@pytest.mark.parametrize(("zone", "hour"), [(None, 6), ("UTC", 6), ("Europe/Berlin", 5), ("America/New_York", 10)])
async def test_parquet_times_without_a_zone_are_those_of_decode_timezone(
    zone: str | None, hour: int, tmp_path: Path
) -> None:
    naive = pyarrow.array([T.replace(tzinfo=None)], pyarrow.timestamp("us"))
    aware = pyarrow.array([T], pyarrow.timestamp("us", tz="Asia/Tokyo"))
    parquet.write_table(pyarrow.table({"a": naive, "b": aware, "temp": [1.5]}), tmp_path / "x.parquet")
    for field, expected_hour in (("a", hour), ("b", 6)):
        fields = FieldSettings(values=None, time=field)
        decode = DecodeSettings(timezone=zone, fields=fields, default_stream="r")
        settings = Settings(channels=CHANNELS, source={"url": "x.parquet"}, decode=decode)
        plant = Plant(settings, tmp_path, ManualClock(T_US))
        source = source_for(plant)
        times_us = []
        async for event in source.batches():
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch):
                decoder = Decoder(decode, CHANNELS)
                for record in event.records:
                    block = block_in(decoder, record)
                    assert block is not None
                    times_us += block.times_us.tolist()
        await source.close()
        assert times_us == [T_US + (expected_hour - 6) * 3_600_000_000]


def test_the_sorters_identity_is_that_of_earlier_versions_without_a_format() -> None:
    settings = Settings(
        channels=[{"name": "temp", "missing": [-9999]}], source={"url": "x"}, decode={"missing": ["Bad"]}
    )
    assert DecodedTimes(settings).identity == (
        '[{"format":"auto","fields":null,"time":"absolute","time_unit":"s","timezone":null,"default_stream":null,'
        '"max_message_bytes":8000000,"max_samples_per_message":100000},[{"name":"temp","unit":"","field":null}]]'
    )
    dated = settings.model_copy(update={"decode": settings_for(GERMAN)})
    assert '"time_format":"%d.%m.%Y %H:%M:%S"' in DecodedTimes(dated).identity


def test_seconds_of_excel_dates_are_exact() -> None:
    settings = settings_for("excel")
    for second in range(0, 86_400, 997):
        serial = float(f"{46104 + second / 86_400:.8f}")  # as spreadsheets write it
        block = decoded(forms(serial)[0][0], settings)
        assert timedelta(microseconds=int(block.times_us[0]) - T_US) == timedelta(seconds=second - 6 * 3_600)


BOTH = {"line": "L1", "day": "23.03.2026", "clock": "06:00:00", "temp": 1.0}
APART: dict[str, Any] = {"stream": "line", "time": "day", "time_of_day": "clock", "values": None}


def read_apart(message: dict[str, Any], **settings: Any) -> int:
    decode = DecodeSettings(fields=FieldSettings(**APART), timezone="Europe/Berlin", **settings)
    block = block_in(Decoder(decode, [ChannelSettings(name="temp")]), Record(0, json.dumps(message).encode()))
    assert block is not None
    return int(block.times_us[0])


def test_dates_and_times_of_day_of_two_fields_are_read_as_one() -> None:
    expected_us = int(datetime(2026, 3, 23, 5, tzinfo=UTC).timestamp()) * 1_000_000
    assert read_apart(BOTH, time_format="%d.%m.%Y %H:%M:%S") == expected_us
    assert read_apart({**BOTH, "day": "2026-03-23"}) == expected_us
    assert read_apart({**BOTH, "day": 20260323, "clock": "6:00 AM"}, time_format="%Y%m%d %I:%M %p") == expected_us


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"clock": None}, "missing_field", "clock: is missing"),
        ({"clock": ""}, "missing_field", "clock: is missing"),
        ({"day": None}, "missing_field", "day: is missing"),
        ({"clock": 6}, "bad_time", "day, clock: '23.03.2026 000006' is not of decode.time_format"),
        ({"clock": [6]}, "wrong_type", "clock: must be a time of day as text or digits, got a list"),
        ({"day": 1.5}, "wrong_type", "day: must be a date as text, got 1.5"),
        ({"clock": "noon"}, "bad_time", "day, clock: '23.03.2026 noon' is not of decode.time_format"),
        ({"day": ["23.03.2026"]}, "wrong_shape", "day, clock: a time in several fields is for messages of one sample"),
    ],
)
def test_what_is_no_date_or_no_time_of_day_is_an_error(change: dict[str, Any], kind: str, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_apart({**BOTH, **change}, time_format="%d.%m.%Y %H:%M:%S")
    assert (caught.value.kind, str(caught.value)[: len(text)]) == (kind, text)


def test_times_of_day_are_for_dates_in_messages_of_one_sample() -> None:
    for fields, settings in (({"time": "record"}, {}), ({}, {"time": "relative"})):
        with pytest.raises(ValueError, match=r"time.of.day"):
            DecodeSettings(fields={**APART, **fields}, **settings)  # type: ignore[arg-type]
    decode = DecodeSettings(fields=FieldSettings(**{**APART, "values": "rows"}))
    chunk = json.dumps({"line": "L1", "times": [1.0], "rows": [[1.0]], "clock": "06:00"}).encode()
    with pytest.raises(DecodeError, match="day, clock: a time in several fields is for messages of one sample"):
        block_in(Decoder(decode, [ChannelSettings(name="temp")]), Record(0, chunk))


def test_the_sorters_identity_is_that_of_earlier_versions_without_a_time_of_day() -> None:
    def identity(**fields: Any) -> str:
        decode = {"fields": {"time": "ts", **fields}}
        settings = Settings(channels=[{"name": "a"}], source={"url": "x.csv"}, decode=decode)  # type: ignore[arg-type]
        return DecodedTimes(settings).identity

    assert "time_of_day" not in identity()
    assert '"time_of_day":"clock"' in identity(time_of_day="clock")
