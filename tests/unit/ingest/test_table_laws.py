"""The laws of ``sequences.table``: a sample's row depends on its stream and time alone, whatever comes before."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.assembly import Assembler
from streamad.ingest.table.rows import Row
from streamad.settings.plant_yaml import SequenceSettings
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import arrivals, orderly
from tests.support.ingest.assembly_model import Cut, Late, Model, Record, cut_of, lates_of
from tests.support.ingest.ended_input import jumped, read_to_end
from tests.support.ingest.tables import rows, table_of, table_settings

Outcome = tuple[Counter[Cut], Counter[Late], Counter[int], int]


def outcome(limits: SequenceSettings, table: list[Row], records: list[Record]) -> Outcome:
    assembler = Assembler("p", limits, table=table_of(table))
    finished = read_to_end(assembler, records)
    return (
        Counter(map(cut_of, finished)),
        Counter(lates_of(assembler.take_late())),
        jumped(assembler),
        assembler.take_odd()["outside"],
    )


def model_outcome(limits: SequenceSettings, table: list[Row], records: list[Record]) -> Outcome:
    model = Model(limits, table)
    for offset, record in enumerate(records):
        model.push(record, offset)
    model.end_of_input()
    return Counter(model.cuts), Counter(model.late), Counter(offset for offset, _ in model.jumped), model.outside


@given(table_settings(), rows(), arrivals())
@settings(max_examples=examples(400))
def test_agrees_with_the_model_sample_by_sample(
    limits: SequenceSettings, table: list[Row], records: list[Record]
) -> None:
    assert outcome(limits, table, records) == model_outcome(limits, table, records)


@given(table_settings(), rows(), orderly())
@settings(max_examples=examples(200))
def test_agrees_with_the_model_where_samples_go_the_short_ways(
    limits: SequenceSettings, table: list[Row], records: list[Record]
) -> None:
    assert outcome(limits, table, records) == model_outcome(limits, table, records)


@given(table_settings(), rows(), arrivals(), st.data())
@settings(max_examples=examples(200))
def test_chunking_changes_nothing(
    limits: SequenceSettings, table: list[Row], records: list[Record], data: st.DataObject
) -> None:
    clock = data.draw(st.sampled_from([None, 60]))
    singles = [
        replace(record, record_us=clock, times=(time,), rows=(row,), end=False)
        for record in records
        for time, row in zip(record.times, record.rows, strict=True)
    ]
    chunks: list[Record] = []
    for single in singles:
        last = chunks[-1] if chunks else None
        if last is not None and (last.stream, last.route) == (single.stream, single.route) and data.draw(st.booleans()):
            chunks[-1] = replace(last, times=last.times + single.times, rows=last.rows + single.rows)
        else:
            chunks.append(single)

    def without_positions(found: Outcome) -> Outcome:
        cuts, lates, jumped, outside = found
        return (
            Counter(replace(cut, first_position=(0, 0), routes=tuple(sorted(cut.routes))) for cut in cuts.elements()),
            Counter(replace(late, offset=0) for late in lates.elements()),
            Counter({0: jumped.total()}),
            outside,
        )

    ours, theirs = outcome(limits, table, chunks), outcome(limits, table, singles)
    assert without_positions(ours) == without_positions(theirs)


@given(table_settings(), rows(), arrivals())
def test_no_sample_is_lost_or_counted_twice(limits: SequenceSettings, table: list[Row], records: list[Record]) -> None:
    assembler = Assembler("p", limits, table=table_of([replace(row, end_us=row.end_us or 10**9) for row in table]))
    finished = read_to_end(assembler, records)
    late = assembler.take_late()
    in_cuts = sum(
        closed.sequence.n_samples + closed.sequence.merged for closed in finished if not closed.sequence.is_late
    )
    of_late = sum(len(samples.times_us) + samples.merged for samples in late)
    n = sum(len(record.times) for record in records)
    assert n == in_cuts + of_late + jumped(assembler).total() + assembler.take_odd()["outside"]
