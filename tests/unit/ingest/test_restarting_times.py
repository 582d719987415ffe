"""The end mode ``restart``: a relative time below the one before it begins a sequence, with or without ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.assembly import Assembler
from streamad.settings.plant_yaml import SequenceSettings
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import restarting, restarting_settings, us
from tests.support.ingest.assembly_model import Cut, Late, Record, cut_of, lates_of
from tests.support.ingest.ended_input import jumped, read_to_end

ONE = (1.0, 2.0)


def outcome(limits: SequenceSettings, records: list[Record]) -> tuple[list[Cut], list[Late], int]:
    """Run the records to their end; return the sequences, the late samples and how many times were wrong."""
    assembler = Assembler("p", limits)
    finished = read_to_end(assembler, records, relative=True)
    return list(map(cut_of, finished)), lates_of(assembler.take_late()), jumped(assembler).total()


def ends(limits: SequenceSettings, *records: Record) -> list[tuple[str, list[int]]]:
    """Return reason and times since the first sample of each sequence."""
    cuts, late, _ = outcome(limits, list(records))
    assert late == []
    return [(cut.reason, [time - cut.times[0] for time in cut.times]) for cut in cuts]


def record(*times: int, key: str | None = None, end: bool = False, at: int | None = None) -> Record:
    return Record("r", key, times, tuple((float(time), 2.0) for time in times), end, at)


RESTART = us(end=("restart",), max_duration=50)


# --- boundaries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [None, 1_000])
@pytest.mark.parametrize(("time", "is_over"), [(8, False), (7, False), (6, True), (0, True)])
def test_a_time_one_tick_below_the_one_before_begins_a_sequence(time: int, is_over: bool, at: int | None) -> None:
    found = ends(RESTART, record(3, at=at), record(7, at=at), record(time, at=at))
    assert found[0] == (("restart", [0, 4]) if is_over else ("end_of_input", [0, 4, 5][: time - 5]))
    assert len(found) == 1 + is_over


def test_a_message_with_two_beginnings_holds_two_sequences() -> None:
    found = ends(RESTART, record(0, 1, 2, 0, 1), record(2))
    assert found == [("restart", [0, 1, 2]), ("end_of_input", [0, 1, 2])]


def test_a_time_that_restarts_is_looked_for_in_each_stream() -> None:
    both = [replace(record(time, at=9), stream=name) for time in (5, 6) for name in "rs"]
    assert ends(RESTART, *both, replace(record(5, at=9), stream="s")) == [
        ("restart", [0, 1]),
        ("end_of_input", [0, 1]),
        ("end_of_input", [0]),
    ]


@pytest.mark.parametrize(
    ("first", "limits", "reason"),
    [
        (record(0, 5, end=True), us(end=("restart", "marker"), max_duration=50), "marker"),
        (record(0, 5, 51), RESTART, "max_duration"),
        (record(0, 5, 9), us(end=("restart", "gap"), gap=5, max_duration=3), "max_duration"),
        (record(0, 5), us(end=("restart", "length"), length=2), "length"),
        (record(0, 5, 6), us(end=("restart",), max_samples=2), "max_samples"),
    ],
)
def test_a_time_restarts_whatever_ended_the_sequence_before(
    first: Record, limits: SequenceSettings, reason: str
) -> None:
    found = ends(limits, first, record(0, 1))
    assert reason in [each for each, _ in found]
    assert found[-1] == (found[-1][0], [0, 1])


def test_times_count_on_after_an_end_that_is_no_restart() -> None:
    cuts, _, _ = outcome(us(end=("restart",), max_samples=2), [record(0, 5), record(9, 10), record(0)])
    assert [cut.times for cut in cuts] == [(0, 5), (9, 10), (1_000_010,)]


def test_an_id_that_goes_on_begins_anew_where_its_time_does_once_it_is_forgotten() -> None:
    limits = us(end=("restart", "change"), max_duration=50, closed_memory=0)
    found = ends(limits, record(0, 1, key="A"), record(0, 1, key="B"), record(0, 1, key="A", at=None))
    assert [reason for reason, _ in found] == ["change", "change", "end_of_input"]
    again = [record(0, 1, key="A"), record(0, 1, key="A")]
    cuts, late, _ = outcome(us(end=("restart",), max_duration=50), again)
    assert ([cut.reason for cut in cuts], [each.closed for each in late]) == (["restart"], [True, True])


# --- laws ------------------------------------------------------------------------------------------------------------


def plain_sequences(records: list[Record], most: int) -> Counter[tuple[str, tuple[int, ...], tuple[float, ...]]]:
    """Return the sequences of ``records`` without ids, sample by sample: stream, times since the first, readings."""
    found: Counter[tuple[str, tuple[int, ...], tuple[float, ...]]] = Counter()
    for stream in {record.stream for record in records}:
        number, last, samples = 0, None, []
        for record in records:
            for time, row in zip(record.times, record.rows, strict=True):
                if record.stream != stream:
                    continue
                number += last is not None and time < last
                last = time
                samples.append((number, time, row[0]))
        for _, group in groupby(samples, key=lambda sample: sample[0]):
            of_one = {time: reading for _, time, reading in group}
            times, readings = list(of_one), list(of_one.values())
            for start in range(0, len(times), most):
                part = times[start : start + most]
                found[stream, tuple(time - part[0] for time in part), tuple(readings[start : start + most])] += 1
    return found


@given(restarting(farthest=3), st.sampled_from([1, 3, 1_000]))
def test_sequences_begin_where_the_time_does(records: list[Record], most: int) -> None:
    records = [replace(record, sequence=None) for record in records]
    cuts, late, jumped = outcome(us(end=("restart",), max_samples=most), records)
    found = Counter(
        (cut.stream, tuple(time - cut.times[0] for time in cut.times), tuple(row[0] for row in cut.rows))
        for cut in cuts
    )
    assert (late, jumped) == ([], 0)
    assert found == plain_sequences(records, most)


@given(restarting_settings(), restarting(clock="constant") | restarting(clock="none"), st.data())
@settings(max_examples=examples(200))
def test_chunking_changes_nothing(limits: SequenceSettings, records: list[Record], data: st.DataObject) -> None:
    singles = [
        replace(record, times=(time,), rows=(row,), end=record.end and index == len(record.times) - 1)
        for record in records
        for index, (time, row) in enumerate(zip(record.times, record.rows, strict=True))
    ]
    chunks: list[Record] = []
    for single in singles:
        last = chunks[-1] if chunks else None
        joins = last is not None and (last.stream, last.sequence, last.end) == (single.stream, single.sequence, False)
        if joins and last is not None and data.draw(st.booleans()):
            chunks[-1] = replace(last, times=last.times + single.times, rows=last.rows + single.rows, end=single.end)
        else:
            chunks.append(single)

    def without_positions(found: tuple[list[Cut], list[Late], int]) -> object:
        cuts, lates, jumped = found
        ours = Counter(replace(cut, first_position=(0, 0)) for cut in cuts)
        return ours, Counter(replace(late, offset=0) for late in lates), jumped

    assert without_positions(outcome(limits, chunks)) == without_positions(outcome(limits, singles))
