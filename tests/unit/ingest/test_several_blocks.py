"""The laws of records of several blocks (``decode.fields.each``): they equal as many records of one block each."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.assembly import Assembler
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.messages import DeadLetter, LateRecord
from streamad.settings.plant_yaml import SequenceSettings
from streamad.telemetry.metrics import Counters
from streamad.types import Record, RecordBatch
from tests.support.examples import examples
from tests.support.ingest import assembly_model
from tests.support.ingest.assembly_cases import arrivals, orderly, orderly_settings, sequence_settings, together, us
from tests.support.ingest.assembly_model import Cut, Late, cut_of, lates_of, model_outcome, singles_of
from tests.support.ingest.ended_input import jumped
from tests.support.runtime.pipeline import START_US, settings_of


def outcome(
    limits: SequenceSettings, records: list[list[assembly_model.Record]]
) -> tuple[Counter[Cut], Counter[Late], Counter[int]]:
    """Run records of several blocks to their end."""
    assembler = Assembler("p", limits)
    finished: list[Closed] = []
    for offset, parts in enumerate(records):
        record_us, blocks = parts[0].record_us, [part.block(offset) for part in parts]
        if len(blocks) > 1:
            finished += assembler.begin(blocks, record_us)
        for block in blocks:
            finished += assembler.push(block, record_us)
        if len(blocks) > 1:
            finished += assembler.end()
    finished += assembler.end_of_input()
    return Counter(map(cut_of, finished)), Counter(lates_of(assembler.take_late())), jumped(assembler)


@given(sequence_settings(), together(arrivals()))
@settings(max_examples=examples(400))
def test_agrees_with_the_model_sample_by_sample(
    limits: SequenceSettings, records: list[list[assembly_model.Record]]
) -> None:
    assert outcome(limits, records) == model_outcome(limits, records)


@given(orderly_settings(), together(orderly()))
def test_agrees_with_the_model_where_samples_go_the_short_ways(
    limits: SequenceSettings, records: list[list[assembly_model.Record]]
) -> None:
    assert outcome(limits, records) == model_outcome(limits, records)


# --- through decoder and intake --------------------------------------------------------------------------------------

DECODE = {"fields": {"each": "list"}, "max_clock_skew": "50us"}


class Told(NamedTuple):
    """What an intake makes of all records, whatever their offsets."""

    cuts: Counter[Cut]
    late: Counter[tuple[Any, ...]]
    letters: Counter[tuple[str, str]]
    counted: dict[str, int]


def intake_of(limits: SequenceSettings, counters: Counters | None = None) -> Intake:
    """Return an intake of messages with a list."""
    plant = settings_of(channels=[{"name": "x"}, {"name": "y"}], models={"field": "recipe"}, decode=DECODE)
    plant = plant.model_copy(update={"sequences": limits})
    return Intake("p", plant, Decoder(plant.decode, plant.channels, plant.route_field), counters or Counters())


def told(limits: SequenceSettings, records: list[Record]) -> Told:
    """Run records through an intake to their end."""
    counters = Counters()
    intake = intake_of(limits, counters)
    finished = intake.take(RecordBatch("p", tuple(records), len(records)), START_US) + intake.end_of_input(START_US)
    late: Counter[tuple[Any, ...]] = Counter()
    letters: Counter[tuple[str, str]] = Counter()
    for output in intake.take_aside():
        message = output.message
        if isinstance(message, LateRecord):
            late.update((message.sequence, message.cause, at) for at in message.times)
        elif isinstance(message, DeadLetter):
            letters[message.kind, re.sub(r"^list\[\d+\]", "list[0]", message.error)] += 1
    counted = {name: getattr(counters, name) for name in ("samples", "merged", "displaced", "late_samples")}
    cuts = Counter(replace(cut_of(closed), first_position=(0, 0)) for closed in finished)
    return Told(cuts, late, letters, counted)


def element_of(record: assembly_model.Record, odd: str | None) -> Any:
    """Return a sample as an element of a list, perhaps one that cannot be read, or holds a bad value."""
    element: dict[str, Any] = {
        "stream": record.stream,
        "sequence": record.sequence,
        "time": (START_US + record.times[0]) / 1e6,
        "values": dict(zip("xy", record.rows[0], strict=True)),
        "end": record.end,
        "recipe": record.route,
    }
    if odd == "bad_value":
        element["values"]["x"] = "Bad"
    elif odd == "ignored":
        element["values"] = {"other": 1.0}
    elif odd == "skew":
        element["time"] += 3_600
    elif odd == "time":
        element["time"] = "soon"
    return 7 if odd == "number" else element


ODD = st.sampled_from([None] * 8 + ["bad_value", "ignored", "skew", "time", "number"])


@given(sequence_settings(), arrivals(clock="rising"), st.integers(1, 3), st.data())
@settings(max_examples=examples(200))
def test_n_elements_equal_n_records(
    limits: SequenceSettings, records: list[assembly_model.Record], max_streams: int, data: st.DataObject
) -> None:
    limits = limits.model_copy(update={"max_streams": max_streams})
    singles = [(single.record_us or 0, element_of(single, data.draw(ODD))) for single in singles_of(records)]
    lists: list[tuple[int, list[Any]]] = []
    for own_us, element in singles:
        if lists and lists[-1][0] == own_us and data.draw(st.booleans()):
            lists[-1][1].append(element)
        else:
            lists.append((own_us, [element]))
    assert told(limits, as_records(lists)) == told(limits, as_records([(own, [element]) for own, element in singles]))


def as_records(lists: list[tuple[int, list[Any]]]) -> list[Record]:
    """Return messages with these lists, each with its own time."""
    return [
        Record(offset, json.dumps({"device": "g1", "list": elements}).encode(), START_US + own_us)
        for offset, (own_us, elements) in enumerate(lists)
    ]


# --- elements far ahead ----------------------------------------------------------------------------------------------

FAR = us(end=("marker",), max_duration=100)
OWN_US = 10_000


def reading(time: int, value: object, *, stream: str = "r") -> dict[str, Any]:
    """Return an element whose value may be one that cannot be used."""
    return {"stream": stream, "sequence": "A", "time": (START_US + time) / 1e6, "values": {"x": value, "y": 1.0}}


def messages(*lists: list[dict[str, Any]]) -> list[Record]:
    return as_records([(OWN_US, elements) for elements in lists])


def one_by_one(*lists: list[dict[str, Any]]) -> list[Record]:
    return messages(*([element] for elements in lists for element in elements))


def taken(records: list[Record]) -> Intake:
    """Return the intake that has taken ``records``."""
    intake = intake_of(FAR)
    intake.take(RecordBatch("p", tuple(records), len(records)), START_US)
    return intake


@pytest.mark.parametrize(
    ("elements", "quoted"),
    [
        pytest.param([reading(10, "a"), reading(5_000, 1.0)], "'a'", id="the last one is held"),
        pytest.param([reading(10, 1.0), reading(5_000, "a")], None, id="the one that is held has it"),
        pytest.param([reading(5_000, "a"), reading(5_001, 1.0)], None, id="held, then accepted"),
        pytest.param([reading(5_000, "a"), reading(10, 1.0)], None, id="held, then rejected"),
        pytest.param(
            [reading(5_000, "a"), reading(5_001, "b"), reading(9_000, "c")], "'b'", id="between two held ones"
        ),
        pytest.param([reading(5_000, "a", stream="s"), reading(10, "b")], "'a'", id="the first one of its stream"),
    ],
)
def test_bad_values_beside_an_element_far_ahead_are_told_of(elements: list[Any], quoted: str | None) -> None:
    lists = [reading(0, 1.0)], elements, [reading(20, 1.0)]
    found = told(FAR, messages(*lists))
    assert found == told(FAR, one_by_one(*lists))
    errors = [error for kind, error in found.letters if kind == "bad_value"]
    assert [error.split("got ")[1].split(";")[0] for error in errors] == ([] if quoted is None else [quoted])


def test_readings_beside_an_element_far_ahead_are_counted() -> None:
    bad = [reading(time, "bad") for time in range(1, 51)]
    lists = [reading(0, 1.0)], [*bad, reading(60, 1.0), reading(5_000, 1.0)], [reading(61, "bad")]
    notices = taken(messages(*lists)).take_notices(START_US)
    assert notices == taken(one_by_one(*lists)).take_notices(START_US)
    assert [notice.text.split(" values")[0] for notice in notices] == ["51 of 52"]


def test_held_elements_of_two_streams_have_the_letter_of_their_record() -> None:
    records = messages(*([reading(time, 1.0), reading(time, 1.0, stream="s")] for time in (0, 5_000, 10)))
    letters = [output.message for output in taken(records).take_aside()]
    found = [(letter.kind, letter.origin.offset, letter.value) for letter in letters if isinstance(letter, DeadLetter)]
    assert found == [("time_jump", 1, records[1].value)] * 2


def test_the_letter_of_an_element_quotes_its_own_value() -> None:
    hours = ((3, "a"), (0, "later in the list, earlier in time"), (6, "b"))
    elements = [reading(hour * 3_600_000_000, value) for hour, value in hours]
    intake = intake_of(us(end=("marker",), max_duration=100_000_000_000))
    intake.take(RecordBatch("p", (Record(0, json.dumps({"list": elements}).encode()),), 1), START_US)
    letters = [output.message for output in intake.take_aside()]
    errors = [letter.error for letter in letters if isinstance(letter, DeadLetter)]
    assert errors == [
        f"list[{index}]: x: must be a number or null, got {value!r}; all else was read"
        for index, value in ((0, "a"), (2, "b"))
    ]
