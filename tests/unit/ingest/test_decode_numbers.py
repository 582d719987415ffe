"""Readings written as text: ``decode.decimal`` and ``decode.thousands`` in every form of mapped messages."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import BAD_REASONS, Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="flow")]
FORMS: dict[str, tuple[FieldSettings, Any]] = {
    "flat": (FieldSettings(time="ts", values=None), lambda v: {"stream": "r", "ts": T, "temp": v, "flow": 1}),
    "object": (FieldSettings(time="ts"), lambda v: {"stream": "r", "ts": T, "values": {"temp": v, "flow": 1}}),
    "rows": (FieldSettings(time="ts"), lambda v: {"stream": "r", "ts": [T], "values": [[v, 1]]}),
    "lists": (FieldSettings(time="ts", values=None), lambda v: {"stream": "r", "ts": [T], "temp": [v], "flow": [1]}),
    "one channel": (
        FieldSettings(time="ts", channel="tag", value="v"),
        lambda v: {"stream": "r", "ts": T, "tag": "temp", "v": v},
    ),
}


def decoded(message: Any, decode: DecodeSettings) -> SampleBlock:
    block = block_in(Decoder(decode, CHANNELS), Record(0, json.dumps(message).encode()))
    assert block is not None
    return block


def reading(value: object, form: str = "flat", **decode: Any) -> float | str:
    """Return the reading, or the text about a bad value."""
    fields, message = FORMS[form]
    block = decoded(message(value), DecodeSettings(fields=fields, **decode))
    if block.bad is None:
        return float(block.values[0, 0])
    assert math.isnan(block.values[0, 0])
    assert BAD_REASONS[block.bad.codes[0, 0]] == "wrong_type"
    return block.bad.first[0, 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("text", "decode", "found"),
    [
        ("1,234.5", {"thousands": ","}, 1234.5),
        ("1.234,5", {"decimal": ",", "thousands": "."}, 1234.5),
        ("20,11", {"decimal": ","}, np.float32(20.11)),
        ("1,001", {}, "must be a number or null, got '1,001'"),
        ("1.780", {"decimal": ","}, "must be a number or null, got '1.780'"),
        ("1,00", {"thousands": ","}, "must be a number or null, got '1,00'"),
        (1.78, {"decimal": ","}, np.float32(1.78)),  # a number is no text
    ],
)
def test_a_number_in_text_is_read_by_its_marks_or_is_a_bad_value(
    form: str, text: object, decode: dict[str, Any], found: object
) -> None:
    assert reading(text, form, **decode) == found


@pytest.mark.parametrize("decode", [{}, {"decimal": ","}, {"thousands": ","}, {"thousands": " "}])
def test_other_words_mean_what_they_meant(decode: dict[str, Any]) -> None:
    for missing in ("", " ", "NaN", "null", "n/a", "-"):
        assert math.isnan(reading(missing, missing=("-",), **decode))  # type: ignore[arg-type]
    assert reading("1_0", **decode) == "must be a number or null, got '1_0'"
    assert reading("Bad", **decode) == "must be a number or null, got 'Bad'"


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_marks_change_nothing_but_the_text(number: float) -> None:
    text = repr(number)
    assert reading(text) == number
    assert reading(text.replace(".", ","), decimal=",") == number


def test_times_in_text_have_the_marks_of_numbers() -> None:
    fields = FieldSettings(time="ts", values=None)
    message = {"stream": "r", "ts": "1.772.352.930,25", "temp": 1, "flow": 1}
    block = decoded(message, DecodeSettings(fields=fields, decimal=",", thousands="."))
    assert block.times_us.tolist() == [T * 1_000_000 + 250_000]


# --- what stands where a number is expected --------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["flat", "object", "one channel"])
def test_an_object_among_the_values_is_a_bad_value(form: str) -> None:
    assert reading({"Name": "I/O Timeout", "Value": 246}, form) == "must be a number or null, got an object"


def test_a_value_inside_what_is_no_object_is_a_bad_value() -> None:
    channels = [ChannelSettings(name="temp")]
    decode = DecodeSettings(fields=FieldSettings(time="ts", channel="tag", value="data.v"))
    message = {"stream": "r", "ts": T, "tag": "temp", "data": "Bad"}
    block = block_in(Decoder(decode, channels), Record(0, json.dumps(message).encode()))
    assert block is not None
    assert block.bad is not None
    assert block.bad.first[0, 1] == "data.v: 'Bad' stands where an object should be"


# --- words that stand for numbers ------------------------------------------------------------------------------------

VALVE = ChannelSettings(name="temp", values={"OPEN": 1, "f": 0, "true": 1, "off": 2.5})


def word(value: object, form: str = "flat", **decode: Any) -> float | str:
    fields, message = FORMS[form]
    settings = DecodeSettings(fields=fields, **decode)
    record = Record(0, json.dumps(message(value)).encode())
    block = block_in(Decoder(settings, [VALVE, CHANNELS[1]]), record)
    assert block is not None
    return float(block.values[0, 0]) if block.bad is None else block.bad.first[0, 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("OPEN", 1),
        (" open ", 1),
        ("F", 0),
        (True, 1),
        ("off", 2.5),
        ("7", 7),
        (False, "must be a number or null, got false"),
        ("ajar", "must be a number or null, got 'ajar'"),
    ],
)
def test_words_are_the_numbers_that_their_channel_names(form: str, value: object, found: object) -> None:
    assert word(value, form) == found


def test_words_are_their_channels_own_and_hold_in_the_own_format() -> None:
    message = {"stream": "r", "time": T, "values": {"temp": "open", "flow": "open"}}
    block = block_in(Decoder(DecodeSettings(), [VALVE, CHANNELS[1]]), Record(0, json.dumps(message).encode()))
    assert block is not None
    assert block.bad is not None
    assert block.values[0, 0] == 1
    assert block.bad.first == {(1, 1): "must be a number or null, got 'open'"}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({True: 1}, "put the word in quotes"),
        ({1: 1}, "put the word in quotes"),
        ({"1.5": 1}, "is read as a number"),
        ({"N/A": 1}, "means a missing value"),
        ({"nan": 1}, "means a missing value"),
        ({"On": 1, "ON": 2}, "stands there twice"),
        ({"on": math.inf}, "must be a finite number"),
        ({"on": "x"}, "must be a finite number"),
        ({"on": True}, "must be a finite number"),
    ],
)
def test_words_that_mean_something_else_are_refused(values: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ChannelSettings(name="temp", values=values)


# --- numbers with their unit -----------------------------------------------------------------------------------------

UNITS = ("bar", "°C", "%", "m³/h", "µS", "e5", "n")


def quantity(value: object, unit: str, form: str = "flat", **decode: Any) -> float | str:
    fields, message = FORMS[form]
    record = Record(0, json.dumps(message(value)).encode())
    channels = [ChannelSettings(name="temp", unit=unit), CHANNELS[1]]
    block = block_in(Decoder(DecodeSettings(fields=fields, **decode), channels), record)
    assert block is not None
    return float(block.values[0, 0]) if block.bad is None else block.bad.first[0, 1]


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(UNITS),
    st.sampled_from(UNITS),
    st.sampled_from(["", " ", "\u00a0", "\u202f  "]),
    st.sampled_from(sorted(FORMS)),
)
def test_a_number_is_read_with_its_channels_unit_and_no_other(
    number: float, unit: str, written: str, between: str, form: str
) -> None:
    text = f"{number!r}{between}{written}"
    found = quantity(text, unit, form)
    if unit == written and (unit, between) != ("e5", ""):  # 1.5e5 is a number
        assert found == number
    elif (written, between) != ("e5", ""):
        assert str(found).startswith("must be a number or null, got ")


@pytest.mark.parametrize(
    ("text", "unit", "decode", "found"),
    [
        ("20,11 °C", "°C", {"decimal": ","}, float(np.float32(20.11))),
        ("1.200,5 bar", "bar", {"decimal": ",", "thousands": "."}, 1200.5),
        ("5 \u03bcS", "\u00b5S", {}, 5.0),  # two signs of micro
        ("1,001 bar", "bar", {}, None),
        ("1 mbar", "bar", {}, None),
        ("1 bar abs", "bar", {}, None),
        ("1_0 bar", "bar", {}, None),
        ("10² bar", "bar", {}, None),
        ("nan bar", "bar", {}, None),
        ("inf bar", "bar", {}, None),
        ("bar", "bar", {}, None),
        ("(1.5)", "bar", {}, None),
        ("1 bar" + " " * 100, "bar", {}, None),
        (["1 bar"], "bar", {}, None),
    ],
)
def test_what_is_no_number_with_the_unit_is_a_bad_value(
    text: object, unit: str, decode: dict[str, Any], found: float | None
) -> None:
    result = quantity(text, unit, **decode)
    assert result == found if found is not None else str(result).startswith("must be a number or null, got ")


def test_the_own_format_has_no_units() -> None:
    message = {"stream": "r", "time": T, "values": {"temp": "1 bar", "flow": 1}}
    channels = [ChannelSettings(name="temp", unit="bar"), CHANNELS[1]]
    block = block_in(Decoder(DecodeSettings(), channels), Record(0, json.dumps(message).encode()))
    assert block is not None
    assert block.bad is not None
