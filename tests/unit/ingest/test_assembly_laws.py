"""The laws of the assembler (``docs/guide/sequences.md``), each for any settings and records."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.assembly import Assembler
from streamad.ingest.sequence_ends import Closed
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import SequenceSettings
from tests.support.ingest.assembly_cases import arrivals, sequence_settings
from tests.support.ingest.assembly_model import Cut, Late, Record, cut_of, lates_of, model_outcome

Outcome = tuple[Counter[Cut], Counter[Late]]


# --- what comes of it ------------------------------------------------------------------------------------------------


def outcome(limits: SequenceSettings, records: list[Record], expire: dict[int, int] | None = None) -> Outcome:
    """Run the records to their end; ``expire`` maps offsets to the wall clock's word after them."""
    assembler = Assembler("p", limits)
    finished: list[Closed] = []
    for offset, record in enumerate(records):
        finished += assembler.push(record.block(offset), record.record_us)
        if expire and offset in expire:
            finished += assembler.expire(expire[offset])
    finished += assembler.end_of_input()
    return Counter(map(cut_of, finished)), Counter(lates_of(assembler.take_late()))


def without_positions(found: Outcome) -> Outcome:
    """Return ``found`` as it is when the same samples come in other records."""
    cuts, lates = found
    return (
        Counter(replace(cut, first_position=(0, 0), routes=tuple(sorted(cut.routes))) for cut in cuts.elements()),
        Counter(replace(late, offset=0) for late in lates.elements()),
    )


def singles_of(records: list[Record]) -> list[Record]:
    """Return one record per sample, in the same order."""
    return [
        replace(record, times=(time,), rows=(row,), end=index == record.end_at)
        for record in records
        for index, (time, row) in enumerate(zip(record.times, record.rows, strict=True))
    ]


# --- the laws --------------------------------------------------------------------------------------------------------


@given(sequence_settings(), arrivals())
@settings(max_examples=300)
def test_agrees_with_the_model_sample_by_sample(limits: SequenceSettings, records: list[Record]) -> None:
    cuts, lates, _ = model_outcome(limits, records)
    assert outcome(limits, records) == (cuts, lates)


@given(sequence_settings(), arrivals())
def test_no_sample_is_lost_or_counted_twice(limits: SequenceSettings, records: list[Record]) -> None:
    assembler = Assembler("p", limits)
    pushed = in_cuts = late = 0

    def check() -> None:
        assert pushed == in_cuts + late + assembler.merged + assembler.pending_samples

    for offset, record in enumerate(records):
        finished = assembler.push(record.block(offset), record.record_us)
        pushed += len(record.times)
        in_cuts += sum(closed.sequence.n_samples for closed in finished)
        late += sum(len(samples.times_us) for samples in assembler.take_late())
        check()
    in_cuts += sum(closed.sequence.n_samples for closed in assembler.end_of_input())
    late += sum(len(samples.times_us) for samples in assembler.take_late())
    check()
    assert assembler.pending_samples == 0


@given(sequence_settings(), arrivals())
def test_held_bytes_are_those_of_the_pending_samples(limits: SequenceSettings, records: list[Record]) -> None:
    assembler = Assembler("p", limits)

    def check() -> None:
        assert (assembler.buffered_bytes == 0) == (assembler.pending_samples == 0)
        assert 0 <= assembler.buffered_bytes <= 416 * assembler.pending_samples  # a run of one sample of two channels

    for offset, record in enumerate(records):
        assembler.push(record.block(offset), record.record_us)
        check()
    while assembler.pending_samples:
        before = assembler.pending_samples
        assembler.evict_largest()
        assert assembler.pending_samples < before
        check()
    assert assembler.buffered_bytes == 0
    assert assembler.evict_largest() == []


@given(sequence_settings(), arrivals(), st.data())
def test_chunking_changes_nothing(limits: SequenceSettings, records: list[Record], data: st.DataObject) -> None:
    clock = data.draw(st.sampled_from([None, 50]))
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
    assert without_positions(outcome(limits, chunks)) == without_positions(outcome(limits, singles))


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
    found = outcome(limits, [in_order[i] for i in arrival])
    assert without_positions(found) == without_positions(outcome(limits, in_order))


@given(sequence_settings(), arrivals(clock="rising"), st.data())
def test_live_and_replay_cut_the_same(limits: SequenceSettings, records: list[Record], data: st.DataObject) -> None:
    clocks = [record.record_us or 0 for record in records]
    expire = {
        offset: data.draw(st.integers(now, later))
        for offset, (now, later) in enumerate(pairwise(clocks))
        if data.draw(st.booleans())
    }
    assert outcome(limits, records, expire) == outcome(limits, records)


@given(sequence_settings(), arrivals(clock="constant"))
def test_streams_do_not_disturb_each_other(limits: SequenceSettings, records: list[Record]) -> None:
    cuts, lates = without_positions(outcome(limits, records))
    for name in {record.stream for record in records}:
        alone = without_positions(outcome(limits, [record for record in records if record.stream == name]))
        assert alone[0] == Counter(cut for cut in cuts.elements() if cut.stream == name)
        assert alone[1] == Counter(late for late in lates.elements() if late.stream == name)


# --- the law of restarts ---------------------------------------------------------------------------------------------


class Run:
    """One process after the other on the same records, as the runtime would drive them.

    ``choose(what, n)`` is asked for a number from 0 to n wherever chance decides: whether to commit, how much, whether
    to crash.
    """

    def __init__(
        self,
        limits: SequenceSettings,
        records: list[Record],
        choose: Callable[[str, int], int],
        *,
        from_start: bool,
        has_wall_clock: bool = False,
    ) -> None:
        self.limits = limits
        self.records = records
        self.choose = choose
        self.from_start = from_start
        self.has_wall_clock = has_wall_clock
        self.progress: Progress | None = None
        self.cuts: list[Cut] = []
        self.aside: list[Late | int] = []

    def until_done(self, crashes: int) -> tuple[Counter[Cut], Counter[Late | int]]:
        while not self.live(may_crash=crashes > 0):
            crashes -= 1
        return Counter(self.cuts), Counter(self.aside)

    def live(self, *, may_crash: bool) -> bool:
        """Run one process; return whether it reached the end."""
        progress = self.progress
        assembler = Assembler("p", self.limits, seen_from_start=self.from_start, progress=progress)
        resume_at = progress.next_offset if progress is not None else 0
        in_flight: deque[Closed] = deque()
        aside: list[Late | int] = []
        for offset in range(progress.low_watermark if progress is not None else 0, len(self.records)):
            record = self.records[offset]
            in_flight += assembler.reach(offset)
            assembler.take_late()
            try:
                in_flight += assembler.push(record.block(offset), record.record_us)
            except DecodeError:
                aside += [offset] * (offset >= resume_at)
                in_flight += assembler.observe(record.record_us) if record.record_us is not None else []
            if self.has_wall_clock and offset >= resume_at and offset + 1 < len(self.records):
                in_flight += assembler.expire(self.wall_clock(offset))
            late = lates_of(assembler.take_late())
            aside += late if offset >= resume_at else []
            if self.choose("commit", 2) == 1:
                self.commit(assembler, in_flight, aside, self.choose("verdicts", len(in_flight)), offset + 1)
            if may_crash and self.choose("crash", 12) == 12:
                return False
        in_flight += assembler.reach(len(self.records))
        assembler.take_late()
        in_flight += assembler.end_of_input()
        late = lates_of(assembler.take_late())
        aside += late if progress is None or not progress.ended else []
        verdicts = self.choose("verdicts", len(in_flight)) if may_crash else len(in_flight)
        self.commit(assembler, in_flight, aside, verdicts, len(self.records), ended=True)
        return not in_flight

    def wall_clock(self, offset: int) -> int:
        now, later = (self.records[i].record_us or 0 for i in (offset, offset + 1))
        return now + self.choose("wait", max(0, later - now))

    def commit(
        self,
        assembler: Assembler,
        in_flight: deque[Closed],
        aside: list[Late | int],
        verdicts: int,
        read: int,
        *,
        ended: bool = False,
    ) -> None:
        for _ in range(verdicts):
            closed = in_flight.popleft()
            self.cuts.append(cut_of(closed))
            assembler.committed(closed)
        self.aside += aside
        aside.clear()
        resume_at = self.progress.next_offset if self.progress is not None else 0
        ended = ended or (self.progress is not None and self.progress.ended)
        update = msgspec.structs.replace(assembler.progress(max(read, resume_at)), ended=ended)
        merged = merge(self.progress, update)
        assert merged.low_watermark <= merged.next_offset
        self.progress = msgspec.msgpack.decode(msgspec.msgpack.encode(merged), type=Progress)


def never(_: str, __: int) -> int:
    return 0


@given(sequence_settings(), arrivals(), st.integers(1, 3), st.data())
@settings(max_examples=400)
def test_restarts_repeat_nothing_and_lose_nothing(
    limits: SequenceSettings, records: list[Record], crashes: int, data: st.DataObject
) -> None:
    from_start = data.draw(st.booleans())
    max_streams = data.draw(st.integers(1, 3))
    if max_streams < 3:  # fewer than may come; who is refused is exact only while no stream is forgotten
        limits = limits.model_copy(update={"max_streams": max_streams, "closed_memory": 1000})
    uninterrupted = Run(limits, records, never, from_start=from_start).until_done(0)
    run = Run(limits, records, lambda what, n: data.draw(st.integers(0, n), label=what), from_start=from_start)
    assert run.until_done(crashes) == uninterrupted


@given(sequence_settings(), arrivals(clock="rising"), st.integers(1, 3), st.data())
def test_restarts_after_the_wall_clock_ended_sequences(
    limits: SequenceSettings, records: list[Record], crashes: int, data: st.DataObject
) -> None:
    uninterrupted = Run(limits, records, never, from_start=True).until_done(0)
    run = Run(
        limits, records, lambda what, n: data.draw(st.integers(0, n), label=what), from_start=True, has_wall_clock=True
    )
    assert run.until_done(crashes) == uninterrupted
