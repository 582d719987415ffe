"""Messages whose fields hold a list of times and one for each channel: each element is a sample."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings, QualitySettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
NAMES = ("temp", "flow")
CHANNELS = [ChannelSettings(name=name) for name in NAMES]
FLAT = FieldSettings(time="t", values=None)
INSIDE = FieldSettings(time="t", values="data")


def decoded(message: Any, fields: FieldSettings = FLAT, **decode: Any) -> SampleBlock:
    settings = DecodeSettings(fields=fields, **decode)
    block = block_in(Decoder(settings, CHANNELS), Record(3, msgspec.json.encode(message)))
    assert block is not None
    return block


def error_of(message: Any, fields: FieldSettings = FLAT, **decode: Any) -> tuple[str, str]:
    with pytest.raises(DecodeError) as caught:
        decoded(message, fields, **decode)
    return caught.value.kind, str(caught.value)


CELLS = st.one_of(st.floats(-1e6, 1e6, width=32), st.integers(-99, 99), st.sampled_from([None, "2.5", "Bad", {}, [1]]))


@given(
    st.lists(st.tuples(st.integers(0, 99), CELLS, CELLS), min_size=1, max_size=9),
    st.sampled_from([FLAT, INSIDE]),
    st.booleans(),
    st.booleans(),
)
def test_lists_are_what_their_samples_are_in_messages_of_their_own(
    samples: list[tuple[int, Any, Any]], fields: FieldSettings, end: bool, relative: bool
) -> None:
    times, temp, flow = (list(column) for column in zip(*samples, strict=True))
    values = {"temp": temp, "flow": flow}
    head = {"stream": "r", "sequence": "B1", "t": times}
    found = decoded(
        {**head, **(values if fields is FLAT else {"data": values}), "end": end},
        fields,
        time="relative" if relative else "absolute",
    )
    singles = []
    for time, *row in samples:
        cells: Any = dict(zip(NAMES, ["no number" if value == [1] else value for value in row], strict=True))
        inside = cells if fields is FLAT else {"data": cells}
        singles.append(decoded({**head, "t": time, **inside}, fields, time="relative" if relative else "absolute"))
    order = np.argsort(times, kind="stable")
    assert found.times_us.tolist() == [int(singles[i].times_us[0]) for i in order]
    assert np.array_equal(found.values, np.concatenate([singles[i].values for i in order]), equal_nan=True)
    bad = [[0, 0] if (one := singles[i].bad) is None else one.codes[0].tolist() for i in order]
    assert (np.zeros((len(order), 2)) if found.bad is None else found.bad.codes).tolist() == bad
    assert (found.stream, found.sequence, found.end, found.relative) == ("r", "B1", end, relative)


def test_what_a_channel_lacks_is_missing_in_every_sample() -> None:
    block = decoded({"stream": "r", "t": [T, T + 1], "temp": [1, 2], "flow": None})
    assert block.values[:, 0].tolist() == [1, 2]
    assert np.isnan(block.values[:, 1]).all()


def test_qualities_are_lists_as_well() -> None:
    quality = QualitySettings(field="q", good=(192,))
    block = decoded({"stream": "r", "t": [T, T + 1], "temp": [1, 2], "flow": [3, 4], "q": [192, 0]}, quality=quality)
    assert block.values[0].tolist() == [1, 3]
    assert np.isnan(block.values[1]).all()


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"flow": [1, 2, 3]}, "wrong_shape", "flow: holds 3 values for 2 times of t"),
        ({"flow": []}, "wrong_shape", "flow: holds 0 values for 2 times of t"),
        ({"flow": 5.0}, "wrong_shape", "t: is a list, so flow must be one, too, got 5.0"),
        ({"t": []}, "wrong_shape", "t: an empty list"),
        ({"t": [T, "noon"]}, "bad_time", "t[1]: 'noon' is neither"),
        ({"t": [T, None]}, "wrong_type", "t[1]: must be an RFC 3339 time or a number, got null"),
        ({"t": T}, "wrong_shape", "the channels hold lists, but there is one time: a list of samples needs a list"),
        ({"t": list(range(99))}, "too_many_samples", "99 samples, decode.max_samples_per_message is 9"),
        ({"stream": ["r", "r"]}, "wrong_type", "stream: must be text or a whole number, got a list"),
    ],
)
def test_lists_that_do_not_fit_are_errors_that_name_the_lengths(change: dict[str, Any], kind: str, text: str) -> None:
    message = {"stream": "r", "t": [T, T + 1], "temp": [1, 2], "flow": [3, 4], **change}
    found = error_of(message, max_samples_per_message=9)
    assert (found[0], found[1][: len(text)]) == (kind, text)


def test_one_list_beside_numbers_is_a_bad_value() -> None:
    block = decoded({"stream": "r", "t": T, "temp": [1, 2], "flow": 3})
    assert math.isnan(block.values[0, 0])
    assert block.values[0, 1] == 3
    assert block.bad is not None
    assert block.bad.first[0, 1] == "must be a number or null, got a list"


def test_lists_are_for_channels_in_fields_of_their_own() -> None:
    long = FieldSettings(time="t", channel="tag", value="v")
    message = {"stream": "r", "t": [T, T + 1], "tag": "temp", "v": [1, 2]}
    assert error_of(message, long) == (
        "wrong_shape",
        "t: is a list, so the channels must be lists in fields of their own",
    )


def test_rows_of_values_stay_rows() -> None:
    block = decoded({"stream": "r", "t": [T, T + 1], "data": [[1, 2], [3, 4]]}, INSIDE)
    assert block.values.tolist() == [[1, 2], [3, 4]]
    kind, text = error_of({"stream": "r", "t": [T, T + 1], "data": 5}, INSIDE)
    assert (kind, text) == ("wrong_shape", "times: is a list, so data must be a list of rows")


def test_lists_in_the_own_format_are_errors_as_before() -> None:
    message = {"stream": "r", "times": [T, T + 1], "values": {"temp": [1, 2], "flow": [3, 4]}}
    with pytest.raises(DecodeError, match="times: is a list, so values must be a list of rows"):
        block_in(Decoder(DecodeSettings(), CHANNELS), Record(0, json.dumps(message).encode()))
