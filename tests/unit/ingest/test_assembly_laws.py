"""The laws of the assembler (``docs/guide/sequences.md``), each for any settings and records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamad.ingest.assembly import Assembler
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.settings.plant_yaml import SequenceSettings
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import HOLDS, arrivals, orderly, orderly_settings, sequence_settings, us
from tests.support.ingest.assembly_model import Cut, Late, Record, cut_of, lates_of, model_outcome, singles_of
from tests.support.ingest.buffered import pending_samples
from tests.support.ingest.ended_input import jumped, read_to_end

ONE = (1.0, 2.0)
Outcome = tuple[Counter[Cut], Counter[Late], Counter[int]]


# --- what comes of it ------------------------------------------------------------------------------------------------


HELD = {0: "x", 1: "y"}


def outcome(
    limits: SequenceSettings,
    records: list[Record],
    expire: dict[int, int] | None = None,
    holds: dict[int, str] | None = None,
) -> Outcome:
    """Run the records to their end; ``expire`` maps offsets to the wall clock's word after them."""
    assembler = Assembler("p", limits, holds=holds)
    finished = read_to_end(assembler, records, expire)
    return Counter(map(cut_of, finished)), Counter(lates_of(assembler.take_late())), jumped(assembler)


def without_positions(found: Outcome) -> Outcome:
    """Return ``found`` as it is when the same samples come in other records."""
    cuts, lates, jumped = found
    return (
        Counter(replace(cut, first_position=(0, 0), routes=tuple(sorted(cut.routes))) for cut in cuts.elements()),
        Counter(replace(late, offset=0) for late in lates.elements()),
        Counter({0: jumped.total()}),
    )


# --- the laws --------------------------------------------------------------------------------------------------------


@given(sequence_settings(), arrivals())
@example(us(end=("marker",)), [Record("r", "A", (0,), (ONE,)), Record("r", "A", (0, 1), (ONE, ONE), end=True)])
@example(
    # The clock at 101 decides on the sample held at 71: the second one at 71 comes before r is silent again.
    us(end=("length",), length=1, max_duration=0, max_samples=1, allowed_lateness=5),
    [
        Record("r", "A", (60,), (ONE,)),
        Record("s", "A", (90,), (ONE,)),
        Record("r", "A", (63,), (ONE,)),
        Record("r", "A", (71,), (ONE,)),
        Record("t", "A", (101,), (ONE,)),
        Record("r", "A", (71,), (ONE,)),
    ],
)
@example(
    # Of two times in one record the first decides on the sample held at 68: its sequence ends by silence at 89.
    us(end=("marker",), max_duration=11, max_samples=9, allowed_lateness=9),
    [
        Record("r", "A", (18,), (ONE,)),
        Record("r", "A", (68,), (ONE,)),
        Record("s", "B", (68, 88), (ONE, ONE)),
        Record("s", "B", (98,), (ONE,)),
    ],
)
@example(
    # The newest late sample of A came at 61: one more at 61 is of a sequence that has ended.
    us(end=("marker",), max_duration=0, max_samples=1, allowed_lateness=0),
    [
        Record("r", "B", (62,), (ONE,), record_us=60),
        Record("r", "A", (60, 61), (ONE, ONE), record_us=60),
        Record("r", "A", (61,), (ONE,), record_us=61),
    ],
)
@settings(max_examples=examples(400))
def test_agrees_with_the_model_sample_by_sample(limits: SequenceSettings, records: list[Record]) -> None:
    assert outcome(limits, records) == model_outcome(limits, records)


@given(orderly_settings(), orderly())
def test_agrees_with_the_model_where_samples_go_the_short_ways(limits: SequenceSettings, records: list[Record]) -> None:
    assert outcome(limits, records) == model_outcome(limits, records)


@given(sequence_settings(), arrivals(), HOLDS)
@settings(max_examples=examples(400))
def test_a_sequence_begins_with_the_newest_readings_before_it(
    limits: SequenceSettings, records: list[Record], holds: dict[int, str]
) -> None:
    assert outcome(limits, records, holds=holds) == model_outcome(limits, records, holds)


@given(orderly_settings(), orderly(), HOLDS)
def test_a_sequence_begins_with_the_newest_readings_where_samples_go_the_short_ways(
    limits: SequenceSettings, records: list[Record], holds: dict[int, str]
) -> None:
    assert outcome(limits, records, holds=holds) == model_outcome(limits, records, holds)


@given(sequence_settings(), arrivals())
def test_no_sample_is_lost_or_counted_twice(limits: SequenceSettings, records: list[Record]) -> None:
    assembler = Assembler("p", limits)
    pushed = in_cuts = late = merged = jumped = 0

    def count(finished: list[Closed]) -> None:
        nonlocal in_cuts, late, merged, jumped
        in_cuts += sum(closed.sequence.n_samples for closed in finished if not closed.sequence.is_late)
        found = assembler.take_late()
        late += sum(len(samples.times_us) for samples in found)
        merged += sum(each.merged for each in (*(closed.sequence for closed in finished), *found))
        jumped += sum(resolved.error is not None for resolved in assembler.jumps.take_resolved())
        assert pushed == jumped + in_cuts + late + merged + pending_samples(assembler) + len(assembler.jumps.held)

    for offset, record in enumerate(records):
        pushed += len(record.times)
        count(assembler.push(record.block(offset), record.record_us))
    count(assembler.end_of_input())
    assert pending_samples(assembler) == len(assembler.jumps.held) == assembler.buffered_bytes == 0


@given(sequence_settings(), arrivals())
def test_held_bytes_are_those_of_the_pending_samples(limits: SequenceSettings, records: list[Record]) -> None:
    assembler = Assembler("p", limits)

    def check() -> None:
        assert (assembler.buffered_bytes == 0) == (pending_samples(assembler) == 0)
        assert 0 <= assembler.buffered_bytes <= 416 * pending_samples(assembler)  # a run of one sample of two channels

    for offset, record in enumerate(records):
        assembler.push(record.block(offset), record.record_us)
        check()
    while pending_samples(assembler):
        before = pending_samples(assembler)
        assembler.evict_largest()
        assert pending_samples(assembler) < before
        check()
    assert assembler.buffered_bytes == 0
    assert assembler.evict_largest() == []


@given(sequence_settings(), arrivals(), st.data())
def test_chunking_changes_nothing(limits: SequenceSettings, records: list[Record], data: st.DataObject) -> None:
    clock = data.draw(st.sampled_from([None, 60]))
    singles = singles_of([replace(record, record_us=clock) for record in records])
    chunks: list[Record] = []
    for single in singles:
        last = chunks[-1] if chunks else None
        of_last = last and (last.stream, last.sequence, last.route, last.end)
        joins = last is not None and of_last == (single.stream, single.sequence, single.route, False)
        joins = joins and last is not None and (not single.end or single.times[0] >= max(last.times))
        if joins and last is not None and data.draw(st.booleans()):
            chunks[-1] = replace(last, times=last.times + single.times, rows=last.rows + single.rows, end=single.end)
        else:
            chunks.append(single)
    of_chunks, of_singles = outcome(limits, chunks, holds=HELD), outcome(limits, singles, holds=HELD)
    assert without_positions(of_chunks) == without_positions(of_singles)


@given(sequence_settings(), arrivals(clock="constant", routes="AB"), st.data())
def test_order_within_the_lateness_bound_changes_nothing(
    limits: SequenceSettings, records: list[Record], data: st.DataObject
) -> None:
    by_time = {(single.stream, single.times[0]): single for single in singles_of(records)}
    in_order = [by_time[key] for key in sorted(by_time, key=lambda key: key[1])]
    delays = data.draw(
        st.lists(st.integers(0, limits.allowed_lateness), min_size=len(in_order), max_size=len(in_order))
    )
    arrival = sorted(range(len(in_order)), key=lambda i: in_order[i].times[0] + delays[i])
    found = outcome(limits, [in_order[i] for i in arrival], holds=HELD)
    assert without_positions(found) == without_positions(outcome(limits, in_order, holds=HELD))


@given(sequence_settings(), arrivals(clock="rising"), st.data())
def test_live_and_replay_cut_the_same(limits: SequenceSettings, records: list[Record], data: st.DataObject) -> None:
    clocks = [record.record_us or 0 for record in records]
    expire = {
        offset: data.draw(st.integers(now, later))
        for offset, (now, later) in enumerate(pairwise(clocks))
        if data.draw(st.booleans())
    }
    assert outcome(limits, records, expire, HELD) == outcome(limits, records, holds=HELD)


@given(sequence_settings(), arrivals(clock="constant"))
def test_streams_do_not_disturb_each_other(limits: SequenceSettings, records: list[Record]) -> None:
    cuts, lates, _ = without_positions(outcome(limits, records, holds=HELD))
    for name in {record.stream for record in records}:
        alone = without_positions(outcome(limits, [each for each in records if each.stream == name], holds=HELD))
        assert alone[0] == Counter(cut for cut in cuts.elements() if cut.stream == name)
        assert alone[1] == Counter(late for late in lates.elements() if late.stream == name)
