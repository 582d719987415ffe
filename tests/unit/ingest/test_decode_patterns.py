"""One text that names stream, channel and sequence: the same as a field for each of them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings, PatternSettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="flow", field="F-1.PV")]
PATTERNS = (
    "{stream}/{sequence}/{channel}",
    "P.{stream}::{sequence}.{channel}",
    "{}/{stream}/{sequence}:{channel}",
    "{channel}|{sequence}|{stream}",
)
TEXTS = st.text("abRT01-_ ä", min_size=1, max_size=6)


def decoded(message: Any, fields: dict[str, Any], key: bytes | None = None, **decode: Any) -> SampleBlock | None:
    settings = DecodeSettings(fields=FieldSettings(**fields), **decode)
    return block_in(Decoder(settings, CHANNELS), Record(3, msgspec.json.encode(message), key=key))


def error_of(message: Any, fields: dict[str, Any], key: bytes | None = None) -> tuple[str, str]:
    with pytest.raises(DecodeError) as caught:
        decoded(message, fields, key)
    return caught.value.kind, str(caught.value)


@given(
    stream=TEXTS,
    sequence=TEXTS,
    channel=st.sampled_from(["temp", "F-1.PV", "other"]),
    parts=st.sampled_from(PATTERNS),
    value=st.sampled_from([1.5, "2.5", None, "Bad"]),
    place=st.sampled_from(["field", "inner", "key"]),
)
def test_a_pattern_equals_a_field_for_each_part(  # noqa: PLR0917 - hypothesis gives them by name
    stream: str, sequence: str, channel: str, parts: str, value: Any, place: str
) -> None:
    text = parts.replace("{}", "Acme").format(stream=stream, sequence=sequence, channel=channel)
    field = {"field": "id", "inner": "head.id", "key": "key"}[place]
    message = {"ts": T, "v": value, **({"id": text} if place == "field" else {"head": {"id": text}})}
    pattern = PatternSettings(field=field, parts=parts)
    found = decoded(message, {"time": "ts", "value": "v", "pattern": pattern}, key=text.encode())
    plain = {"ts": T, "v": value, "stream": stream, "sequence": sequence, "channel": channel}
    expected = decoded(plain, {"time": "ts", "value": "v", "channel": "channel"})
    assert (found is None) == (expected is None) == (channel == "other")
    if found is not None and expected is not None:
        assert (found.stream, found.sequence) == (expected.stream, expected.sequence)
        np.testing.assert_array_equal(found.values, expected.values)
        assert (found.bad is None) == (expected.bad is None)


def test_samples_chunks_and_lists_may_have_a_pattern() -> None:
    fields = {"time": "ts", "pattern": {"field": "key", "parts": "{stream}.{sequence}"}}
    for message, more in (
        ({"ts": T, "temp": 1.5}, {"values": None}),
        ({"ts": [T], "temp": [1.5]}, {"values": None}),
        ({"ts": [T], "values": [[1.5, None]]}, {}),
        ([{"ts": T, "temp": 1.5}], {"values": None}),
        ({"ts": T, "values": {"temp": 1.5}}, {}),
    ):
        found = decoded(message, {**fields, **more}, key=b"R1.B7")
        assert found is not None
        assert (found.stream, found.sequence, found.values[0, 0]) == ("R1", "B7", 1.5)


def test_each_element_of_a_list_has_its_own_name() -> None:
    readings = [{"id": "Plant.R1.temp", "v": 1}, {"id": "Plant.R2.F-1.PV", "v": 2}, {"id": "other", "v": 3}]
    settings = DecodeSettings(fields=FieldSettings(**FIELDS, each="values"))
    message = msgspec.json.encode({"ts": T, "sequence": "B", "values": readings})
    found = Decoder(settings, CHANNELS).decode(Record(0, message), None)
    assert not found.unreadable
    assert [(block.stream, block.sequence) for block in found.blocks] == [("R1", "B"), ("R2", "B")]
    assert [block.values[0, at] for at, block in enumerate(found.blocks)] == [1, 2]
    strict = DecodeSettings(fields=FieldSettings(**STRICT, each="values"))
    assert [str(error) for error in Decoder(strict, CHANNELS).decode(Record(0, message), None).unreadable] == [
        "values[2]: id: 'other' is not of the pattern 'Plant.{stream}.{channel}'"
    ]


def test_what_a_pattern_does_not_name_is_in_its_field() -> None:
    fields = {"stream": "unit", "time": "ts", "value": "v", "pattern": {"field": "id", "parts": "Plant.{channel}"}}
    found = decoded({"unit": "R1", "sequence": "B", "ts": T, "id": "Plant.F-1.PV", "v": 1}, fields)
    assert found is not None
    assert (found.stream, found.sequence, found.values[0, 1]) == ("R1", "B", 1)


FIELDS: dict[str, Any] = {"time": "ts", "value": "v", "pattern": {"field": "id", "parts": "Plant.{stream}.{channel}"}}
STRICT = {**FIELDS, "ignore_unknown": False}


@pytest.mark.parametrize("text", ["Plant.R1", "plant.R1.temp", "Plant..temp", "Plant.R1.", "xPlant.R1.temp", "Plant"])
def test_a_text_with_other_parts_is_skipped_or_refused(text: str) -> None:
    message = {"ts": T, "id": text, "v": 1}
    assert decoded(message, FIELDS) is None
    kind, error = error_of(message, STRICT)
    assert (kind, error) == ("unknown_channel", f"id: '{text}' is not of the pattern 'Plant.{{stream}}.{{channel}}'")


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"id": None}, "missing_field", "id: is missing"),
        ({"id": ""}, "missing_field", "id: is missing"),
        ({"id": ["x"]}, "wrong_type", "id: must be text or a whole number, got a list"),
        ({"id": "x" * 300}, "bad_id", "id: is longer than 256 characters"),
        ({"id": "Plant.R\n1.temp"}, "bad_id", "id: holds control characters"),
        ({"id": "Plant.R1.temp", "v": None, "ts": "?"}, "bad_time", "ts: '?'"),
    ],
)
def test_what_names_nothing_is_an_error(change: dict[str, Any], kind: str, text: str) -> None:
    for fields in (FIELDS, STRICT):
        found = error_of({"ts": T, "v": 1, **change}, fields)
        assert (found[0], found[1][: len(text)]) == (kind, text)


def test_a_key_that_is_no_text_is_an_error() -> None:
    fields = {"time": "ts", "values": None, "pattern": {"field": "key", "parts": "a.{stream}"}}
    assert error_of({"ts": T, "temp": 1}, fields, key=b"\xff") == ("bad_id", "the record's key is not UTF-8 text")
    assert error_of({"ts": T, "temp": 1}, fields) == ("missing_field", "key: is missing")


@pytest.mark.parametrize("field", ["topic", "header:source"])
def test_the_name_may_be_what_the_source_tells_of_the_record(field: str) -> None:
    fields = FieldSettings(time="ts", values=None, pattern=PatternSettings(field=field, parts="plant.{stream}"))
    decode = DecodeSettings(fields=fields)
    assert decode.label == field
    message = msgspec.json.encode({"ts": T, "temp": 1})
    found = block_in(Decoder(decode, CHANNELS), Record(0, message, label="plant.R1"))
    assert found is not None
    assert found.stream == "R1"
    bridged = msgspec.json.encode({"ts": T, "temp": 1, field: "plant.R2"})
    for label in ("bridge", None):  # MQTT names that a bridge or mosquitto_sub writes into the message
        found = block_in(Decoder(decode, CHANNELS), Record(0, bridged, label=label))
        assert found is not None
        assert found.stream == "R2"
    with pytest.raises(DecodeError, match=f"{field}: is missing"):
        Decoder(decode, CHANNELS).decode(Record(0, message), None)


def test_other_patterns_ask_the_source_for_nothing() -> None:
    for field in ("id", "key", "head.topic"):
        fields = FieldSettings(pattern=PatternSettings(field=field, parts="plant.{stream}"))
        assert DecodeSettings(fields=fields).label is None
    assert DecodeSettings().label is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"pattern": {"field": "id", "parts": "Plant"}}, "must name"),
        ({"pattern": {"field": "id", "parts": "{}.x"}}, "must name"),
        ({"pattern": {"field": "id", "parts": "{stream}.{stream}"}}, "each at most once"),
        ({"pattern": {"field": "id", "parts": "{steam}.x"}}, r"\{steam\} is no part"),
        ({"pattern": {"field": "id", "parts": "{stream}{channel}"}}, "must stand between"),
        ({"pattern": {"field": "id", "parts": "{stream}.{"}}, "no other brace"),
        ({"pattern": {"field": "id", "parts": "{stream}.{channel}"}}, "channel and value go together"),
        ({**FIELDS, "stream": "unit"}, r"the pattern names the stream: leave fields\.stream out"),
        ({**FIELDS, "channel": "tag"}, r"the pattern names the channel: leave fields\.channel out"),
        ({"pattern": {"field": "id", "parts": "{stream}"}, "value": "v"}, "channel and value go together"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        FieldSettings(**fields)


def test_ids_of_files_and_of_a_pattern_contradict_each_other() -> None:
    fields = FieldSettings(pattern=PatternSettings(field="id", parts="{sequence}.x"))
    with pytest.raises(ValidationError, match="leave one of them out"):
        DecodeSettings(fields=fields, sequence_from="file")


@pytest.mark.parametrize(("payload", "value"), [(b"23.5", 23.5), (b"-1e3", -1000.0), (b'"7.5"', 7.5)])
def test_a_bare_reading_has_its_names_from_the_header(payload: bytes, value: float) -> None:
    pattern = {"field": "header:mqtt_topic", "parts": "plant/{stream}/{channel}"}
    settings = DecodeSettings(fields=FieldSettings(time="record", value="value", pattern=PatternSettings(**pattern)))
    found = block_in(Decoder(settings, CHANNELS), Record(3, payload, T * 1_000_000, b"R1", label="plant/R1/temp"))
    assert found is not None
    assert (found.stream, found.values[0, 0], found.times_us[0]) == ("R1", value, T * 1_000_000)


@pytest.mark.parametrize(
    "fields", [{"channel": "channel", "value": "value"}, {"pattern": {"field": "key", "parts": "{stream}"}}]
)
def test_a_bare_reading_without_a_name_is_no_message(fields: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="must be an object"):
        decoded(23.5, {"time": "record", **fields}, b"R1")
