"""Good messages give the right samples, bad ones the right kind of error, and every form of a sample the same data."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import ConfigError, DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_own import OwnReader
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import DecodeErrorKind
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="pressure")]
T = 1_772_352_930  # 2026-03-01T08:15:30Z
T_US = T * 1_000_000
NOW_US = T_US + 60_000_000
NAN = float("nan")


def decode(
    message: Any,
    settings: DecodeSettings | None = None,
    channels: list[ChannelSettings] | None = None,
    *,
    key: bytes | None = None,
    timestamp_us: int | None = None,
    native: bool = False,
) -> SampleBlock | None:
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    record = Record(7, value, timestamp_us=timestamp_us, key=key, native=native)
    return block_in(Decoder(settings or DecodeSettings(), channels or CHANNELS), record, NOW_US)


def decoded(*arguments: Any, **options: Any) -> SampleBlock:
    block = decode(*arguments, **options)
    assert block is not None
    return block


def kind_of_error(*arguments: Any, **options: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(*arguments, **options)
    return caught.value.kind


def single(**changes: Any) -> dict[str, Any]:
    message = {"stream": "r1", "sequence": "B1", "time": T, "values": {"temp": 81.25, "pressure": 3.5}, **changes}
    return {key: value for key, value in message.items() if value is not ...}


def chunk(**changes: Any) -> dict[str, Any]:
    message = {"stream": "r1", "sequence": "B1", "times": [T, T + 1], "values": [[1, 2], [3, 4]], **changes}
    return {key: value for key, value in message.items() if value is not ...}


def assert_same(left: SampleBlock, right: SampleBlock) -> None:
    assert (left.stream, left.sequence, left.end) == (right.stream, right.sequence, right.end)
    np.testing.assert_array_equal(left.times_us, right.times_us)
    np.testing.assert_array_equal(left.values, right.values)


# --- the own format -------------------------------------------------------------------------------------------------


def test_single_sample() -> None:
    block = decoded(single())
    assert (block.stream, block.sequence, block.offset, block.end) == ("r1", "B1", 7, False)
    assert block.times_us.tolist() == [T_US]
    assert block.values.tolist() == [[81.25, 3.5]]
    assert block.indexes is None


def test_channels_that_a_sample_does_not_carry_are_missing() -> None:
    np.testing.assert_array_equal(decoded(single(values={"pressure": 2})).values, [[NAN, 2]])
    np.testing.assert_array_equal(decoded(single(values={})).values, [[NAN, NAN]])
    np.testing.assert_array_equal(decoded(single(values={"temp": None, "pressure": 2})).values, [[NAN, 2]])
    np.testing.assert_array_equal(decoded(chunk(values=[[None, 2], [3, None]])).values, [[NAN, 2], [3, NAN]])


@pytest.mark.parametrize(("n_samples"), [1, 2])
def test_chunk_that_names_its_columns(n_samples: int) -> None:
    times = [T, T + 1][:n_samples]
    reordered = decoded(chunk(times=times, channels=["pressure", "temp"], values=[[1, 2], [3, 4]][:n_samples]))
    np.testing.assert_array_equal(reordered.values, [[2, 1], [4, 3]][:n_samples])
    part = decoded(chunk(times=times, channels=["pressure"], values=[[1], [2]][:n_samples]))
    np.testing.assert_array_equal(part.values, [[NAN, 1], [NAN, 2]][:n_samples])


def test_many_equal_times_keep_their_order() -> None:
    n_samples = 500
    block = decoded(chunk(times=[T + 1, T] * n_samples, values=[[i, i] for i in range(2 * n_samples)]))
    assert block.values[:, 0].tolist() == [*range(1, 2 * n_samples, 2), *range(0, 2 * n_samples, 2)]


def test_end_marker_without_values_is_one_missing_sample() -> None:
    for message in (single(values=..., end=True), single(values=None, end=True), single(values={}, end=True)):
        block = decoded(message)
        assert block.end
        assert block.times_us.tolist() == [T_US]
        assert np.isnan(block.values).all()


def test_ids_may_be_integers_or_missing() -> None:
    block = decoded(single(stream=12, sequence=-7))
    assert (block.stream, block.sequence) == ("12", "-7")
    block = decoded(single(stream=12.0, sequence=-7.0))
    assert (block.stream, block.sequence) == ("12", "-7")
    assert decoded(single(sequence=...)).sequence is None
    assert decoded(single(sequence=None)).sequence is None
    assert decoded(single(stream=...), DecodeSettings(default_stream="line 1")).stream == "line 1"
    assert decoded(single(stream="s" * 256)).stream == "s" * 256
    assert decoded(single(stream="Kessel Süd 3\u00a0b")).stream == "Kessel Süd 3\u00a0b"


def test_unknown_top_level_keys_are_ignored() -> None:
    assert_same(decoded(single(site={"a": [1, {}]}, quality=1e400, channels=5)), decoded(single()))


def test_white_space_and_byte_order_mark_before_json() -> None:
    text = json.dumps(single()).encode()
    for value in (b" \r\n\t" + text, b"\xef\xbb\xbf" + text, text + b"\n"):
        assert_same(decoded(value), decoded(single()))
        assert_same(decoded(value, DecodeSettings(format="json")), decoded(single()))


def test_nan_literals_are_missing_values() -> None:
    block = decoded(b'{"stream":"r1","times":[5,6],"values":[[NaN,1.5],[2,null]]}')
    np.testing.assert_array_equal(block.values, [[NAN, 1.5], [2, NAN]])
    np.testing.assert_array_equal(decoded(single(values={"temp": NAN})).values, [[NAN, NAN]])


def test_wire_formats() -> None:
    packed, text = msgspec.msgpack.encode(single()), json.dumps(single()).encode()
    expected = decoded(single())
    assert_same(decoded(packed), expected)
    assert_same(decoded(packed, DecodeSettings(format="msgpack")), expected)
    for value, wire in ((packed, "json"), (text, "msgpack")):
        assert kind_of_error(value, DecodeSettings(format=wire)) == "malformed"


def test_msgpack_under_the_format_json_names_the_setting_that_reads_it() -> None:
    packed = msgspec.msgpack.encode(single())
    with pytest.raises(DecodeError, match=r"not JSON: begins like msgpack.*decode.format auto"):
        decoded(packed, DecodeSettings(format="json"))
    assert_same(decoded(packed, DecodeSettings(format="auto")), decoded(single()))


def test_native_records_are_our_own_msgpack_under_any_decode_setting() -> None:
    settings = DecodeSettings(
        format="json", time="relative", time_unit="ms", fields=FieldSettings(stream="unit", values=None)
    )
    assert_same(decoded(msgspec.msgpack.encode(chunk()), settings, native=True), decoded(chunk()))
    with pytest.raises(DecodeError):
        decode(single(), settings, native=True)
    texts = decoded(msgspec.msgpack.encode(chunk(values=[["1", 2], [3, 4]])), settings, native=True)
    np.testing.assert_array_equal(texts.values, [[NAN, 2], [3, 4]])


PART = chunk(channels=["temp"], values=[[1], [None]])


@pytest.mark.parametrize("message", [single(), single(values={"temp": None}), chunk(end=True), PART])
def test_regular_messages_take_the_fast_way(message: dict[str, Any]) -> None:
    reader = OwnReader(CHANNELS, TimeReader("s", relative=False), max_samples=2)
    assert reader.read(json.dumps(message).encode(), "json") is not None
    assert reader.read(msgspec.msgpack.encode(message), "msgpack") is not None


def test_decoded_arrays_can_be_written_to() -> None:
    block = decoded(single())
    block.values[0, 0] = 1
    block.times_us[0] = 1


# --- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "unit", "expected_us"),
    [
        (T, "s", T_US),
        (T + 0.25, "s", T_US + 250_000),
        (1772352930.1234565, "s", 1772352930123456),  # the nearest double is ...930.1234564781
        (0, "s", 0),
        (0.0000004, "s", 0),
        (-0.0000004, "s", 0),
        (T * 1_000 + 1, "ms", T_US + 1_000),
        (T * 1_000 + 0.5, "ms", T_US + 500),
        (T_US + 1, "us", T_US + 1),
        (T_US * 1_000 + 1_499, "ns", T_US + 1),
        (T_US * 1_000 + 1_500, "ns", T_US + 2),
        ("1772352930.25", "s", T_US + 250_000),
        (" 1772352930 ", "s", T_US),
        ("1772352930000000001000", "ns", None),
        ("1772352930000001000", "ns", T_US + 1),
        ("2026-03-01T08:15:30.250Z", "ms", T_US + 250_000),
        ("2026-03-01T09:15:30+01:00", "s", T_US),
        ("2026-03-01 08:15:30z", "s", T_US),
        ("2026-03-01T08:15:30.123456789Z", "s", T_US + 123_457),
        ("1970-01-01T00:00:00Z", "s", 0),
    ],
)
def test_times_become_exact_microseconds_in_every_form(time: Any, unit: Any, expected_us: int | None) -> None:
    settings = DecodeSettings(time_unit=unit)
    chunked = chunk(times=[time, time])
    list_form = [single(time=time), single(time=time)]
    for message in (single(time=time), chunked, list_form):
        for value in (json.dumps(message).encode(), msgspec.msgpack.encode(message)):
            if expected_us is None:
                with pytest.raises(DecodeError):
                    decode(value, settings)
            else:
                assert set(decoded(value, settings).times_us.tolist()) == {expected_us}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(data=st.data())
def test_chunked_times_equal_single_times(unit: Any, data: st.DataObject) -> None:
    latest = {"s": T, "ms": T * 10**3, "us": T * 10**6, "ns": T * 10**9}[unit]
    times = data.draw(st.lists(st.integers(0, latest) | st.floats(0, float(latest)), min_size=1, max_size=5))
    settings = DecodeSettings(time_unit=unit)
    chunked = decoded(chunk(times=times, values=[[1, 2]] * len(times)), settings).times_us.tolist()
    assert chunked == sorted(int(decoded(single(time=time), settings).times_us[0]) for time in times)


def test_msgpack_timestamps_are_times() -> None:
    time = msgspec.convert("2026-03-01T08:15:30.25Z", datetime)
    assert decoded(msgspec.msgpack.encode(single(time=time))).times_us.tolist() == [T_US + 250_000]
    assert decoded(msgspec.msgpack.encode(chunk(times=[time, time]))).times_us.tolist() == [T_US + 250_000] * 2


@pytest.mark.parametrize("own_us", [-1, 7_258_118_400_000_001, 1 << 62])
def test_relative_times_need_a_record_time_within_the_calendar(own_us: int) -> None:
    settings = DecodeSettings(time="relative")
    with pytest.raises(DecodeError, match="the record's own time lies before 1970 or after 2200") as caught:
        decode(single(time=1), settings, timestamp_us=own_us)
    assert caught.value.kind == "bad_time"
    assert decoded(single(time=1), settings, timestamp_us=7_258_118_400_000_000).relative


def test_relative_times_are_offsets() -> None:
    settings = DecodeSettings(time="relative")
    assert decoded(chunk(times=[0, 1.5]), settings).times_us.tolist() == [0, 1_500_000]
    assert decoded(single(time="2.5"), settings).times_us.tolist() == [2_500_000]
    assert decoded(single(time=10**9), settings, timestamp_us=0).times_us.tolist() == [10**15]  # no skew of offsets
    assert decoded(chunk(times=[-1, 1]), settings).times_us.tolist() == [-1_000_000, 1_000_000]  # before a trigger
    for time in (-(10**10), "2026-03-01T08:15:30Z"):
        assert kind_of_error(single(time=time), settings) == "bad_time"


@pytest.mark.parametrize(("ahead_us", "fine"), [(-1, True), (0, True), (1, False)])
def test_clock_skew_at_its_limit(ahead_us: int, fine: bool) -> None:
    settings = DecodeSettings(max_clock_skew="10s", time_unit="us")  # type: ignore[arg-type]
    time = NOW_US + 10_000_000 + ahead_us
    for message in (single(time=time), chunk(times=[time, T_US])):
        for timestamp_us in (NOW_US, None):
            if fine:
                decoded(message, settings, timestamp_us=timestamp_us)
                continue
            assert kind_of_error(message, settings, timestamp_us=timestamp_us) == "clock_skew"


def test_clock_skew_counts_from_the_records_own_time() -> None:
    assert decode(single(), timestamp_us=T_US) is not None
    assert kind_of_error(single(), timestamp_us=T_US - 3_600_000_001) == "clock_skew"


# --- what is unreadable ---------------------------------------------------------------------------------------------

BAD: list[tuple[str, Any, str]] = [
    (
        "schema_registry",
        b"\0\0\0\1\0\x02r1\x02",
        "0x00, schema id 256; Avro or Protobuf): set decode.registry",
    ),
    ("schema_registry", b'\0\0\0\0\x07{"stream":"r1"}', "schema id 7; JSON Schema"),
    ("schema_registry", b"\3\0" + b"u" * 16 + b"\x02r1", "AWS Glue Schema Registry serializer (0x03)"),
    ("malformed", b"\0\0\0\0\x07", "not JSON"),
    ("malformed", b"\0\0\0\0\0{}", "not JSON"),  # ids are from 1 on
    ("malformed", b"\0\xff\0\0\0{}", "not JSON"),
    ("malformed", b"\3\0" + b"u" * 16, "not JSON"),
    ("malformed", b"\x00\x01", "not JSON"),
    ("malformed", b"hello", "not JSON"),
    ("malformed", b'{"stream":"r1"', "truncated"),
    ("malformed", b'{"stream":"r1"} {}', "trailing"),
    ("malformed", b'{"stream":"\xff"}', "UTF-8"),
    ("malformed", b'{"x":' + b"[" * 100_000, "nested too deeply"),
    ("malformed", b'{"x":NaN,"y":' + b"[" * 100_000, "nested too deeply"),
    ("malformed", b"\x81\xa1x" + b"\x91" * 100_000, "nested too deeply"),
    ("malformed", b"\xdf\xff\xff\xff\xff", "not msgpack"),
    ("malformed", b"\x81\x81\x01\x01\x02", "not msgpack"),
    ("malformed", b'{"stream":"\\ud800","time":1,"values":{}}', "not JSON"),
    ("bad_id", b'{"stream":"\\ud800","time":1,"values":{"temp":NaN}}', "control"),
    ("bad_time", b'{"stream":"r","time":"\\ud800","values":{"temp":NaN}}', "neither an RFC 3339 time"),
    ("wrong_type", 5, "must be an object"),
    ("wrong_type", "x", "must be an object"),
    ("wrong_type", None, "must be an object"),
    ("wrong_type", b"\x91\xc4\x01a", "[0]: must be an object"),
    ("wrong_shape", [], "empty list"),
    ("missing_field", {}, "values"),
    ("missing_field", single(stream=...), "stream"),
    ("missing_field", single(stream=None), "stream"),
    ("missing_field", single(time=...), "time"),
    ("missing_field", single(time=None), "time"),
    ("missing_field", single(values=...), "values"),
    ("bad_id", single(stream=""), "stream: is empty"),
    ("bad_id", single(sequence=""), "sequence: is empty"),
    ("bad_id", single(stream="s" * 257), "256"),
    ("bad_id", single(sequence="a\nb"), "control characters"),
    ("bad_id", chunk(sequence="a\u2028b"), "control characters"),
    ("wrong_type", single(stream=1e300), "stream: must be text or a whole number, got 1e+300"),
    ("wrong_type", single(stream=1.5), "stream: must be text or a whole number, got 1.5"),
    ("wrong_type", single(stream=True), "got true"),
    ("wrong_type", single(sequence=["a"]), "sequence: must be text or a whole number, got a list"),
    ("wrong_type", msgspec.msgpack.encode(single(stream=b"r")), "binary data"),
    ("wrong_type", msgspec.msgpack.encode(single(stream=msgspec.msgpack.Ext(5, b"a"))), "an extension value"),
    ("bad_time", single(time="soon"), "time: 'soon' is neither"),
    ("bad_time", single(time=""), "time: '' is neither"),
    ("bad_time", single(time="2026-03-01T08:15:30"), "has no UTC offset"),
    ("bad_time", chunk(times=[T, "2026-03-01T08:15:30"]), "times[1]: 2026-03-01T08:15:30 has no UTC offset"),
    ("bad_time", single(time="9" * 5_000), "time: "),
    ("bad_time", single(time=NAN), "nan is not a time"),
    ("bad_time", msgspec.msgpack.encode(chunk(times=[T, NAN])), "times[1]: nan is not a time"),
    ("bad_time", single(time=1e308), "time: "),
    ("bad_time", single(time=10**30), "after the year 2200"),
    ("bad_time", chunk(times=[T, 7_258_118_401]), "times[1]: 7258118401 lies after"),
    ("bad_time", single(time=-1), "before 1970"),
    ("bad_time", chunk(times=[-1e-6, T]), "times[0]: -1e-06 lies before 1970"),
    ("bad_time", single(time="0001-01-01T00:00:00+23:59"), "before 1970"),
    ("bad_time", single(time="9999-12-31T23:59:59-23:59"), "after the year 2200"),
    ("clock_skew", single(time=T + 86_400), "ahead of the record's own time"),
    ("wrong_type", single(time=True), "time: must be an RFC 3339 time or a number, got true"),
    ("wrong_type", single(time={}), "an object"),
    ("unknown_channel", single(values={"temp": 1, "flow": 2}), "'flow' is not among the channels"),
    ("unknown_channel", single(values={"": 1}), "'' is not among the channels"),
    ("unknown_channel", msgspec.msgpack.encode(single(values={1: 2.0})), "1 is not among the channels"),
    ("unknown_channel", chunk(channels=["temp", "flow"]), "'flow'"),
    ("wrong_shape", chunk(channels=["temp", "temp"]), "named twice"),
    ("wrong_type", chunk(channels={"temp": 1}), "channels: must be a list"),
    ("wrong_type", single(values=5), "values: must be an object of channels, got 5"),
    ("wrong_type", chunk(values=[[1, 2], 3]), "values[1]: must be a list of numbers, got 3"),
    ("wrong_shape", chunk(values=[[1, 2], [3]]), "values[1]: has 1 values for 2 channels"),
    ("wrong_shape", chunk(values=[[1, 2, 3], [4, 5, 6]]), "values[0]: has 3 values for 2 channels"),
    ("wrong_shape", chunk(times=[T]), "1 times for 2 rows"),
    ("wrong_shape", chunk(times=..., time=T), "times must be a list"),
    ("wrong_shape", chunk(values={"temp": [1, 2]}), "must be a list of rows"),
    ("wrong_shape", chunk(times=[], values=[], end=True), "an empty chunk"),
    ("wrong_type", single(end="yes"), "end: must be true or false, got 'yes'"),
    ("wrong_type", chunk(end=1), "end: must be true or false, got 1"),
    ("mixed_message", [single(), single(stream="r2")], "several sequences"),
    ("mixed_message", [single(), single(sequence="B2")], "several sequences"),
    ("mixed_message", [single(end=True), single(time=T + 1)], "after the end"),
    ("wrong_shape", [single(), chunk()], "[1]: a chunk inside a list"),
]


@pytest.mark.parametrize(("kind", "message", "text"), BAD, ids=[f"{i}-{row[0]}" for i, row in enumerate(BAD)])
def test_bad_messages(kind: str, message: Any, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(message)
    assert caught.value.kind == kind
    assert text in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_header_that_names_a_schema_explains_what_is_no_message() -> None:
    decoder = Decoder(DecodeSettings(), CHANNELS)
    with pytest.raises(DecodeError, match=r"Schema Registry serializer \(a header names schema '01ab'\)") as caught:
        block_in(decoder, Record(0, b"\x02r1\x02", schema="01ab"))
    assert caught.value.kind == "schema_registry"
    plain = Record(0, json.dumps(single()).encode(), schema="01ab")
    block = block_in(decoder, plain)
    assert block is not None
    with pytest.raises(DecodeError) as caught:
        block_in(decoder, Record(0, b"5", schema="01ab"))
    assert caught.value.kind == "wrong_type"


def test_a_tombstone_holds_no_message() -> None:
    assert decode(b"") is None
    assert decode(b"", DecodeSettings(format="msgpack")) is None


def test_errors_echo_little_of_the_message() -> None:
    long = "x" * 100_000
    for message in (single(time=long), single(values={long: 1}), single(end=long)):
        with pytest.raises(DecodeError) as caught:
            decode(message)
        assert str(caught.value).count("x") <= 80
    bad = decoded(single(values={"temp": long})).bad
    assert bad is not None
    assert bad.first[0, 1].count("x") <= 80


def test_message_size_at_its_limit() -> None:
    value = json.dumps(single()).encode()
    assert decode(value, DecodeSettings(max_message_bytes=len(value))) is not None
    assert kind_of_error(value, DecodeSettings(max_message_bytes=len(value) - 1)) == "too_large"


def test_sample_count_at_its_limit() -> None:
    for message in (chunk(), chunk(times=["2026-03-01T08:15:30Z"] * 2), [single(), single()]):
        assert len(decoded(message, DecodeSettings(max_samples_per_message=2))) == 2
        assert kind_of_error(message, DecodeSettings(max_samples_per_message=1)) == "too_many_samples"


def test_every_kind_of_error_is_in_the_table() -> None:
    assert {row[0] for row in BAD} | {"too_large", "too_many_samples", "unknown_schema"} == set(
        get_args(DecodeErrorKind)
    )


def test_contradicting_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="two channels read the field temp"):
        Decoder(DecodeSettings(), [ChannelSettings(name="temp"), ChannelSettings(name="b", field="temp")])
    with pytest.raises(ConfigError, match="relative times cannot be the record's own"):
        Decoder(DecodeSettings(time="relative", fields=FieldSettings(time="record")), CHANNELS)


def message(time: str) -> bytes:
    return json.dumps(single(time=time)).encode()


def test_dates_without_an_offset_are_local_times_of_the_configured_zone() -> None:
    settings = DecodeSettings(timezone="Europe/Berlin", max_clock_skew="400d")
    berlin = Decoder(settings, CHANNELS)
    summer = block_in(berlin, Record(0, message(time="2026-07-01T08:15:30")), NOW_US)
    with_offset = block_in(berlin, Record(0, message(time="2026-07-01T08:15:30+02:00")), NOW_US)
    winter = block_in(berlin, Record(0, message(time="2026-01-01T08:15:30")), NOW_US)
    assert summer is not None
    assert with_offset is not None
    assert winter is not None
    assert summer.times_us.tolist() == with_offset.times_us.tolist()
    assert (summer.times_us[0] - winter.times_us[0]) == (181 * 24 - 1) * 3_600_000_000


def test_an_unknown_time_zone_is_named() -> None:
    with pytest.raises(ValueError, match="no time zone 'Berlin'"):
        DecodeSettings(timezone="Berlin")


def test_several_fields_name_the_sequence_together() -> None:
    fields = FieldSettings(sequence=("fault", "run"), time="t", values=None)
    decoder = Decoder(DecodeSettings(fields=fields), [ChannelSettings(name="x")])

    def sequence_of(message: dict[str, Any]) -> str | None:
        block = block_in(decoder, Record(0, json.dumps({"stream": "s", "t": 1, "x": 1, **message}).encode()))
        assert block is not None
        return block.sequence

    assert sequence_of({"fault": 1, "run": "7"}) == "1/7"
    assert sequence_of({"fault": 11, "run": 7.0}) == "11/7"
    assert sequence_of({"fault": 1}) is None
    assert sequence_of({"fault": 1, "run": ""}) is None
    with pytest.raises(DecodeError, match="fault and run: is longer than 256 characters"):
        sequence_of({"fault": "a" * 200, "run": "b" * 200})


@pytest.mark.parametrize(("unit", "second"), [("min", 60), ("h", 3_600), ("d", 86_400)])
def test_relative_times_may_count_minutes_hours_and_days(unit: Any, second: int) -> None:
    fields = FieldSettings(time="t", values=None)
    decoder = Decoder(DecodeSettings(fields=fields, time="relative", time_unit=unit), [ChannelSettings(name="x")])
    for value in (0.5, "0.5"):
        block = block_in(decoder, Record(0, json.dumps({"stream": "s", "t": value, "x": 1}).encode()))
        assert block is not None
        assert block.times_us.tolist() == [second * 500_000]
