"""A time in several fields: a date, a time of day, whole numbers of milli-, micro- or nanoseconds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.record_times import DecodedTimes
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.settings.plant_yaml import Settings
from streamad.types import Record
from tests.support.ingest.decoded import block_in

GERMAN = "%d.%m.%Y %H:%M:%S"
MILLIS = {"field": "millis", "unit": "ms"}


def time_of(message: dict[str, Any], fields: Any, **decode: Any) -> int:
    settings = DecodeSettings(fields=FieldSettings(time=fields, values=None), **{"timezone": "UTC", **decode})
    record = Record(0, json.dumps({"stream": "r", "temp": 1, **message}).encode())
    block = block_in(Decoder(settings, [ChannelSettings(name="temp")]), record)
    assert block is not None
    return int(block.times_us[0])


def error_of(message: dict[str, Any], fields: Any, **decode: Any) -> tuple[str, str]:
    with pytest.raises(DecodeError) as caught:
        time_of(message, fields, **decode)
    return caught.value.kind, str(caught.value)


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)),  # noqa: DTZ001 - local times
    st.sampled_from([str, int, float]),
    st.sampled_from([["day", "clock", "ms", "us"], ["us", "day", "ms", "clock"], ["day", "clock", MILLIS, "us"]]),
)
def test_a_split_time_is_the_whole_one(moment: datetime, write: Any, time: Any) -> None:
    ms, us = divmod(moment.microsecond, 1_000)
    split = {"day": f"{moment:%d.%m.%Y}", "clock": f"{moment:%H:%M:%S}"}
    split |= {"ms": write(ms), "millis": write(ms), "us": write(us)}
    expected = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert time_of(split, time, time_format=GERMAN) == expected


def test_time_of_day_is_the_second_of_a_list() -> None:
    message = {"day": "02.03.2026", "clock": "06:00:00"}
    apart = DecodeSettings(
        fields=FieldSettings(time="day", time_of_day="clock", values=None), time_format=GERMAN, timezone="UTC"
    )
    record = Record(0, json.dumps({"stream": "r", "temp": 1, **message}).encode())
    block = block_in(Decoder(apart, [ChannelSettings(name="temp")]), record)
    assert block is not None
    assert int(block.times_us[0]) == time_of(message, ["day", "clock"], time_format=GERMAN)


@pytest.mark.parametrize(
    ("message", "time", "decode", "time_us"),
    [
        ({"ts": 10, "ms": "007"}, ["ts", "ms"], {}, 10_007_000),
        ({"ts": "1970-01-01T00:00:01Z", "ns": 1_500}, ["ts", "ns"], {}, 1_000_002),
        ({"ts": "1970-01-01T00:00:01.200Z", "us": 37}, ["ts", "us"], {}, 1_200_037),
        ({"ts": "1970-01-01T00:00:01.200Z", "ms": 0}, ["ts", "ms"], {}, 1_200_000),
        ({"sec": 3, "ms": 250}, ["sec", "ms"], {"time": "relative", "timezone": None}, 3_250_000),
    ],
)
def test_numbers_fill_in_what_the_time_does_not_show(
    message: dict[str, Any], time: Any, decode: dict[str, Any], time_us: int
) -> None:
    assert time_of(message, time, **decode) == time_us


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"ms": 1_000}, "bad_time", "ms: 1000 ms does not fit between two of the times beside it"),
        ({"ts": 1.2, "ms": 200}, "bad_time", "ms: 200 ms does not fit"),  # the time shows them itself
        ({"ms": -1}, "bad_time", "ms: must be a whole number from 0 on, got -1"),
        ({"ms": 0.5}, "bad_time", "ms: must be a whole number from 0 on, got 0.5"),
        ({"ms": "x"}, "bad_time", "ms: must be a whole number from 0 on, got 'x'"),
        ({"ms": True}, "bad_time", "ms: must be a whole number from 0 on, got true"),
        ({"ms": None}, "missing_field", "ms: is missing"),
        ({"ms": "9" * 5_000}, "bad_time", "ms: must be a whole number from 0 on"),
        ({"ts": [1, 2]}, "wrong_shape", "ts, ms: a time in several fields is for messages of one sample"),
    ],
)
def test_what_does_not_fill_a_second_is_an_error(change: dict[str, Any], kind: str, text: str) -> None:
    found = error_of({"ts": 1, "ms": 5, **change}, ["ts", "ms"])
    assert (found[0], found[1][: len(text)]) == (kind, text)


def test_a_time_before_the_start_takes_no_numbers() -> None:
    assert error_of({"ts": -1, "ms": 5}, ["ts", "ms"], time="relative", timezone=None)[1] == (
        "a time before the start has ms"
    )


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (["date", "time", "millis"], r"a number beside them needs its unit, as in time: \[date, time, {field: millis"),
        ([], "a date and at most a time of day"),
        (["ms"], "a date and at most a time of day"),
        (["a", "a"], "twice"),
        (["a", "ms", MILLIS], "twice"),
        (["a", {"field": "b", "unit": "s"}], r"is no field: write a name, or a list.*units: ms, us, ns"),
        (["a", {"field": "b"}], "is no field"),
        (["record", "ms"], "no field stands beside it"),
        (5, "5 is no field"),
    ],
)
def test_lists_that_say_too_little_are_refused(time: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FieldSettings(time=time)


def test_a_list_and_a_time_of_day_are_refused() -> None:
    with pytest.raises(ValueError, match="leave time_of_day out"):
        FieldSettings(time=("a", "b"), time_of_day="c")
    with pytest.raises(ValueError, match="a time of day is for absolute times"):
        DecodeSettings(time="relative", fields=FieldSettings(time=("a", "b")))


def test_the_sorters_identity_changes_with_what_changes_times_only() -> None:
    def identity(source: str = "x.csv", **decode: Any) -> str:
        content = {"channels": [{"name": "a"}], "source": {"url": source}, "decode": decode}
        return DecodedTimes(Settings(**content)).identity

    before = identity()
    assert not any(key in before for key in ("decimal", "thousands", "row_period"))
    assert identity("x.csv?decimal=,") == before  # as before there was decode.decimal
    assert len({before, identity(decimal=","), identity(thousands=","), identity(fields={"time": ["a", "ms"]})}) == 4
