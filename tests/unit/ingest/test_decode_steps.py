"""Lists of samples with the time of the first one and a step: the same as lists with a time for each."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
NAMES = ("temp", "flow")
CHANNELS = [ChannelSettings(name=name) for name in NAMES]
CELLS = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([None, "2.5", "Bad", {}, [1]]))
UNITS_US = {"ns": 0.001, "us": 1, "ms": 1e3, "s": 1e6, "min": 6e7, "h": 3.6e9}


def decoded(message: Any, fields: dict[str, Any], **decode: Any) -> SampleBlock:
    settings = DecodeSettings(fields=FieldSettings(**fields), **decode)
    own_us = T * 10**6 if settings.fields is not None and settings.fields.is_of_record else None
    block = block_in(Decoder(settings, CHANNELS), Record(3, msgspec.json.encode(message), timestamp_us=own_us))
    assert block is not None
    return block


def error_of(message: Any, fields: dict[str, Any], **decode: Any) -> tuple[str, str]:
    with pytest.raises(DecodeError) as caught:
        decoded(message, fields, **decode)
    return caught.value.kind, str(caught.value)


def assert_same(found: SampleBlock, expected: SampleBlock) -> None:
    assert (found.stream, found.sequence, found.end, found.relative) == (
        expected.stream,
        expected.sequence,
        expected.end,
        expected.relative,
    )
    np.testing.assert_array_equal(found.times_us, expected.times_us)
    np.testing.assert_array_equal(found.values, expected.values)
    assert (found.bad is None) == (expected.bad is None)
    if found.bad is not None and expected.bad is not None:
        np.testing.assert_array_equal(found.bad.codes, expected.bad.codes)
        assert found.bad.first == expected.bad.first


@given(
    cells=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=9),
    form=st.sampled_from(["flat", "object", "rows"]),
    step=st.one_of(st.integers(1, 10**6), st.floats(1, 1e6)),
    unit=st.sampled_from(["us", "ms", "s", "hz", "text", "fixed"]),
    relative=st.booleans(),
    end=st.booleans(),
)
def test_a_step_equals_a_list_of_times(  # noqa: PLR0917 - hypothesis gives them by name
    cells: list[tuple[Any, Any]], form: str, step: float, unit: str, relative: bool, end: bool
) -> None:
    if form == "rows":
        values: dict[str, Any] = {"data": [list(row) for row in cells]}
    else:
        columns = dict(zip(NAMES, map(list, zip(*cells, strict=True)), strict=True))
        values = {"data": columns} if form == "object" else columns
    step_us = {"hz": 1e6 / step, "text": int(step) * 1e3, "fixed": int(step) * 1e3}.get(unit) or step * UNITS_US[unit]
    if not 1 <= step_us * len(cells) <= 1e14:
        return
    setting = {"text": "dt", "fixed": f"{int(step)}ms"}.get(unit) or {"field": "dt", "unit": unit}
    start = 5 if relative else T
    head = {"stream": "r", "sequence": "B", "end": end, **values}
    common = {"values": None if form == "flat" else "data"}
    times = "relative" if relative else "absolute"
    found = decoded(
        {**head, "t0": start, "dt": f"{int(step)} ms" if unit == "text" else step},
        {**common, "start": "t0", "step": setting},
        time=times,
    )
    times_us = [start * 10**6 + round(index * step_us) for index in range(len(cells))]
    listed = {"times" if form == "rows" else "t0": times_us}
    assert_same(found, decoded({**head, **listed}, {**common, "time": "t0"}, time=times, time_unit="us"))


def test_the_start_may_be_a_date_and_the_step_seconds() -> None:
    message = {"asset": "R1", "cycle": "T1", "t0": "2026-03-01T08:15:30Z", "dt": 10.0, "data": {"temp": [1, 2, 3]}}
    fields = {"stream": "asset", "sequence": "cycle", "start": "t0", "step": "dt", "values": "data"}
    assert decoded(message, fields).times_us.tolist() == [T * 10**6 + i * 10**7 for i in range(3)]


def test_the_start_may_be_the_records_own_time() -> None:
    message = {"stream": "r", "temp": [1, 2]}
    found = decoded(message, {"start": "record", "step": "20ms", "values": None})
    assert found.times_us.tolist() == [T * 10**6, T * 10**6 + 20_000]


def test_rates_make_no_error_that_grows() -> None:
    message = {"stream": "r", "t": T, "rate": 104, "temp": [0.0] * 10_401}
    fields = {"start": "t", "step": {"field": "rate", "unit": "hz"}, "values": None}
    times_us = decoded(message, fields).times_us
    assert (times_us[104::104] == T * 10**6 + np.arange(1, 101) * 10**6).all()


def test_messages_of_one_sample_need_no_step() -> None:
    fields = {"start": "t", "step": "dt", "values": None}
    for message in ({"temp": 1.5}, {"temp": [1.5]}, {"temp": [1.5], "dt": 0}):
        assert decoded({"stream": "r", "t": T, **message}, fields).times_us.tolist() == [T * 10**6]


def test_a_quality_of_each_row_counts_beside_a_step() -> None:
    message = {"stream": "r", "t": T, "temp": [1, 2], "q": ["Good", "Bad"]}
    found = decoded(message, {"start": "t", "step": "1s", "values": None}, quality={"field": "q", "good": ["Good"]})
    assert np.isnan(found.values[:, 0]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ({"temp": [1, 2]}, "missing_field", "dt: is missing"),
        ({"temp": [1, 2], "dt": None}, "missing_field", "dt: is missing"),
        ({"temp": [1, 2], "dt": 0}, "bad_time", "dt: must be a time such as 0.1 or 10 ms, got 0"),
        ({"temp": [1, 2], "dt": -1}, "bad_time", "dt: must be a time such as 0.1 or 10 ms, got -1"),
        ({"temp": [1, 2], "dt": "-1 s"}, "bad_time", "dt: '-1 s' is no step from one microsecond on"),
        ({"temp": [1, 2], "dt": 1e-9}, "bad_time", "dt: 1e-09 is no step from one microsecond on"),
        ({"temp": [1, 2], "dt": "soon"}, "bad_time", "dt: must be a time such as 0.1 or 10 ms, got 'soon'"),
        ({"temp": [1, 2], "dt": True}, "bad_time", "dt: must be a time such as 0.1 or 10 ms, got true"),
        ({"temp": [1, 2], "dt": [1]}, "bad_time", "dt: must be a time such as 0.1 or 10 ms, got a list"),
        ({"temp": [1, 2], "dt": 1e300}, "bad_time", "dt: 1e+300 is no step from one microsecond on"),
        ({"temp": [1, 2], "dt": 10**400}, "bad_time", "dt: an integer of more than 40 digits is no step"),
        ({"temp": [1, 2], "dt": 6e9}, "bad_time", "1 steps of 6e+09 s lead beyond the year 2200"),
        ({"temp": [1, 2], "flow": [1], "dt": 1}, "wrong_shape", "flow: holds 1 values for 2 times of temp"),
        ({"temp": [1, 2], "flow": 1, "dt": 1}, "wrong_shape", "temp: is a list, so flow must be one, too, got 1"),
        ({"temp": [], "dt": 1}, "wrong_shape", "temp: an empty list"),
        ({"temp": [1, 2, 3, 4], "dt": 1}, "too_many_samples", "4 samples"),
        ({"temp": [1, 2], "dt": 1, "t": [T, T]}, "wrong_type", "t: must be an RFC 3339 time or a number, got a list"),
        ({"temp": [1, 2], "dt": 1, "t": None}, "missing_field", "t: is missing"),
    ],
)
def test_what_gives_no_times_is_an_error(message: dict[str, Any], kind: str, text: str) -> None:
    fields = {"start": "t", "step": "dt", "values": None}
    found = error_of(json.loads(json.dumps({"stream": "r", "t": T, **message})), fields, max_samples_per_message=3)
    assert (found[0], found[1][: len(text)]) == (kind, text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"start": "t"}, "start and step go together"),
        ({"step": "dt"}, "start and step go together"),
        ({"start": "t", "step": "dt", "time": "ts"}, "leave time out"),
        ({"start": "t", "step": "dt", "time_of_day": "clock"}, "leave time_of_day out"),
        ({"start": "t", "step": "0s"}, "step must be longer than 0"),
        ({"start": "t", "step": {"field": "dt", "unit": "weeks"}}, "hz"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        FieldSettings(**fields)


def test_a_start_is_no_row_and_no_relative_time_of_the_record() -> None:
    fields = FieldSettings(start="t", step="1s")
    with pytest.raises(ValidationError, match=r"leave fields\.start out"):
        DecodeSettings(fields=fields, time="row")
    with pytest.raises(ValidationError, match="time_format is for absolute times"):
        DecodeSettings(fields=FieldSettings(start="record", step="1s"), time_format="unix_ms")
