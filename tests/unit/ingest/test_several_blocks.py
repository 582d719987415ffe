"""The laws of records of several blocks (``decode.fields.each``): they equal as many records of one block each."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

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
from tests.support.ingest import assembly_model
from tests.support.ingest.assembly_cases import arrivals, orderly, orderly_settings, sequence_settings, together
from tests.support.ingest.assembly_model import Cut, Late, cut_of, lates_of, model_outcome, singles_of
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
    jumped = Counter(resolved.offset for resolved in assembler.jumps.take_resolved() if resolved.error is not None)
    return Counter(map(cut_of, finished)), Counter(lates_of(assembler.take_late())), jumped


@given(sequence_settings(), together(arrivals()))
@settings(max_examples=400)
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


def told(limits: SequenceSettings, records: list[Record]) -> Told:
    """Run records through an intake to their end."""
    plant = settings_of(channels=[{"name": "x"}, {"name": "y"}], models={"field": "recipe"}, decode=DECODE)
    plant = plant.model_copy(update={"sequences": limits})
    counters = Counters()
    intake = Intake("p", plant, Decoder(plant.decode, plant.channels, plant.route_field), counters)
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
@settings(max_examples=200)
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
