"""InfluxDB's line protocol: each line is what the same object in a list is (``decode.fields.each``)."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.forms.line_protocol import read_lines
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record

T_NS = 1_772_352_930_250_000_000
CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="rpm"), ChannelSettings(name="on", values={"true": 1})]
FIELDS: dict[str, Any] = {"stream": "unit", "sequence": "lot no", "values": None}
INFLUX = DecodeSettings(format="influx", time_unit="ns", fields=FieldSettings(**FIELDS))
LISTED = DecodeSettings(time_unit="ns", fields=FieldSettings(**FIELDS, each="lines"))
NAMES = st.text("aB1,= é.-", min_size=1, max_size=5)
VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1), st.booleans(),
    st.text('aB1,= é"\\\\\n.-', max_size=6),
)  # fmt: skip


def key(text: str) -> str:
    return re.sub(r"([,= ])", r"\\\1", text)


def written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "f"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{value}i" if isinstance(value, int) else repr(value)


def line(message: dict[str, Any], tags: dict[str, str], fields: dict[str, Any]) -> str:
    name = re.sub(r"([, ])", r"\\\1", message["measurement"])
    head = "".join(f",{key(tag)}={key(value)}" for tag, value in tags.items())
    time = f" {message['time']}" if "time" in message else ""
    return f"{name}{head} " + ",".join(f"{key(field)}={written(value)}" for field, value in fields.items()) + time


@given(
    st.lists(
        st.tuples(
            NAMES,
            st.dictionaries(NAMES.map("t{}".format), NAMES, max_size=3),
            st.dictionaries(NAMES.map("f{}".format), VALUES, min_size=1, max_size=3),
            st.one_of(st.none(), st.integers(-T_NS, 2 * T_NS)),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["\n", "\r\n", "\n\n# a comment\n"]),
)
def test_what_is_written_is_read(
    lines: list[tuple[str, dict[str, str], dict[str, Any], int | None]], between: str
) -> None:
    objects, texts = [], []
    for measurement, tags, fields, time in lines:
        head: dict[str, Any] = {"measurement": measurement} | ({} if time is None else {"time": time})
        objects.append({**head, **tags, **fields})
        texts.append(line(head, tags, fields))
    assert read_lines(between.join(texts).encode()) == {"lines": objects}


SAMPLES = st.fixed_dictionaries(
    {"unit": st.sampled_from(["R1", "R 2"]), "lot no": st.sampled_from(["B,1", "B2"])},
    optional={"temp": VALUES, "rpm": VALUES, "on": VALUES, "other": VALUES},
)


@given(st.lists(st.tuples(SAMPLES, st.integers(0, 10**12)), min_size=1, max_size=6), st.booleans())
def test_lines_are_what_objects_in_a_list_are(samples: list[tuple[dict[str, Any], int]], packed: bool) -> None:
    objects, texts = [], []
    for sample, time in samples:
        head = {"measurement": "m", "time": T_NS + time}
        fields = {name: value for name, value in sample.items() if name not in ("unit", "lot no")} or {"other": 1}
        objects.append({**head, **sample, **fields})
        texts.append(line(head, {name: sample[name] for name in ("unit", "lot no")}, fields))
    value = "\n".join(texts).encode()
    found = Decoder(INFLUX, CHANNELS).decode(Record(0, gzip.compress(value) if packed else value), None)
    expected = Decoder(LISTED, CHANNELS).decode(Record(0, msgspec.json.encode({"lines": objects})), None)
    assert [str(error) for error in found.unreadable] == [str(error) for error in expected.unreadable]
    assert len(found.blocks) == len(expected.blocks)
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        assert (one.stream, one.sequence) == (other.stream, other.sequence)
        np.testing.assert_array_equal(one.times_us, other.times_us)
        np.testing.assert_array_equal(one.values, other.values)
        assert (one.bad is None) == (other.bad is None)


@pytest.mark.parametrize(
    "text",
    [
        "cpu",
        "cpu 1772352930",
        "cpu,unit temp=1",
        "cpu temp=",
        "cpu temp=1x",
        "cpu temp=1 soon",
        "cpu temp=nan",
        'cpu temp="open',
        "cpu temp=1,temp=2",  # which of them?
        "cpu,temp=a temp=2",
        "cpu time=3 17",
        "cpu temp=1 99999999999999999999999",
        '{"temp": 1}',
    ],
)
def test_a_line_that_is_none_is_an_error_of_its_own(text: str) -> None:
    good = f"cpu,unit=R1,lot\\ no=B1 temp=1.5 {T_NS}"
    found = Decoder(INFLUX, CHANNELS).decode(Record(0, f"{good}\n{text}\n{good}".encode()), None)
    assert [len(block) for block in found.blocks] == [2]
    (error,) = found.unreadable
    assert str(error).startswith("lines[1]: must be an object with a reading or a sample, got '")
    with pytest.raises(DecodeError, match="not line protocol: "):
        Decoder(INFLUX, CHANNELS).decode(Record(0, text.encode()), None)


@given(st.one_of(st.binary(max_size=60), st.text('a=,"\\\\ \n1i#t', max_size=60).map(str.encode)))
def test_any_bytes_are_lines_or_an_error(value: bytes) -> None:
    with suppress(DecodeError):
        Decoder(INFLUX, CHANNELS).decode(Record(0, value), None)


def test_long_lines_take_time_in_proportion() -> None:
    for value in (b"a," * 10**5, b"\\" * 10**5, b"a " + b"a=1," * 10**5 + b'"', b"a b=1" + b" " * 10**5 + b"x"):
        with pytest.raises(DecodeError, match="not line protocol"):
            read_lines(value)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValidationError, match="format: influx needs fields"):
        DecodeSettings(format="influx")
    with pytest.raises(ValidationError, match=r"leave fields\.each out"):
        DecodeSettings(format="influx", fields=FieldSettings(each="lines"))


@pytest.mark.parametrize("line", ['m a="{}" 1', 'm a="{}', "m{} a=1 1", "m,{}=t a=1 1", "m a={}"])
def test_a_long_text_costs_little_memory(line: str) -> None:
    """A pattern that could go back would keep 200 bytes for each character."""
    value = line.format("x" * 200_000).encode()
    tracemalloc.start()
    try:
        with suppress(DecodeError):
            read_lines(value)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(value)
    finally:
        tracemalloc.stop()


def test_lines_beyond_the_most_are_not_read() -> None:
    with pytest.raises(DecodeError) as raised:
        read_lines(b"m a=1\n" * 4, most=3)
    assert raised.value.kind == "too_many_samples"
    assert len(read_lines(b"m a=1\n#\n\n" * 3, most=3)["lines"]) == 3
