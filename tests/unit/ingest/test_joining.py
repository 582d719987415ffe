"""The short way of samples that only continue their sequence does what the long way does."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.assembly import Assembler
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.sequences.joining import joined, whole
from streamad.ingest.sequences.streams import PartitionStreams
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import SampleBlock
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import HOLDS, orderly, orderly_settings, us
from tests.support.ingest.assembly_model import Record, all_of, cut_of, lates_of
from tests.support.ingest.buffered import n_buffered, pending_samples

ONE = (1.0, 2.0)


class LongWay(Assembler):
    """An assembler without the short ways."""

    def push(self, block: SampleBlock, record_us: int | None = None) -> list[Closed]:
        with pytest.MonkeyPatch.context() as alone:
            alone.setattr(PartitionStreams, "take_short", lambda *_: False)
            return super().push(block, record_us)


@given(orderly_settings(), orderly(), st.none() | HOLDS, st.data())
@settings(max_examples=examples(150))
def test_the_short_way_does_what_the_long_way_does(
    limits: SequenceSettings, records: list[Record], holds: dict[int, str] | None, data: st.DataObject
) -> None:
    short, long = Assembler("p", limits, holds=holds), LongWay("p", limits, holds=holds)
    progress: dict[Assembler, Progress | None] = {short: None, long: None}
    in_flight: dict[Assembler, deque[Closed]] = {short: deque(), long: deque()}
    for offset, record in enumerate(records):
        for assembler in (short, long):
            in_flight[assembler] += assembler.push(record.block(offset), record.record_us)
        wall_us = data.draw(st.one_of(st.none(), st.integers(0, 60)))
        if wall_us is not None:
            for assembler in (short, long):
                in_flight[assembler] += assembler.expire(wall_us)
        assert list(map(all_of, in_flight[short])) == list(map(all_of, in_flight[long]))
        ours, theirs = short.take_late(), long.take_late()
        assert lates_of(ours) == lates_of(theirs)
        assert [late.merged for late in ours] == [late.merged for late in theirs]
        assert (short.clock_us, pending_samples(short)) == (long.clock_us, pending_samples(long))
        assert short.open_sequences == long.open_sequences
        assert short.buffered_bytes == sum(stream.nbytes for stream in short.streams.values())
        n_committed = data.draw(st.integers(-1, len(in_flight[short])))
        for assembler in (short, long) if n_committed >= 0 else ():
            for _ in range(n_committed):
                assembler.committed(in_flight[assembler].popleft())
            progress[assembler] = merge(progress[assembler], assembler.progress(offset + 1))
        assert progress[short] == progress[long]


def test_a_sample_that_only_continues_its_sequence_changes_no_progress() -> None:
    assembler = Assembler("p", SequenceSettings())
    for offset in range(2):
        assembler.push(Record("r", "A", (offset,), (ONE,)).block(offset), offset)
    assert list(assembler.progress(2).streams) == ["r"]
    assembler.push(Record("r", "A", (2,), (ONE,)).block(2), 2)
    update = assembler.progress(3)
    assert (update.streams, update.low_watermark, update.next_offset) == ({}, 0, 3)


FIRST = Record("r", "A", (10,), (ONE,), route="x")
GAP = us(end=("marker", "gap"), gap=5, max_duration=50)
MARKER = us(end=("marker",), max_duration=50, max_samples=3)
LENGTH = us(end=("length",), length=3)


@pytest.mark.parametrize(
    ("limits", "record", "joins"),
    [
        (MARKER, replace(FIRST, times=(11,)), True),
        (MARKER, replace(FIRST, times=(60,)), True),
        (MARKER, replace(FIRST, times=(61,)), False),  # max_duration
        (MARKER, replace(FIRST, times=(10,)), False),  # merges
        (MARKER, replace(FIRST, times=(9,)), False),  # late
        (MARKER, replace(FIRST, times=(11,), sequence="B"), False),  # begins
        (MARKER, replace(FIRST, times=(11,), end=True), False),
        (MARKER, replace(FIRST, times=(11,), route="y"), False),
        (MARKER, replace(FIRST, times=(11,), route=None), True),
        (MARKER, replace(FIRST, times=(11, 12), rows=(ONE, ONE)), True),
        (MARKER, replace(FIRST, times=(11, 11), rows=(ONE, ONE)), False),
        (MARKER, replace(FIRST, times=(11, 12, 13), rows=(ONE, ONE, ONE)), False),  # max_samples
        (GAP, replace(FIRST, times=(15,)), True),
        (GAP, replace(FIRST, times=(16,)), False),
        (LENGTH, replace(FIRST, times=(11,), end=True), True),  # length alone: the mark ends nothing
        (LENGTH, replace(FIRST, times=(11, 12), rows=(ONE, ONE)), False),
        (us(end=("marker",), allowed_lateness=1), replace(FIRST, times=(11,)), False),  # waits
    ],
)
def test_what_joins_the_short_way(limits: SequenceSettings, record: Record, joins: bool) -> None:
    assembler = Assembler("p", limits)
    assembler.push(FIRST.block(0), 10)
    stream = assembler.streams["r"]
    last_us = joined(stream, record.block(1), 100, is_timed=True)
    assert last_us == (record.times[-1] if joins else None)
    assert (n_buffered(stream), stream.clocks.last_record_us) == ((1 + len(record.times), 100) if joins else (1, 10))


WHOLE = Record("r", "B", (11, 12), (ONE, ONE), end=True, route="y")


@pytest.mark.parametrize(
    ("limits", "record", "is_whole"),
    [
        (MARKER, WHOLE, True),
        (MARKER, replace(WHOLE, times=(10, 60)), True),
        (MARKER, replace(WHOLE, times=(10, 61)), False),  # max_duration
        (MARKER, replace(WHOLE, times=(9, 12)), False),  # the first one is late
        (MARKER, replace(WHOLE, times=(11, 11)), False),  # merges
        (MARKER, replace(WHOLE, rows=(ONE, (None, None))), False),  # a bare marker
        (MARKER, replace(WHOLE, rows=(ONE, (None, 2.0))), False),  # perhaps
        (MARKER, replace(WHOLE, end=False), False),
        (MARKER, replace(WHOLE, times=(911, 912)), True),
        (MARKER, replace(WHOLE, times=(1_009, 1_011)), False),  # far ahead
        (MARKER, replace(WHOLE, sequence=None), False),
        (MARKER, replace(WHOLE, sequence="A"), False),  # A has ended
        (MARKER, replace(WHOLE, times=(11, 12, 13, 14), rows=(ONE,) * 4), False),  # max_samples
        (us(end=("marker", "change")), WHOLE, True),
        (us(end=("change",)), WHOLE, False),
        (us(end=("marker", "length"), length=5), WHOLE, False),
        (us(end=("marker", "gap"), gap=5), WHOLE, False),
        (us(end=("marker",), allowed_lateness=1), WHOLE, False),
    ],
)
def test_what_is_a_whole_sequence_the_short_way(limits: SequenceSettings, record: Record, is_whole: bool) -> None:
    assembler = Assembler("p", limits)
    assembler.push(replace(FIRST, end=True).block(0), 10)
    stream = assembler.streams["r"]
    closed = whole(stream, record.block(1), 10, 30, is_timed=True, farthest_us=1_000)
    assert (closed is not None) == is_whole
    if closed is not None:
        cut = cut_of(closed)
        assert (cut.sequence, cut.times, cut.routes, closed.at_us) == (
            "B",
            record.times,
            ("y",),
            max(30, record.times[-1]),
        )
        assert stream.closed.knows("B", closed.at_us)


def test_the_clock_of_the_last_sample_is_kept() -> None:
    assembler = Assembler("p", MARKER)
    assembler.push(FIRST.block(0), 10)
    assembler.push(replace(FIRST, times=(11,)).block(1), 40)
    (closed,) = assembler.evict_largest()
    assert closed.at_us == 40


def test_what_may_lack_its_beginning_goes_no_short_way() -> None:
    assembler = Assembler("p", MARKER)
    assembler.push(replace(FIRST, end=True).block(0), 10)
    assembler.streams["r"].partial = True
    (closed,) = assembler.push(WHOLE.block(1), 12)
    assert closed.sequence.partial


def test_after_late_samples_of_its_id_there_is_no_short_way_for_a_whole_sequence() -> None:
    assembler = Assembler("p", MARKER)
    assembler.push(replace(FIRST, end=True).block(0), 10)
    assembler.push(replace(FIRST, sequence="B", times=(5,)).block(1), 10)
    (closed,) = assembler.push(WHOLE.block(2), 12)
    assert closed.sequence.partial


def test_beside_an_open_sequence_there_is_no_short_way_for_a_whole_one() -> None:
    assembler = Assembler("p", MARKER)
    assembler.push(FIRST.block(0), 10)
    assert whole(assembler.streams["r"], WHOLE.block(1), 10, 100, is_timed=True, farthest_us=1_000) is None


def test_a_whole_sequence_that_is_done_is_not_taken_again_once_its_id_is_forgotten() -> None:
    limits = us(end=("marker",), max_duration=50, closed_memory=5)
    open_one, done = Record("b", "B", (5,), (ONE,)), Record("r", "A", (10,), (ONE,), end=True)
    first = Assembler("p", limits)
    first.push(open_one.block(0), 5)
    first.committed(*first.push(done.block(1), 10))
    first.push(replace(open_one, times=(30,)).block(2), 30)
    progress = merge(None, first.progress(3))
    assert (progress.low_watermark, progress.streams["r"].closed) == (0, {})
    again = Assembler("p", limits, progress=progress)
    assert again.push(open_one.block(0), 5) + again.push(done.block(1), 10) == []
