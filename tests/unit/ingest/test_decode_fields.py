"""Foreign messages through ``decode.fields``, and the law that every form of the same samples gives the same data."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import BAD_REASONS, Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
T_US = T * 1_000_000
NOW_US = T_US + 10**12
NAN = float("nan")
CHANNELS = [ChannelSettings(name="temp", field="T1"), ChannelSettings(name="pressure", field="hydraulics.p")]


def decode(
    message: Any, settings: DecodeSettings, channels: list[ChannelSettings] | None = None, **record: Any
) -> SampleBlock | None:
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    return block_in(Decoder(settings, channels or CHANNELS), Record(7, value, **record), NOW_US)


def decoded(message: Any, settings: DecodeSettings, *arguments: Any, **record: Any) -> SampleBlock:
    block = decode(message, settings, *arguments, **record)
    assert block is not None
    return block


def mapped(**fields: Any) -> DecodeSettings:
    return DecodeSettings(fields=FieldSettings(**fields))


def kind_of_error(message: Any, settings: DecodeSettings, **record: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(message, settings, **record)
    assert len(str(caught.value)) < 300
    return caught.value.kind


RENAMED = mapped(stream="header.unit", sequence="batch_id", time="ts", end="done", values="data")
FLAT = mapped(stream="unit", sequence="batch_id", time="ts", end="done", values=None)
STRICT_FLAT = mapped(stream="unit", sequence="batch_id", time="ts", end="done", values=None, ignore_unknown=False)
PER_CHANNEL = mapped(stream="unit", sequence="batch_id", time="ts", end="done", channel="tag", value="v")


def renamed(**changes: Any) -> dict[str, Any]:
    data = {"T1": 81.25, "hydraulics": {"p": 3.5, "unit": "bar"}}
    return {"header": {"unit": "R1"}, "batch_id": 12, "ts": T, "data": data, **changes}


def flat(**changes: Any) -> dict[str, Any]:
    message = {"unit": "R1", "batch_id": 12, "ts": T, "T1": 81.25, "hydraulics": {"p": 3.5}, **changes}
    return {key: value for key, value in message.items() if value is not ...}


def per_channel(**changes: Any) -> dict[str, Any]:
    message = {"unit": "R1", "batch_id": 12, "ts": T, "tag": "T1", "v": 81.25, **changes}
    return {key: value for key, value in message.items() if value is not ...}


@pytest.mark.parametrize(("message", "settings"), [(renamed(), RENAMED), (flat(), FLAT), (flat(), STRICT_FLAT)])
def test_renamed_and_flat_messages(message: dict[str, Any], settings: DecodeSettings) -> None:
    block = decoded(message, settings)
    assert (block.stream, block.sequence, block.end) == ("R1", "12", False)
    assert block.times_us.tolist() == [T_US]
    assert block.values.tolist() == [[81.25, 3.5]]
    assert decoded(message | {"done": True}, settings).end


def test_a_literal_key_with_dots_wins_over_the_path() -> None:
    block = decoded(flat(**{"hydraulics.p": 9.0}), FLAT)
    assert block.values.tolist() == [[81.25, 9.0]]
    block = decoded(renamed(**{"header.unit": "R2"}), RENAMED)
    assert block.stream == "R2"


def test_a_path_through_null_is_missing_through_a_number_is_a_bad_value() -> None:
    np.testing.assert_array_equal(decoded(flat(hydraulics=None), FLAT).values, [[81.25, NAN]])
    np.testing.assert_array_equal(decoded(flat(hydraulics={}), FLAT).values, [[81.25, NAN]])
    block = decoded(flat(hydraulics=3.5), FLAT)
    np.testing.assert_array_equal(block.values, [[81.25, NAN]])
    assert block.bad is not None
    assert block.bad.first == {(1, 1): "hydraulics.p: 3.5 stands where an object should be"}


def test_numbers_and_flags_as_text() -> None:
    block = decoded(flat(ts="1772352930.25", T1="81.25", hydraulics={"p": " 3.5e0 "}, done="TRUE"), FLAT)
    assert block.times_us.tolist() == [T_US + 250_000]
    assert block.values.tolist() == [[81.25, 3.5]]
    assert block.end
    for text in ("", " ", "NaN", "null", "N/A"):
        np.testing.assert_array_equal(decoded(flat(T1=text), FLAT).values, [[NAN, 3.5]])
    for done in ("false", "0", "", 0, 0.0, None):
        assert not decoded(flat(done=done), FLAT).end
    for done in ("1", "yes", 1, 1.0):
        assert decoded(flat(done=done), FLAT).end


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("wrong_type", ["81,25", "1_000", "warm", "0x10", "9" * 65, "--1"]),
        ("infinite", ["inf", "-Infinity", "1e39", "1e999"]),
    ],
)
def test_text_that_is_no_finite_number(kind: str, texts: list[str]) -> None:
    for text in texts:
        block = decoded(flat(T1=text), FLAT)
        np.testing.assert_array_equal(block.values, [[NAN, 3.5]])
        assert block.bad is not None
        assert [BAD_REASONS[code] for code in block.bad.codes.flat] == [kind, ""]


def test_empty_texts_name_no_stream_and_no_sequence() -> None:
    assert decoded(flat(batch_id=""), FLAT).sequence is None
    assert decoded(flat(batch_id=None), FLAT).sequence is None
    assert kind_of_error(flat(unit=""), FLAT) == "missing_field"
    with_default = DecodeSettings(fields=FLAT.fields, default_stream="line")
    for unit in ("", None, ...):
        assert decoded(flat(unit=unit), with_default).stream == "line"
    assert decoded(flat(), with_default).stream == "R1"


def test_unknown_fields_of_flat_messages() -> None:
    message = flat(quality="good", operator={"name": "A"})
    assert decoded(message, FLAT).values.tolist() == [[81.25, 3.5]]
    assert kind_of_error(message, STRICT_FLAT) == "unknown_channel"


def test_flat_message_without_our_channels_is_nothing_unless_it_ends_the_sequence() -> None:
    nothing = flat(T1=..., hydraulics=..., other=1)
    assert decode(nothing, FLAT) is None
    block = decoded(nothing | {"done": True}, FLAT)
    assert block.end
    assert np.isnan(block.values).all()
    assert decode([nothing, nothing], FLAT) is None


def test_unknown_channels_of_an_object_of_values_are_refused() -> None:
    assert kind_of_error(renamed(data={"T1": 1, "T2": 2}), RENAMED) == "unknown_channel"


def test_one_channel_per_message() -> None:
    np.testing.assert_array_equal(decoded(per_channel(), PER_CHANNEL).values, [[81.25, NAN]])
    np.testing.assert_array_equal(decoded(per_channel(tag="hydraulics.p"), PER_CHANNEL).values, [[NAN, 81.25]])
    np.testing.assert_array_equal(decoded(per_channel(v=None), PER_CHANNEL).values, [[NAN, NAN]])
    np.testing.assert_array_equal(decoded(per_channel(v="7"), PER_CHANNEL).values, [[7, NAN]])


def test_one_channel_per_message_of_no_concern() -> None:
    other = per_channel(tag="T2", v="any")
    assert decode(other, PER_CHANNEL) is None
    assert decoded(other | {"done": True}, PER_CHANNEL).end
    strict = mapped(stream="unit", sequence="batch_id", time="ts", channel="tag", value="v", ignore_unknown=False)
    assert kind_of_error(other, strict) == "unknown_channel"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"tag": None}, "missing_field"),
        ({"tag": ["T1"]}, "wrong_type"),
        ({"tag": ""}, "bad_id"),
        ({"v": ...}, "missing_field"),
        ({"ts": None}, "missing_field"),
        ({"unit": None}, "missing_field"),
    ],
)
def test_bad_messages_of_one_channel(changes: dict[str, Any], kind: str) -> None:
    assert kind_of_error(per_channel(**changes), PER_CHANNEL) == kind


def test_a_list_holds_several_samples_of_one_sequence() -> None:
    messages = [per_channel(ts=T + 1), per_channel(tag="T9"), per_channel(tag="hydraulics.p", ts=T, v=2)]
    block = decoded(messages, PER_CHANNEL)
    assert block.times_us.tolist() == [T_US, T_US + 1_000_000]
    np.testing.assert_array_equal(block.values, [[NAN, 2], [81.25, NAN]])
    assert block.indexes is not None
    assert block.indexes.tolist() == [2, 0]
    assert kind_of_error([per_channel(), per_channel(batch_id=13)], PER_CHANNEL) == "mixed_message"


def test_end_in_a_list_belongs_to_its_last_sample_in_time() -> None:
    ended = per_channel(ts=T + 1, done=True)
    assert decoded([ended, per_channel(ts=T)], PER_CHANNEL).end
    assert decoded([ended, per_channel(ts=T + 1, tag="hydraulics.p")], PER_CHANNEL).end
    assert kind_of_error([ended, per_channel(ts=T + 2)], PER_CHANNEL) == "mixed_message"


def test_stream_from_the_records_key() -> None:
    settings = mapped(stream="key")
    channels = [ChannelSettings(name="temp")]
    single = {"key": "no", "stream": "no", "sequence": "B1", "time": T, "values": {"temp": 1}}
    assert decoded(single, settings, channels, key="Süd".encode()).stream == "Süd"
    chunk = {"sequence": "B1", "times": [T], "values": [[1]]}
    assert decoded(chunk, settings, channels, key=b"R1").stream == "R1"
    for key, kind in ((b"\xff", "bad_id"), (b"", "missing_field"), (None, "missing_field"), (b"a\0", "bad_id")):
        with pytest.raises(DecodeError) as caught:
            decode(single, settings, channels, key=key)
        assert caught.value.kind == kind


def test_time_from_the_record() -> None:
    settings = mapped(stream="unit", time="record", values=None, sequence="batch_id")
    assert decoded(flat(ts="whenever", time=0), settings, timestamp_us=T_US + 3).times_us.tolist() == [T_US + 3]
    assert kind_of_error(flat(), settings) == "missing_field"
    assert kind_of_error(flat(), settings, timestamp_us=-1) == "bad_time"


def test_messages_without_sequence_and_end_fields() -> None:
    settings = mapped(stream="unit", time="ts", values=None, sequence=None, end=None)
    block = decoded(flat(done=True), settings)
    assert block.sequence is None
    assert not block.end


def test_braces_in_field_names_do_no_harm_to_error_texts() -> None:
    channels = [ChannelSettings(name="temp", field="{0[x]}")]
    chunk = {"stream": "r", "times": ["{}"], "{v}": [[1e39]]}
    with pytest.raises(DecodeError, match=r"times\[0\]: '\{\}' is neither"):
        decode(chunk, mapped(values="{v}"), channels)


def test_long_field_names_leave_errors_short() -> None:
    name = "f" * 2_000
    assert kind_of_error({name: "soon", "stream": "r", "values": {}}, mapped(time=name)) == "bad_time"


# --- the law --------------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "c"]
numbers = st.none() | st.floats(-3e38, 3e38) | st.integers(-(10**30), 10**30)
rows = st.lists(st.tuples(st.integers(T_US - 10**9, T_US + 10**9), st.tuples(numbers, numbers, numbers)), min_size=1)


def as_text(value: float | None) -> str:
    return "" if value is None else repr(value)


def rfc3339(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()


@given(samples=rows, end=st.booleans(), times=st.sampled_from(["s", "us", "rfc3339"]))
def test_every_form_of_the_same_samples_gives_the_same_data(
    samples: list[tuple[int, tuple[float | None, ...]]], end: bool, times: str
) -> None:
    unit: Any = "us" if times == "us" else "s"
    written = [{"s": us / 1e6, "us": us, "rfc3339": rfc3339(us)}[times] for us, _ in samples]
    head = {"stream": "r", "sequence": "b"}
    chunk = {**head, "times": written, "values": [list(row) for _, row in samples], "end": end}
    reversed_rows = [list(row[::-1]) for _, row in samples]
    reordered = {**chunk, "channels": NAMES[::-1], "values": reversed_rows}
    latest = max(us for us, _ in samples)
    singles: list[Any] = [
        {**head, "time": time, "values": dict(zip(NAMES, row, strict=True)), "end": end and us == latest}
        for (us, row), time in zip(samples, written, strict=True)
    ]
    flats = [{**message, **message["values"]} for message in singles]
    texts = [{**message, **{name: as_text(message[name]) for name in NAMES}} for message in flats]
    longs = [{**single, "tag": name, "v": single["values"][name]} for single in singles for name in NAMES]
    channels = [ChannelSettings(name=name) for name in NAMES]

    own = DecodeSettings(time_unit=unit)
    general = DecodeSettings(time_unit=unit, fields=FieldSettings())
    by_field = DecodeSettings(time_unit=unit, fields=FieldSettings(values=None))
    per_message = DecodeSettings(time_unit=unit, fields=FieldSettings(channel="tag", value="v"))

    order = np.argsort([us for us, _ in samples], kind="stable")
    expected_us = [samples[i][0] for i in order]
    with np.errstate(over="ignore"):
        expected = np.array([[math.nan if v is None else v for v in samples[i][1]] for i in order], dtype=np.float32)
    for settings, message in [
        *((own, chunk), (own, reordered), (own, singles), (general, chunk), (general, reordered), (general, singles)),
        *((by_field, flats), (by_field, texts)),
    ]:
        for value in (json.dumps(message).encode(), msgspec.msgpack.encode(to_msgpack(message))):
            block = decoded(value, settings, channels)
            assert (block.stream, block.sequence, block.end) == ("r", "b", end)
            assert block.times_us.tolist() == expected_us
            np.testing.assert_array_equal(block.values, expected)
            assert (block.indexes.tolist() if block.indexes is not None else list(range(len(order)))) == order.tolist()

    blocks = [decoded(message, own, channels) for message in singles]
    np.testing.assert_array_equal(np.concatenate([blocks[i].values for i in order]), expected)
    assert [int(blocks[i].times_us[0]) for i in order] == expected_us
    merged = decoded(longs, per_message, channels)
    assert merged.times_us.tolist() == [us for us in expected_us for _ in NAMES]
    assert merged.end == end


def to_msgpack(content: Any) -> Any:
    """Return ``content`` with integers that msgpack cannot hold as floats (JSON readers make the same of them)."""
    if isinstance(content, dict):
        return {key: to_msgpack(value) for key, value in content.items()}
    if isinstance(content, list):
        return [to_msgpack(value) for value in content]
    return float(content) if isinstance(content, int) and not -(2**63) <= content < 2**64 else content
