"""Lists of readings and samples (``decode.fields.each``): what an element is, and what becomes of odd ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoded, Decoder
from streamad.ingest.intake import Intake
from streamad.messages import DeadLetter
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.telemetry.metrics import Counters
from streamad.types import Record, RecordBatch
from tests.support.runtime.pipeline import START_US, settings_of

CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="flow")]
READINGS: dict[str, Any] = {"each": "list", "stream": "unit", "sequence": "batch", "time": "t"}
READINGS |= {"channel": "id", "value": "v"}
T = 1_772_352_930


def decoder(**decode: Any) -> Decoder:
    return Decoder(DecodeSettings(**{"fields": READINGS, **decode}), CHANNELS)


def decoded(message: object, **decode: Any) -> Decoded:
    """Return what a message holds; its record has no time."""
    return decoder(**decode).decode(Record(0, json.dumps(message).encode()), None)


def reading(tag: str, value: object, second: float = 0, **more: object) -> dict[str, object]:
    return {"id": tag, "v": value, "t": T + second, **more}


def test_fields_are_looked_up_in_the_element_first() -> None:
    elements = [reading("temp", 1), reading("flow", 2, unit="R2"), {"id": "temp", "v": 3}]
    found = decoded({"unit": "R1", "batch": "A", "t": T + 9, "list": elements})
    assert [(block.stream, block.sequence, block.times_us.tolist()) for block in found.blocks] == [
        ("R1", "A", [T * 1_000_000]),
        ("R2", "A", [T * 1_000_000]),
        ("R1", "A", [(T + 9) * 1_000_000]),  # two times: that of the element wins
    ]
    assert [block.first_index for block in found.blocks] == [0, 1, 2]


def test_dotted_paths_reach_into_elements_and_around_them() -> None:
    fields = {"each": "body.list", "stream": "tags.unit", "sequence": "tags.batch", "time": "t", "values": "fields"}
    element = {"fields": {"temp": 1.5}, "tags": {"batch": "A"}, "t": T}
    found = decoded({"tags": {"unit": "R1"}, "body": {"list": [element], "n": 1}}, fields=fields)
    (block,) = found.blocks
    assert (block.stream, block.sequence) == ("R1", "A")
    assert block.values[0, 0] == 1.5


def test_neighbours_of_one_sequence_are_one_block_and_an_end_closes_it() -> None:
    elements = [
        reading("temp", 1),
        reading("flow", 2),
        reading("temp", 3, 1, end=True),
        reading("temp", 4, 2, batch="B"),
    ]
    first, second = decoded({"unit": "R1", "batch": "A", "list": elements}).blocks
    assert (len(first), first.end, len(second), second.sequence, second.end) == (3, True, 1, "B", False)
    assert np.isnan(first.values[0, 1])


def test_an_end_around_the_list_is_that_of_the_latest_sample_of_each_sequence() -> None:
    elements = [reading("temp", 1, 5), reading("temp", 2, 3), reading("temp", 3, 4, unit="R2")]
    found = decoded({"unit": "R1", "batch": "A", "end": True, "list": elements})
    assert [(block.stream, block.end, len(block)) for block in found.blocks] == [
        ("R1", True, 1),
        ("R1", False, 1),
        ("R2", True, 1),
    ]


@pytest.mark.parametrize("empty", [[], None, [{"id": "other", "v": 1, "t": T}]])
def test_lists_without_a_channel_are_ignored(empty: object) -> None:
    assert decoded({"unit": "R1", "batch": "A", "list": empty}) == Decoded()


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ({"unit": "R1"}, "missing_field", "list: is missing; decode.fields.each names it"),
        ({"list": {"id": "temp"}}, "wrong_type", "list: must be a list of objects (decode.fields.each), got an object"),
        ({"list": "temp"}, "wrong_type", "list: must be a list of objects"),
        ([{"list": []}], "wrong_type", "a message must be an object that holds the list list, got a list"),
        (7, "wrong_type", "a message must be an object that holds the list list, got 7"),
        ({"list": [1] * 11}, "too_many_samples", "11 samples, decode.max_samples_per_message is 10"),
    ],
)
def test_a_message_without_such_a_list_is_refused(message: object, kind: str, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(message, max_samples_per_message=10)
    assert (caught.value.kind, str(caught.value)[: len(text)]) == (kind, text)


@pytest.mark.parametrize(
    ("element", "kind", "text"),
    [
        ([reading("temp", 1)], "wrong_type", "must be an object with a reading or a sample, got a list"),
        ("temp", "wrong_type", "must be an object with a reading or a sample, got 'temp'"),
        (None, "wrong_type", "must be an object with a reading or a sample, got null"),
        ({"id": "temp", "v": 1, "t": "soon", "unit": "R"}, "bad_time", "t: 'soon' is neither"),
        ({"id": "temp", "v": 1, "t": [T], "unit": "R"}, "wrong_type", "t: must be an RFC 3339 time"),
        ({"id": "temp", "v": 1, "unit": "R"}, "missing_field", "t: is missing"),
        ({"id": "temp", "v": 1, "t": T}, "missing_field", "unit: is missing, and decode.default_stream is not set"),
        ({"id": "temp", "v": 1, "t": T + 7_200, "unit": "R"}, "clock_skew", "the event time is 7200 s ahead"),
    ],
)
def test_an_unreadable_element_leaves_the_others_alone(element: object, kind: str, text: str) -> None:
    good = reading("temp", 5, unit="R1", batch="A")
    value = json.dumps({"list": [good, element, {**good, "t": T + 1}]}).encode()
    found = decoder().decode(Record(0, value, T * 1_000_000), None)
    assert [block.times_us.tolist() for block in found.blocks] == [[T * 1_000_000, (T + 1) * 1_000_000]]
    (error,) = found.unreadable
    assert (error.kind, error.index) == (kind, 1)
    assert str(error).startswith(f"list[1]: {text}")


def test_lists_within_a_reading_are_bad_values() -> None:
    (block,) = decoded({"unit": "R1", "list": [reading("temp", [1, 2])]}).blocks
    assert block.bad is not None
    assert np.isnan(block.values).all()


def test_msgpack_and_100_000_elements() -> None:
    message = {"unit": "R1", "batch": "A", "list": [reading("temp", n, n) for n in range(100_000)]}
    (block,) = decoder().decode(Record(0, msgspec.msgpack.encode(message)), None).blocks
    assert len(block) == 100_000
    assert block.indexes is None


# --- dead letters ----------------------------------------------------------------------------------------------------


def letters(message: object, **decode: Any) -> list[DeadLetter]:
    plant = settings_of(channels=[{"name": "temp"}, {"name": "flow"}], decode={"fields": READINGS, **decode})
    intake = Intake("p", plant, Decoder(plant.decode, plant.channels), Counters())
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    intake.take(RecordBatch("p", (Record(3, value),), 4), START_US)
    return [output.message for output in intake.take_aside() if isinstance(output.message, DeadLetter)]


def test_each_unreadable_element_has_a_letter_with_its_message() -> None:
    message = {"unit": "R1", "list": [7, reading("temp", 1), {"id": "flow", "v": 2}]}
    found = letters(message)
    assert [(letter.origin.offset, letter.kind, letter.error[:8]) for letter in found] == [
        (3, "wrong_type", "list[0]:"),
        (3, "missing_field", "list[2]:"),
    ]
    assert [json.loads(letter.value)["list"] for letter in found] == [[7], [{"id": "flow", "v": 2}]]
    assert {letter.size_bytes for letter in found} == {len(json.dumps(message))}


def test_a_bad_value_names_its_element() -> None:
    found = letters({"unit": "R1", "batch": "A", "list": [reading("temp", 1), reading("flow", "Bad", 1)]})
    assert [(letter.kind, letter.error) for letter in found] == [
        ("bad_value", "list[1]: flow: must be a number or null, got 'Bad'; all else was read")
    ]
    assert json.loads(found[0].value)["list"] == [reading("flow", "Bad", 1)]


def test_letters_of_one_message_hold_no_more_than_a_message_may() -> None:
    message = {"note": "x" * 50_000, "unit": "R1", "list": [7] * 5_000}
    found = letters(message, max_message_bytes=1_000_000)
    assert len(found) == 5_000
    assert sum(len(letter.value) for letter in found) <= 1_000_000
    assert [letter.truncated for letter in (found[0], found[-1])] == [False, True]


# --- with other forms ------------------------------------------------------------------------------------------------


def test_a_tag_in_the_list_names_the_sequence_and_its_prefix_the_stream() -> None:
    """As an OPC gateway sends it: machine and tag in one text, the batch's id in a tag of its own."""
    fields = {"each": "values", "pattern": {"field": "id", "parts": "Plant.{stream}.{channel}"}, "value": "v"}
    fields |= {"time": "t", "sequence": {"tag": "BatchID"}}
    plant = settings_of(channels=[{"name": "temp"}], decode={"fields": fields}, sequences={"end": ["change"]})
    tags = [("BatchID", "A", 0), ("temp", 1.0, 0), ("temp", 2.0, 1), ("BatchID", "B", 2), ("temp", 3.0, 2)]
    values = [{"id": f"Plant.{unit}.{tag}", "v": v, "t": T + at} for tag, v, at in tags for unit in ("R1", "R2")]
    counters = Counters()
    intake = Intake("p", plant, Decoder(plant.decode, plant.channels), counters)
    record = Record(0, json.dumps({"values": values}).encode(), (T + 5) * 1_000_000)
    finished = intake.take(RecordBatch("p", (record,), 1), START_US) + intake.end_of_input(START_US)
    found = [(each.sequence.stream, each.sequence.sequence, each.sequence.values[:, 0].tolist()) for each in finished]
    assert sorted(found) == [
        ("R1", "A", [1.0, 2.0]),
        ("R1", "B", [3.0]),
        ("R2", "A", [1.0, 2.0]),
        ("R2", "B", [3.0]),
    ]
    assert not counters.dead_letters


@pytest.mark.parametrize("empty", [{"list": []}, {"list": None}, {}])
@pytest.mark.parametrize(
    ("words", "begin", "end"),
    [
        ({"begin": {"field": "w", "value": "S"}, "end": {"field": "w", "value": "E"}}, {"w": "S"}, {"w": "E"}),
        ({"end": "done"}, {}, {"done": True}),
    ],
)
def test_words_and_marks_around_no_element_count(
    words: dict[str, Any], begin: dict[str, Any], end: dict[str, Any], empty: dict[str, Any]
) -> None:
    fields = {"each": "list", "stream": "unit", "time": "t", "values": None, "sequence": "batch", **words}
    plant = settings_of(channels=[{"name": "temp"}], decode={"fields": fields}, sequences={"end": ["marker"]})
    around = {"unit": "R", "batch": "A"}
    samples = {**around, "list": [{"t": T + 1, "temp": 1.0}, {"t": T + 2, "temp": 2.0}]}
    messages = [{**around, **begin, **empty, "t": T}] * bool(begin) + [samples, {**around, **end, **empty, "t": T + 3}]
    counters = Counters()
    intake = Intake("p", plant, Decoder(plant.decode, plant.channels), counters)
    records = tuple(Record(at, json.dumps(message).encode()) for at, message in enumerate(messages))
    (ended,) = intake.take(RecordBatch("p", records, len(records)), START_US)
    assert (ended.sequence.reason, ended.sequence.values[:, 0].tolist()) == ("marker", [1.0, 2.0])
    assert not counters.dead_letters
    assert not counters.outside


def test_an_end_around_no_element_needs_its_time() -> None:
    (letter,) = letters({"unit": "R1", "batch": "A", "end": True, "list": []})
    assert letter.error == "t: is missing"


def test_a_wrong_time_around_no_element_has_the_whole_message() -> None:
    late = {"unit": "R1", "batch": "A", "end": True, "list": [], "t": T}
    first = {"unit": "R1", "batch": "A", "list": [reading("temp", 1, -9e6), reading("temp", 1, -9e6 + 1)]}
    plant = settings_of(channels=[{"name": "temp"}], decode={"fields": READINGS}, sequences={"max_duration": "1h"})
    intake = Intake("p", plant, Decoder(plant.decode, plant.channels), Counters())
    messages = [first, late, {"unit": "R1", "batch": "A", "list": [reading("temp", 1, -9e6 + 2)]}]
    records = tuple(Record(at, json.dumps(message).encode()) for at, message in enumerate(messages))
    intake.take(RecordBatch("p", records, len(records)), START_US)
    (letter,) = [each.message for each in intake.take_aside()]
    assert isinstance(letter, DeadLetter)
    assert letter.value == records[1].value


TAGS = st.sampled_from(["temp", "temp", "flow", "id"])
ELEMENTS = st.lists(st.tuples(st.sampled_from("RRX"), TAGS, st.integers(0, 2)), min_size=2, max_size=8)


@given(st.lists(ELEMENTS, min_size=1, max_size=6), st.sampled_from([0, 3]), st.data())
def test_elements_of_other_streams_change_nothing(
    messages: list[list[tuple[str, str, int]]], lateness: int, data: st.DataObject
) -> None:
    """Tags come first among the readings of their stream in a message, however others lie between."""
    fields = {"each": "list", "stream": "unit", "sequence": {"tag": "id"}, "time": "t", "channel": "id", "value": "v"}
    limits = {"end": ["change"], "allowed_lateness": f"{lateness}s"}
    plant = settings_of(channels=[{"name": "temp"}, {"name": "flow"}], decode={"fields": fields}, sequences=limits)

    def cuts(of: list[list[dict[str, object]]]) -> list[tuple[Any, ...]]:
        intake = Intake("p", plant, Decoder(plant.decode, plant.channels), Counters())
        finished = []
        for offset, elements in enumerate(of):
            record = Record(offset, json.dumps({"list": elements}).encode(), T * 1_000_000)
            finished += intake.take(RecordBatch("p", (record,), offset + 1), START_US)
        cuts = [each.sequence for each in finished + intake.end_of_input(START_US)]
        return [
            (each.sequence, each.reason, each.times_us.tolist(), str(each.values), each.n_late, each.partial)
            for each in cuts
            if each.stream == "R"
        ]

    def element(at: int, unit: str, tag: str, second: int) -> dict[str, object]:
        return reading(tag, second, at + second, unit=unit)

    alone, mixed = [], []
    for at, elements in enumerate(messages):
        of_r = [element(at, *each) for each in elements if each[0] == "R"]
        others = [element(at, *each) for each in elements if each[0] != "R"]
        places = sorted(data.draw(st.lists(st.integers(0, len(of_r)), min_size=len(others), max_size=len(others))))
        together = list(of_r)
        for place, other in zip(reversed(places), reversed(others), strict=True):
            together.insert(place, other)
        alone.append(of_r + others)
        mixed.append(together)
    assert cuts(mixed) == cuts(alone)
