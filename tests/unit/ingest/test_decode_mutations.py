"""Whatever the bytes: a block that keeps its promises, None, or a DecodeError, and nothing else."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_values import DecodeErrorKind
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in
from tests.support.ingest.mutations import CHANNELS, START_S, mutated_messages

NOW_US = (START_S + 7_200) * 1_000_000
N_MESSAGES = 20_000
LATEST_US = 7_258_118_400_000_000
CHANNEL_SETTINGS = [ChannelSettings(name=name) for name in CHANNELS]
DECODERS = {
    "own": DecodeSettings(),
    "json": DecodeSettings(format="json"),
    "msgpack": DecodeSettings(format="msgpack", time_unit="ns"),
    "relative": DecodeSettings(time="relative", default_stream="x", max_samples_per_message=5),
    "dated": DecodeSettings(time_format="%d.%m.%Y %H:%M:%S", timezone="Europe/Berlin"),
    "excel": DecodeSettings(time_format="excel", timezone="Europe/Berlin", missing=("x",)),
    "mapped": DecodeSettings(fields=FieldSettings()),
    "flat": DecodeSettings(fields=FieldSettings(values=None, stream="key"), default_stream="x"),
    "nested flat": DecodeSettings(fields=FieldSettings(values=None, time="record", end="values.temp")),
    "lists": DecodeSettings(fields=FieldSettings(values=None, time="times"), time="relative"),
    "steps": DecodeSettings(fields=FieldSettings(start="time", step="values.temp", values=None)),
    "rates": DecodeSettings(fields=FieldSettings(start="record", step={"field": "time", "unit": "hz"})),  # type: ignore[arg-type]
    "nested": DecodeSettings(fields=FieldSettings(values="values.temp", nested=("values", "values.temp"))),
    "pattern": DecodeSettings(
        fields=FieldSettings(value="values.temp", pattern={"field": "stream", "parts": "{stream}-{channel}"})  # type: ignore[arg-type]
    ),
    "influx": DecodeSettings(format="influx", fields=FieldSettings(values=None), default_stream="x"),
    "rows": DecodeSettings(fields=FieldSettings(values=None), time="row", row_period="20ms"),  # type: ignore[arg-type]
    "split": DecodeSettings(fields=FieldSettings(time=("time", "ms", "us")), decimal=",", thousands="."),
    "per channel": DecodeSettings(fields=FieldSettings(channel="sequence", value="values.temp", ignore_unknown=False)),
}


def outcome(decoder: Decoder, record: Record) -> str:
    """Decode ``record``, check what a block promises, and return what came of it."""
    try:
        block = block_in(decoder, record, NOW_US)
    except DecodeError as error:
        assert_readable(error)
        return error.kind
    if block is None:
        return "ignored"
    assert_sound(block)
    return "block"


def assert_readable(error: DecodeError) -> None:
    assert error.kind in get_args(DecodeErrorKind)
    assert 0 < len(str(error)) < 300
    assert str(error).isprintable()


def assert_sound(block: SampleBlock) -> None:
    n_samples = len(block)
    assert n_samples > 0
    assert block.times_us.dtype == np.int64
    assert block.times_us.shape == (n_samples,)
    assert (np.diff(block.times_us) >= 0).all()
    assert block.times_us[0] >= (-LATEST_US if block.relative else 0)
    assert block.times_us[-1] <= LATEST_US
    assert block.values.dtype == np.float32
    assert block.values.shape == (n_samples, len(CHANNELS))
    assert not np.isinf(block.values).any()
    if block.bad is not None:
        assert block.bad.codes.shape == block.values.shape
        assert np.isnan(block.values[block.bad.codes > 0]).all()
        found = {(column, code) for (_, column), code in np.ndenumerate(block.bad.codes) if code}
        assert set(block.bad.first) == found
        assert all(0 < len(text) < 300 and text.isprintable() for text in block.bad.first.values())
    assert type(block.end) is bool
    for text in filter(None, (block.stream, block.sequence, block.route)):
        text.encode()
        assert not any(unicodedata.category(character) == "Cc" for character in text)
    assert 0 < len(block.stream) <= 256
    assert block.sequence is None or 0 < len(block.sequence) <= 256
    if block.indexes is not None:
        assert block.indexes.dtype == np.int64
        assert len(set(block.indexes.tolist())) == n_samples
        assert block.indexes.min() >= 0


def test_twenty_thousand_mutated_messages_end_as_blocks_or_errors() -> None:
    decoder = Decoder(DecodeSettings(), CHANNEL_SETTINGS)
    outcomes = Counter(
        outcome(decoder, Record(offset, value, timestamp_us=NOW_US))
        for offset, value in enumerate(mutated_messages(N_MESSAGES))
    )
    assert outcomes.total() == N_MESSAGES
    assert outcomes["block"] > N_MESSAGES / 10  # the valid ones at least
    # The mutator reaches every check that the own format has.
    assert set(outcomes) >= set(get_args(DecodeErrorKind)) - {"too_large", "too_many_samples", "unknown_schema"}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("route", [None, "sequence", "values"])
def test_mutated_messages_under_every_kind_of_settings(name: str, route: str | None) -> None:
    decoder = Decoder(DECODERS[name], CHANNEL_SETTINGS, route)
    for offset, value in enumerate(mutated_messages(1_500, seed=len(name))):
        native = offset % 5 == 0
        outcome(decoder, Record(offset, value, timestamp_us=NOW_US, key=value[:9], native=native))


@given(value=st.binary(max_size=200), native=st.booleans(), name=st.sampled_from(sorted(DECODERS)))
def test_any_bytes(value: bytes, native: bool, name: str) -> None:
    outcome(Decoder(DECODERS[name], CHANNEL_SETTINGS), Record(0, value, timestamp_us=NOW_US, native=native))


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["stream", "sequence", "time", "times", "values", "channels", "end", "temp", "recipe"])
routes = st.sampled_from([None, "recipe", "stream", "times", "values.temp", "recipe.temp"])


@given(
    message=st.dictionaries(keys, anything, min_size=1),
    named=st.booleans(),
    name=st.sampled_from(sorted(DECODERS)),
    route=routes,
)
def test_any_content_under_our_keys(message: dict[str, object], named: bool, name: str, route: str | None) -> None:
    if named:
        message = {**message, "stream": "r", "time": START_S}
    decoder = Decoder(DECODERS[name], CHANNEL_SETTINGS, route)
    outcome(decoder, Record(0, msgspec.msgpack.encode(message), timestamp_us=NOW_US, native=True))
    outcome(decoder, Record(0, msgspec.msgpack.encode(message), timestamp_us=NOW_US))
