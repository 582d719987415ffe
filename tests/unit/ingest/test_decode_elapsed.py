"""Times that count from a start, in numbers and texts; and the offsets of dates that are of hours only."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record
from tests.support.ingest.decoded import block_in

FLAT = FieldSettings(time="ts", values=None)
TICK = timedelta(microseconds=1)


def time_of(value: object, **decode: Any) -> int:
    message = {"stream": "r", "ts": value, "temp": 1}
    settings = DecodeSettings(fields=FLAT, **decode)
    block = block_in(Decoder(settings, [ChannelSettings(name="temp")]), Record(0, json.dumps(message).encode()))
    assert block is not None
    return int(block.times_us[0])


def error_of(value: object, **decode: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        time_of(value, **decode)
    assert caught.value.kind == "bad_time"
    return str(caught.value)


def pandas_text(span: timedelta) -> str:
    """Return ``str(pandas.Timedelta)``."""
    days, clock = span.days, str(span - timedelta(days=span.days)).rjust(8, "0")
    return f"{days} days {'+' if days < 0 else ''}{clock}"


def iso_text(span: timedelta) -> str:
    seconds, us = divmod(abs(span) // TICK, 1_000_000)
    return f"{'-' * (span < timedelta(0))}PT{seconds // 3600}H{seconds % 3600 // 60}M{seconds % 60}.{us:06}S"


def clock_text(span: timedelta) -> str:
    seconds, us = divmod(abs(span) // TICK, 1_000_000)
    sign = "-" * (span < timedelta(0))
    return f"{sign}{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}.{us:06}"


@given(
    st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    st.sampled_from([str, pandas_text, iso_text, clock_text, lambda span: f"{span // TICK} us"]),
)
def test_every_way_to_write_a_time_gives_its_microseconds(span: timedelta, write: Any) -> None:
    assert time_of(write(span), time="relative") == span // TICK


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("00:00:00.010", 10_000),
        ("00:00:00,010", 10_000),
        ("1:02:03.5", 3_723_500_000),
        ("100:00:00", 360_000_000_000),
        ("0 sec", 0),
        ("0.01 sec", 10_000),
        ("10 ms", 10_000),
        ("10ms", 10_000),
        ("2.5 \u00b5s", 2),
        ("1500 ns", 2),
        ("-3 s", -3_000_000),
        ("1.5 min", 90_000_000),
        ("2 h", 7_200_000_000),
        ("0 days 00:00:00.010000", 10_000),
        ("3 days", 259_200_000_000),
        ("-1 days +23:59:59.990000", -10_000),
        ("-1 day, 23:59:59.990000", -10_000),
        ("PT1.5S", 1_500_000),
        ("PT1,5S", 1_500_000),
        ("-PT0.25S", -250_000),
        ("P1DT1H", 90_000_000_000),
        ("-0.5", -500_000),
        (-0.5, -500_000),
        (-2, -2_000_000),
    ],
)
def test_elapsed_times(text: object, time_us: int) -> None:
    assert time_of(text, time="relative") == time_us


@pytest.mark.parametrize(
    "text",
    [
        "1:02",
        "0:61:00",
        "-1 days 02:00:00",
        "5 bar",
        "1 m",
        "P1M",
        "P1Y",
        "PT",
        "1,5 s",
        "",
        "noon",
        "1 day 5",
        "nan s",
    ],
)
def test_a_time_that_is_no_clear_one_is_refused_with_the_cell_and_the_reason(text: str) -> None:
    assert (
        error_of(text, time="relative")
        == f"ts: {text!r} is no time since the start, such as 1.5, 00:00:01.5, 1.5 s or PT1.5S"
    )


def test_a_quantity_has_the_marks_of_numbers() -> None:
    assert time_of("1.000,5 ms", time="relative", decimal=",", thousands=".") == 1_000_500


def test_the_bounds_of_relative_times() -> None:
    assert time_of(-7_258_118_400, time="relative") == -7_258_118_400_000_000
    assert "more than 230 years before the start" in error_of(-7_258_118_401, time="relative")
    assert "after the year 2200" in error_of("99999999 h", time="relative")


def test_a_refusal_names_the_cell_and_what_would_read_it() -> None:
    assert error_of("00:00:00.010") == (
        "ts: '00:00:00.010' counts from a start or is a time of day: write decode.time: relative, or name the field of "
        "its date, too (decode.fields.time: [date, time])"
    )
    assert "'2026-03-02T06:00:00Z' is a date, but decode.time is relative" in error_of(
        "2026-03-02T06:00:00Z", time="relative"
    )
    assert error_of("1969-12-31T23:59:59Z") == "ts: '1969-12-31T23:59:59Z' lies before 1970"
    assert error_of(-1) == "ts: -1 lies before 1970"


# --- dates ----------------------------------------------------------------------------------------------------------

DATE_US = int(datetime(2026, 3, 2, 5, 0, 0, 500_000, UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-02 06:00:00.5+01",
        "2026-03-02T06:00:00.5+0100",
        "2026-03-02 06:00:00.5 +01:00",
        "2026-03-02 03:00:00.5-02",
    ],
)
def test_offsets_may_be_of_hours_only(text: str) -> None:
    assert time_of(text) == DATE_US


def test_what_ends_like_an_offset_is_not_taken_for_one() -> None:
    for text in ("2026-03-02", "2026-03", "06:00:00+01", "2026-03-02 06:00:00+1", "2026-03-02 06:00:00+25"):
        assert repr(text) in error_of(text, timezone="UTC")


def test_offsets_of_hours_only_in_a_format() -> None:
    assert time_of("02.03.2026 06:00:00.5 +01", time_format="%d.%m.%Y %H:%M:%S.%f %z") == DATE_US


@given(st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)))  # noqa: DTZ001 - local times
def test_wincc_writes_excel_serials_times_a_million(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
    serial = (moment - datetime(1899, 12, 30)) / timedelta(days=1)  # noqa: DTZ001
    expected = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // TICK
    assert time_of(round(serial * 1e6, 5), time_format="wincc_time_ms", timezone="UTC") == expected
    assert time_of(f"{serial * 1e6:.5f}", time_format="wincc_time_ms", timezone="UTC") == expected


def test_a_number_that_is_none_of_wincc_is_refused() -> None:
    assert "is no Excel date times 1,000,000 such as 46082343750.0" in error_of(
        1e13, time_format="wincc_time_ms", timezone="UTC"
    )
