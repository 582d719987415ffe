"""The field that chooses the model, wherever a message carries it: one text, or a clear error."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_own import OwnReader
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import FieldPath, Samples
from streamad.ingest.forms.wire import Wire
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
NOW_US = T * 1_000_000 + 60_000_000
CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="pressure")]
SINGLE = {"stream": "r", "sequence": "A", "time": T, "values": {"temp": 1.0, "pressure": 2.0}}
CHUNK = {"stream": "r", "sequence": "A", "times": [T, T + 1], "values": [[1.0, 2.0], [3.0, 4.0]], "end": True}
FLAT = {"batch": "A", "machine": "r", "ts": T, "temp": 1.0, "pressure": 2.0}
FLAT_FIELDS = FieldSettings(stream="machine", sequence="batch", time="ts", values=None, ignore_unknown=False)


def decode(message: Any, route: str, settings: DecodeSettings | None = None, **record: Any) -> SampleBlock:
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    block = block_in(Decoder(settings or DecodeSettings(), CHANNELS, route), Record(7, value, **record), NOW_US)
    assert block is not None
    return block


def fast(value: bytes, route: str, wire: Wire = "json") -> Samples:
    """Read a message that the fast reader must accept."""
    path = FieldPath(route)
    assert OwnReader.serves(path)
    samples = OwnReader(CHANNELS, TimeReader("s", relative=False), 100, path).read(value, wire)
    assert samples is not None
    return samples


@pytest.mark.parametrize("route", ['{"a":1}', "re\tcipe", "re\\cipe", 'meta.re"cipe', 'me"ta.recipe'])
def test_a_field_whose_name_the_fast_reader_cannot_have_is_read_the_general_way(route: str) -> None:
    assert not OwnReader.serves(FieldPath(route))
    assert decode({**SINGLE, route: "A-7"}, route).route == "A-7"


@pytest.mark.parametrize("message", [SINGLE, CHUNK], ids=["single", "chunk"])
@pytest.mark.parametrize("wire", ["json", "msgpack", "native"])
def test_the_own_format_carries_it_as_a_further_key_and_stays_on_the_fast_way(
    message: dict[str, Any], wire: str
) -> None:
    routed = {**message, "recipe": "A-7"}
    value = json.dumps(routed).encode() if wire == "json" else msgspec.msgpack.encode(routed)
    for found in (
        fast(value, "recipe", "json" if wire == "json" else "msgpack"),
        decode(value, "recipe", native=wire == "native"),
    ):
        assert (found.route, found.values[0].tolist()) == ("A-7", [1.0, 2.0])


@pytest.mark.parametrize(
    ("route", "more", "expected"),
    [
        ("recipe", {}, None),
        ("recipe", {"recipe": None}, None),
        ("meta.recipe", {"meta": {"recipe": "B"}}, "B"),
        ("meta.recipe", {"meta.recipe": "literal", "meta": {"recipe": "B"}}, "literal"),
        ("meta.recipe", {"meta.recipe": None, "meta": {"recipe": "B"}}, None),
        ("meta.recipe", {"meta": {}}, None),
        ("meta.recipe", {"meta": None}, None),
        ("meta.recipe", {}, None),
        ("a.b.c", {"a": {"b": {"c": 3}}}, "3"),
        ("a.b.c", {"a.b": {"c": 3}}, "3"),
        ("a.b.c", {"a": {"b.c": 3}}, "3"),
        ("a.b.c", {"a": {"b.c": 3, "b": {"c": 4}}}, "3"),
        ("a.b.c", {"a": {"b": {"c": 4}}, "a.b": {"c": 3}}, "4"),
        ("a.b.c", {"a": {"b": 1.0, "b.c": 3}}, "3"),
        ("stream", {}, "r"),
        ("sequence", {}, "A"),
    ],
)
def test_dotted_paths_ids_and_absence_on_the_fast_way_and_on_the_general_one(
    route: str, more: dict[str, Any], expected: str | None
) -> None:
    message = {**SINGLE, **more}
    assert fast(json.dumps(message).encode(), route).route == expected
    assert decode(message, route).route == expected
    assert decode([message], route).route == expected
    assert decode(message, route, DecodeSettings(fields=FieldSettings())).route == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Käse 7", "Käse 7"),
        (7, "7"),
        (-7, "-7"),
        (3.0, "3"),
        (-0.0, "0"),
        (2.5, "2.5"),
        (1e300, "1e+300"),
        (2.0**53 - 1, "9007199254740991"),
        (True, "true"),
        (False, "false"),
        (float("nan"), None),
        (None, None),
    ],
)
def test_texts_numbers_and_booleans_become_text(value: Any, text: str | None) -> None:
    assert decode({**SINGLE, "recipe": value}, "recipe").route == text
    assert decode([{**SINGLE, "recipe": value}], "recipe").route == text


@pytest.mark.parametrize(
    ("value", "kind", "error"),
    [
        (["A"], "wrong_type", "recipe: must be text, a number, true or false, got a list"),
        ({"no": 1}, "wrong_type", "recipe: must be text, a number, true or false, got an object"),
        (float("inf"), "wrong_type", "recipe: must be text, a number, true or false, got inf"),
        ("A\nB", "bad_id", "recipe: holds control characters"),
        ("A" * 257, "bad_id", "recipe: is longer than 256 characters"),
        ("", "bad_id", "recipe: is empty"),
    ],
)
@pytest.mark.parametrize("message", [SINGLE, CHUNK], ids=["single", "chunk"])
def test_anything_else_is_unreadable_with_a_reason(message: dict[str, Any], value: Any, kind: str, error: str) -> None:
    with pytest.raises(DecodeError) as found:
        decode({**message, "recipe": value}, "recipe")
    assert found.value.kind == kind
    assert str(found.value).startswith(error)


def test_an_object_is_missing_on_the_way_to_it() -> None:
    with pytest.raises(DecodeError, match=r"meta.recipe: 3 stands where an object should be"):
        decode({**SINGLE, "meta": 3}, "meta.recipe")


def test_a_message_of_several_values_is_refused_and_one_that_names_it_once_has_it() -> None:
    one, other = {**SINGLE, "recipe": "A"}, {**SINGLE, "time": T + 1}
    assert decode([other, one], "recipe").route == "A"
    with pytest.raises(DecodeError, match="holds several values of recipe") as found:
        decode([one, {**other, "recipe": "B"}], "recipe")
    assert found.value.kind == "mixed_message"


# --- foreign messages ------------------------------------------------------------------------------------------------


def test_flat_messages_with_strict_keys_know_the_field() -> None:
    settings = DecodeSettings(fields=FLAT_FIELDS)
    assert decode({**FLAT, "rezept": 12}, "rezept", settings).route == "12"
    assert decode({**FLAT, "rezept": ""}, "rezept", settings).route is None
    assert decode({**FLAT, "head": {"rezept": "x"}}, "head.rezept", settings).route == "x"
    with pytest.raises(DecodeError, match="'rezept' is not among the channels"):
        decode({**FLAT, "rezept": 12}, "recipe", settings)


@pytest.mark.parametrize("values", ["data", "body.data"])
def test_the_field_may_lie_inside_the_object_of_channels(values: str) -> None:
    settings = DecodeSettings(fields=FieldSettings(values=values))
    inside = {"temp": 1.0, "pressure": 2.0, "recipe": "A"}
    message = {**SINGLE, "data": inside, "body": {"data": inside}}
    assert decode(message, f"{values}.recipe", settings).route == "A"
    with pytest.raises(DecodeError, match="'recipe' is not among the channels"):
        decode(message, "recipe", settings)
    own = {**SINGLE, "values": inside}
    assert decode(own, "values.recipe").route == "A"


def test_messages_of_one_channel_each_carry_it_too() -> None:
    settings = DecodeSettings(fields=FieldSettings(channel="tag", value="v"))
    message = {"stream": "r", "sequence": "A", "time": T, "tag": "temp", "v": 3.5, "recipe": "A"}
    assert decode(message, "recipe", settings).route == "A"


def test_a_channel_may_choose_the_model() -> None:
    settings = DecodeSettings(fields=FLAT_FIELDS)
    block = decode(FLAT, "pressure", settings)
    assert (block.route, block.values.tolist()) == ("2", [[1.0, 2.0]])
    assert decode({**SINGLE, "end": True}, "end").route == "true"


def test_without_a_route_the_same_key_is_skipped_as_any_other() -> None:
    value = json.dumps({**SINGLE, "recipe": ["whatever"]}).encode()
    block = block_in(Decoder(DecodeSettings(), CHANNELS), Record(0, value), NOW_US)
    assert block is not None
    assert block.route is None


# --- the law ---------------------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["recipe", "x"]), inner, max_size=2),
    max_leaves=5,
)


def told(decoder: Decoder, value: bytes) -> tuple[str | None, str | None]:
    """The route, or the kind of error."""
    try:
        block = block_in(decoder, Record(0, value), NOW_US)
    except DecodeError as error:
        return None, error.kind
    assert block is not None
    return block.route, None


@given(
    st.dictionaries(st.sampled_from(["recipe", "meta", "meta.recipe"]), anything),
    st.sampled_from(["recipe", "meta", "meta.recipe", "stream"]),
)
def test_the_fast_way_and_the_general_one_give_the_same(more: dict[str, Any], route: str) -> None:
    decoder = Decoder(DecodeSettings(), CHANNELS, route)
    try:
        single, listed = (msgspec.msgpack.encode(m) for m in ({**SINGLE, **more}, [{**SINGLE, **more}]))
    except OverflowError:  # beyond msgpack's integers
        single, listed = (json.dumps(m, default=str).encode() for m in ({**SINGLE, **more}, [{**SINGLE, **more}]))
    assert told(decoder, single) == told(decoder, listed)
