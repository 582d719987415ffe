"""The assembler at its boundaries: exactly at each limit, one tick before and one after."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from streamad.errors import DecodeError
from streamad.ingest.assembly import Assembler
from streamad.ingest.sequences import closed_sequences
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import MAX_TIME_US, SampleBlock
from tests.support.ingest.assembly_cases import us

NAN = float("nan")


class Plant:
    """Feeds an assembler one record after the other."""

    def __init__(self, limits: SequenceSettings, *, relative: bool = False, **how: Any) -> None:
        self.assembler = Assembler("p", limits, **how)
        self.relative = relative
        self.offset = 0
        self.finished: list[Closed] = []

    def send(
        self,
        *times: int,
        at: int | None = 0,
        stream: str = "r",
        id: str | None = "A",
        end: bool = False,
        value: Any = 1,
        route: str | None = None,
    ) -> list[tuple[str, str, list[int]]]:
        values = np.array([[value, 0.0]] * len(times), dtype=np.float32)
        if np.isnan(value):
            values[:] = NAN
        array = np.array(times, dtype=np.int64)
        block = SampleBlock(stream, id, self.offset, array, values, end, None, self.relative, route)
        self.offset += 1
        finished = self.assembler.push(block, at)
        self.finished += finished
        return told(finished)

    @property
    def routes(self) -> list[tuple[str, ...]]:
        return [closed.sequence.routes for closed in self.finished]

    def late(self) -> list[tuple[int, bool]]:
        return [(time, late.closed) for late in self.assembler.take_late() for time in late.times_us.tolist()]


def told(finished: list[Closed]) -> list[tuple[str, str, list[int]]]:
    return [(c.sequence.sequence, c.sequence.reason, c.sequence.times_us.tolist()) for c in finished]


# --- ends by event time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["chunk", "singles"])
@pytest.mark.parametrize(("second", "is_over"), [(9, False), (10, False), (11, True)])
def test_gap_exactly_at_limit(sent: str, second: int, is_over: bool) -> None:
    plant = Plant(us(end=("gap",), gap=10))
    finished = (
        plant.send(0, second, id=None) if sent == "chunk" else plant.send(0, id=None) + plant.send(second, id=None)
    )
    assert finished == ([("1970-01-01T00:00:00+00:00", "gap", [0])] if is_over else [])


def test_the_times_of_a_chunk_end_no_sequence_before_its_samples_are_taken() -> None:
    plant = Plant(us(max_duration=20))
    plant.send(0, at=None)
    plant.send(10, at=None)
    # The clock at 25 has passed the limit of what began at 0; the sample at 15 belongs to it all the same.
    assert plant.send(15, 25, at=None) == [("A", "max_duration", [0, 10, 15])]
    assert plant.late() == [(25, True)]


@pytest.mark.parametrize("sent", ["chunk", "singles"])
@pytest.mark.parametrize(("last", "is_over"), [(19, False), (20, False), (21, True)])
def test_max_duration_exactly_at_limit(sent: str, last: int, is_over: bool) -> None:
    plant = Plant(us(max_duration=20))
    finished = plant.send(0, 10, last) if sent == "chunk" else plant.send(0, 10) + plant.send(last)
    assert finished == ([("A", "max_duration", [0, 10])] if is_over else [])
    assert plant.late() == ([(21, True)] if is_over else [])


def test_a_second_sample_exactly_at_max_duration_ends_nothing_either() -> None:
    plant = Plant(us(max_duration=20))
    assert plant.send(0) + plant.send(20) + plant.send(20) == []
    assert plant.send(21) == [("A", "max_duration", [0, 20])]


@pytest.mark.parametrize(("last", "reason"), [(9, "gap"), (10, "gap"), (11, "max_duration")])
def test_the_reason_is_the_limit_that_comes_first_and_of_two_at_once_the_gap(last: int, reason: str) -> None:
    plant = Plant(us(end=("gap",), gap=11, max_duration=21))
    assert plant.send(0) + plant.send(last) == []
    assert plant.send(100) == [("A", reason, [0, last])]


@pytest.mark.parametrize("sent", ["chunk", "singles"])
@pytest.mark.parametrize(("n", "is_over"), [(2, False), (3, False), (4, True)])
def test_max_samples_exactly_at_limit(sent: str, n: int, is_over: bool) -> None:
    plant = Plant(us(max_samples=3))
    finished = plant.send(*range(n)) if sent == "chunk" else [cut for time in range(n) for cut in plant.send(time)]
    assert finished == ([("A", "max_samples", [0, 1, 2])] if is_over else [])


@pytest.mark.parametrize("sent", ["chunk", "singles"])
@pytest.mark.parametrize(("n", "is_over"), [(2, False), (3, True)])
def test_length_ends_on_the_last_sample(sent: str, n: int, is_over: bool) -> None:
    plant = Plant(us(end=("length",), length=3))
    finished = plant.send(*range(n)) if sent == "chunk" else [cut for time in range(n) for cut in plant.send(time)]
    assert finished == ([("A", "length", [0, 1, 2])] if is_over else [])


def test_bare_marker_is_no_sample() -> None:
    plant = Plant(us(end=("marker",)))
    plant.send(0, 1)
    assert plant.send(2, end=True, value=NAN) == [("A", "marker", [0, 1])]
    assert [closed.sequence.merged for closed in plant.finished] == [1]
    assert plant.assembler.buffered_bytes == 0


def test_what_comes_after_a_bare_marker_without_ids_is_the_next_sequence() -> None:
    plant = Plant(us(end=("marker",)))
    plant.send(0, id=None)
    plant.send(5, end=True, value=NAN, id=None)
    assert plant.send(5, id=None) == []
    assert plant.late() == [(5, True)]
    assert plant.send(6, end=True, id=None) == [("1970-01-01T00:00:00.000006+00:00", "marker", [6])]


# --- lateness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("time", "late"), [(16, []), (15, []), (14, [(14, False)])])
def test_late_exactly_at_watermark(time: int, late: list[tuple[int, bool]]) -> None:
    plant = Plant(us(allowed_lateness=5))
    plant.send(20)
    plant.send(time)
    assert plant.late() == late


@pytest.mark.parametrize(("newest", "is_over"), [(14, False), (15, True), (16, True)])
def test_marker_waits_for_the_watermark(newest: int, is_over: bool) -> None:
    plant = Plant(us(end=("marker",), allowed_lateness=5))
    assert plant.send(8, 10, end=True) == []
    finished = plant.send(newest, id="B")
    assert finished == ([("A", "marker", [8, 10])] if is_over else [])


@pytest.mark.parametrize(("clock", "is_over"), [(105, False), (106, True)])
def test_waiting_sequences_are_released_when_the_stream_is_silent(clock: int, is_over: bool) -> None:
    plant = Plant(us(end=("marker",), allowed_lateness=5))
    plant.send(10, end=True, at=100)
    assert told(plant.assembler.expire(clock)) == ([("A", "marker", [10])] if is_over else [])
    plant.send(9, id="B", at=clock)
    assert plant.late() == ([(9, False)] if is_over else [])


# --- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize(("past", "is_over"), [(-1, False), (0, False), (1, True)])
def test_silence_exactly_at_gap(lateness: int, past: int, is_over: bool) -> None:
    clock = 100 + 10 + lateness + past
    ended = [("A", "gap", [0])] if is_over else []
    plant = Plant(us(end=("gap",), gap=10, allowed_lateness=lateness))
    plant.send(0, at=100)
    assert plant.send(0, stream="other", at=clock) == ended
    live = Plant(us(end=("gap",), gap=10, allowed_lateness=lateness))
    live.send(0, at=100)
    assert told(live.assembler.expire(clock)) == ended


@pytest.mark.parametrize(("clock", "is_over"), [(124, False), (125, False), (126, True)])
def test_silence_exactly_at_max_duration(clock: int, is_over: bool) -> None:
    plant = Plant(us(max_duration=20, allowed_lateness=5))
    plant.send(0, at=100)
    plant.send(1, at=103)
    assert told(plant.assembler.expire(clock)) == ([("A", "max_duration", [0, 1])] if is_over else [])


def test_a_late_look_at_the_clock_gives_what_an_early_one_would() -> None:
    """Released late, a sample must not count as begun late: its sequence would stay open too long."""
    plant = Plant(us(end=("marker",), allowed_lateness=5, max_duration=20))
    plant.send(0, at=100)
    assert told(plant.assembler.observe(1000)) == [("A", "max_duration", [0])]


@pytest.mark.parametrize("at", [None, 50])
def test_a_chunk_is_not_torn_by_its_own_last_time(at: int | None) -> None:
    plant = Plant(us(end=("gap",), gap=10))
    plant.send(0, at=at)
    assert plant.send(8, 16, at=at) == []


def test_the_clock_never_goes_back() -> None:
    plant = Plant(us(end=("gap",), gap=10))
    plant.send(0, at=100)
    plant.send(1, at=50)
    assert plant.assembler.clock_us == 100
    assert told(plant.assembler.observe(110)) == []
    assert told(plant.assembler.observe(111)) == [("A", "gap", [0, 1])]


# --- memory of what is closed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clock", "recurs"), [(129, False), (130, False), (131, True)])
def test_an_id_recurs_after_closed_memory(clock: int, recurs: bool) -> None:
    plant = Plant(us(end=("marker",), closed_memory=30))
    plant.send(0, at=100, end=True)
    plant.send(1, at=clock)
    assert plant.late() == ([] if recurs else [(1, True)])


def test_an_id_is_remembered_for_a_sample_that_waits_longer_than_closed_memory() -> None:
    """It came within that time; when it is released, other sequences have ended, and their ends forget old ids."""
    plant = Plant(us(end=("marker",), allowed_lateness=50, closed_memory=10))
    plant.send(0, 5, at=100, end=True)
    plant.send(20, id="B", at=102, end=True)
    plant.send(30, at=103)
    assert plant.send(60, id="C", at=104) == [("A", "marker", [0, 5])]
    assert plant.send(72, id="C", at=120) == [("B", "marker", [20])]
    plant.send(85, id="C", at=121)
    assert plant.late() == [(30, True)]


@pytest.mark.parametrize(
    ("clock", "is_known"),
    [(100 + 20 + 5 + 29, True), (100 + 20 + 5 + 30, True), (100 + 20 + 5 + 31, False)],
)
def test_a_stream_is_forgotten_after_its_last_possible_end_and_closed_memory(clock: int, is_known: bool) -> None:
    plant = Plant(us(max_duration=20, allowed_lateness=5, closed_memory=30, max_streams=1))
    plant.send(0, at=100)
    plant.assembler.observe(clock)
    if is_known:
        with pytest.raises(DecodeError, match="max_streams"):
            plant.send(0, stream="other", at=clock)
    else:
        plant.send(0, stream="other", at=clock)
    assert plant.assembler.take_new_streams() == ["r"] + ["other"] * (not is_known)


def test_a_stream_that_ended_all_it_sent_is_forgotten_too() -> None:
    plant = Plant(us(end=("marker",), max_duration=20, closed_memory=30, max_streams=1))
    plant.send(0, at=100, end=True)
    plant.send(0, at=151, stream="other")
    assert plant.assembler.take_new_streams() == ["r", "other"]


def test_a_refused_stream_does_not_swallow_what_its_record_ended() -> None:
    plant = Plant(us(end=("gap",), gap=10, max_streams=1))
    plant.send(0, at=100)
    with pytest.raises(DecodeError) as refused:
        plant.send(0, stream="other", at=200)
    assert refused.value.kind == "too_many_streams"
    assert told(plant.assembler.observe(200)) == [("A", "gap", [0])]


def test_remembered_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_sequences, "MAX_CLOSED_IDS", 10)
    plant = Plant(us(end=("marker",)))
    for i in range(50):
        plant.send(i, id=f"B{i}", end=True)
    plant.assembler.take_late()
    for i in range(50):
        plant.send(100 + i, id=f"B{i}")
    assert plant.late() == [(100 + i, True) for i in range(40, 50)]


def test_deadlines_do_not_pile_up() -> None:
    plant = Plant(us(end=("gap",), gap=10, closed_memory=10**9))

    def held_after(first: int) -> int:
        for i in range(first, first + 3000):
            plant.send(i * 100, id=None, at=i * 100)
            while plant.finished:
                plant.assembler.committed(plant.finished.pop())
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        held = held_after(0)
        assert held_after(3000) < held + 50_000  # 3000 deadlines take more than 200,000 bytes
    finally:
        tracemalloc.stop()


# --- the end of the input, memory ------------------------------------------------------------------------------------


def test_memory_ends_the_largest() -> None:
    plant = Plant(us(end=("marker",), allowed_lateness=5))
    plant.send(0, 1, id="A", stream="small")
    plant.send(*range(100), id="B", stream="large")
    assert told(plant.assembler.evict_largest()) == [("B", "memory", list(range(100)))]
    assert told(plant.assembler.evict_largest()) == [("A", "memory", [0, 1])]
    assert plant.assembler.evict_largest() == []


# --- the first sequences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clock", "is_partial"), [(120, True), (121, False)])
def test_a_beginning_may_have_gone_unseen_for_max_duration(clock: int, is_partial: bool) -> None:
    plant = Plant(us(max_duration=20), seen_from_start=False)
    plant.send(0, at=100, stream="first")
    plant.send(0, at=clock, stream="r", id="A")
    plant.send(1, at=clock, stream="r", id="B")
    finished = plant.finished + plant.assembler.end_of_input()
    partial = {c.sequence.sequence: c.sequence.partial for c in finished if c.sequence.stream == "r"}
    assert partial == {"A": is_partial, "B": False}


# --- how old what waits is -------------------------------------------------------------------------------------------


def test_the_low_watermark_is_as_old_as_its_own_record_not_as_the_one_before() -> None:
    plant = Plant(us())
    plant.send(0, at=100, stream="first")
    first = plant.assembler.progress(1)
    assert (first.low_watermark, first.low_watermark_us, first.clock_us) == (0, 100, None)
    (done,) = plant.assembler.push(SampleBlock("first", "A", 1, np.array([1]), np.ones((1, 2), np.float32), True), 110)
    plant.assembler.committed(done)
    nothing_waits = plant.assembler.progress(2)
    assert (nothing_waits.low_watermark, nothing_waits.low_watermark_us) == (2, 110)
    plant.offset = 2
    plant.send(2, at=1_000_000, stream="first", id="B")
    after_a_break = plant.assembler.progress(3)
    assert (after_a_break.low_watermark, after_a_break.low_watermark_us) == (2, 1_000_000)
    assert after_a_break.clock_us == 110


# --- lost samples ----------------------------------------------------------------------------------------------------


def lost(plant: Plant) -> list[tuple[int, int, int]]:
    plant.finished += plant.assembler.end_of_input()
    return [(c.sequence.merged, c.sequence.displaced, c.sequence.n_late) for c in plant.finished]


@pytest.mark.parametrize("lateness", [0, 5])
def test_a_sample_that_replaces_another_value_is_displaced_and_an_equal_copy_is_not(lateness: int) -> None:
    plant = Plant(us(allowed_lateness=lateness))
    for time, value in ((1, 7.0), (2, 7.0), (2, 7.0), (2, 8.0), (2, 7.0), (3, 7.0)):
        plant.send(time, value=value)
    assert lost(plant) == [(3, 2, 0)]


def test_channels_that_complete_each_other_displace_nothing() -> None:
    plant = Plant(us())
    for row in ([1.0, NAN], [NAN, 2.0], [1.0, NAN], [NAN, 3.0]):
        plant.assembler.push(SampleBlock("r", "A", plant.offset, np.array([5]), np.array([row], np.float32)), 0)
        plant.offset += 1
    assert lost(plant) == [(3, 1, 0)]


def test_late_samples_count_in_their_sequence_while_it_is_open() -> None:
    plant = Plant(us(end=("marker",)))
    plant.send(5)
    plant.send(3, 4, id="B")  # late, and no sequence of their own yet
    plant.send(6, id="B")
    plant.send(4, 4)
    plant.send(9, end=True)
    plant.send(5)  # its sequence has ended
    plant.send(8, id="B")
    assert lost(plant) == [(0, 0, 2), (0, 0, 3)]
    assert len(plant.late()) == 6


def test_late_samples_without_an_id_count_in_the_open_sequence_since_its_start() -> None:
    plant = Plant(us(end=("marker",), allowed_lateness=1))
    plant.send(5, 10, id=None)
    plant.send(4, 6, id=None)
    assert lost(plant) == [(0, 0, 1)]


# --- times relative to the start -------------------------------------------------------------------------------------


def test_relative_times_begin_at_the_records_own_time() -> None:
    plant = Plant(us(), relative=True)
    plant.send(0, 5, at=1000)
    assert plant.send(9, at=1010, end=True) == [("A", "marker", [1000, 1005, 1009])]


def test_whole_sequences_with_relative_times_never_overlap() -> None:
    plant = Plant(us(), relative=True)
    assert plant.send(0, 500, at=1000, id="A", end=True) == [("A", "marker", [1000, 1500])]
    assert plant.send(0, 20, at=1100, id="B", end=True) == [("B", "marker", [1501, 1521])]
    assert plant.late() == []


def test_relative_times_without_ids_restart_after_the_marker() -> None:
    plant = Plant(us(end=("marker",), allowed_lateness=5), relative=True)
    plant.send(0, 3, at=100, id=None, end=True)
    plant.send(0, at=110, id=None)
    plant.send(2, at=112, id=None, end=True)
    finished = plant.assembler.end_of_input()
    assert [times for _, _, times in told(finished)] == [[110, 112]]


def test_relative_times_of_records_without_time_follow_each_other() -> None:
    plant = Plant(us(), relative=True)
    assert plant.send(0, 7, at=None, id="A", end=True) == [("A", "marker", [0, 7])]
    assert plant.send(0, 7, at=None, id="B", end=True) == [("B", "marker", [1_000_007, 1_000_014])]


@pytest.mark.parametrize("known", [False, True])
def test_relative_times_end_with_the_year_2200(known: bool) -> None:
    plant = Plant(us(), relative=True)
    if known:
        plant.send(0, at=5, id="A")
    with pytest.raises(DecodeError, match="its time lies after the year 2200") as caught:
        plant.send(0, 11, at=MAX_TIME_US - 10, id="B")
    assert caught.value.kind == "bad_time"
    assert plant.assembler.take_new_streams() == ["r"] * known
    assert plant.send(0, 10, at=MAX_TIME_US - 10, id="B", end=True)[-1][2] == [MAX_TIME_US - 10, MAX_TIME_US]


def test_a_sequence_with_relative_times_after_the_last_one_does_not_pass_the_year_2200() -> None:
    plant = Plant(us(), relative=True)
    plant.send(0, at=MAX_TIME_US - 10, id="A", end=True)
    with pytest.raises(DecodeError, match="after the year 2200"):
        plant.send(0, at=None, id="B")


def test_a_start_is_kept_for_late_samples_and_forgotten_with_the_id() -> None:
    plant = Plant(us(closed_memory=30), relative=True)
    plant.send(0, 5, at=100, end=True)
    plant.send(6, at=106)
    assert plant.late() == [(106, True)]
    assert plant.send(0, at=200, end=True) == [("A", "marker", [200])]
    plant.send(0, at=500, id="B", end=True)
    assert len(merge(None, plant.assembler.progress(plant.offset)).streams["r"].starts) == 1


def test_a_restart_knows_when_sequences_with_relative_times_began() -> None:
    limits = us(end=("marker",), allowed_lateness=10)
    records: list[tuple[list[int], int, str, bool]] = [
        ([0, 30], 1000, "A", False),
        ([0], 1005, "B", False),
        ([60], 1100, "A", True),  # 40 late: it must not begin anew at its record's time
        ([70], 1102, "B", False),
        ([72], 1103, "A", False),
        ([90], 1105, "B", True),
    ]

    def feed(plant: Plant, first: int, last: int) -> list[Closed]:
        closed = []
        for times, at, id, end in records[first:last]:
            array = np.array(times, dtype=np.int64)
            values = np.ones((len(times), 2), np.float32)
            closed += plant.assembler.push(SampleBlock("r", id, plant.offset, array, values, end, None, True), at)
            plant.offset += 1
        return closed

    whole = Plant(limits)
    expected = told(feed(whole, 0, 6) + whole.assembler.end_of_input())
    before = Plant(limits)
    done = feed(before, 0, 5)
    assert [closed.sequence.sequence for closed in done] == ["A"]
    before.assembler.committed(done[0])
    progress = merge(None, before.assembler.progress(5))
    assert progress.low_watermark == 1
    after = Plant(limits, progress=progress)
    after.offset = 1
    assert told(done) + told(feed(after, 1, 6) + after.assembler.end_of_input()) == expected
    assert whole.late() == [(1072, False)]
    assert after.late() == [(1060, True), (1072, False)]  # the first is read again and belongs to the closed A


# --- routes ----------------------------------------------------------------------------------------------------------


def test_relative_times_keep_the_route() -> None:
    plant = Plant(us(end=("marker",)), relative=True)
    plant.send(0, 5, at=100, end=True, route="A")
    assert plant.routes == [("A",)]


# --- restarts --------------------------------------------------------------------------------------------------------


def restarted(limits: SequenceSettings, progress: Progress) -> Plant:
    plant = Plant(limits, progress=progress)
    plant.offset = progress.low_watermark
    return plant


def test_closed_ids_outlive_their_memory_while_rereading_may_meet_them() -> None:
    limits = us(end=("marker",), closed_memory=5)
    plant = Plant(limits)
    plant.send(0, at=100, id="long")
    plant.send(1, at=101, id="short")
    plant.send(2, at=102, id="short", end=True)
    plant.assembler.committed(*plant.finished)
    plant.send(3, at=200, id="long")
    again = restarted(limits, merge(None, plant.assembler.progress(4)))
    assert again.offset == 0
    again.send(0, at=100, id="long")
    again.send(1, at=101, id="short")
    again.send(2, at=102, id="short", end=True)
    again.send(3, at=200, id="long")
    assert again.late() == [(1, True), (2, True)]
    assert told(again.assembler.end_of_input()) == [("long", "end_of_input", [0, 3])]


def test_a_forgotten_stream_stays_in_the_progress_until_the_low_watermark_has_passed() -> None:
    limits = us(end=("gap",), gap=1, closed_memory=5)
    plant = Plant(limits)
    plant.send(0, at=100, stream="slow")
    slow = plant.assembler.observe(102)
    plant.send(0, at=102, stream="quick")
    quick = plant.assembler.observe(200)
    for closed in quick:
        plant.assembler.committed(closed)
    progress = merge(None, plant.assembler.progress(2))
    assert (progress.low_watermark, set(progress.streams)) == (0, {"slow", "quick"})
    assert progress.streams["quick"].done_below == 2
    for closed in slow:
        plant.assembler.committed(closed)
    progress = merge(progress, plant.assembler.progress(2))
    assert (progress.low_watermark, progress.streams) == (2, {})


def test_progress_made_while_rereading_covers_only_what_was_read_again() -> None:
    limits = us(end=("marker",))
    plant = Plant(limits)
    plant.send(0, id="A")
    plant.send(1, id="A", end=True)
    plant.send(2, id="B")
    progress = merge(None, plant.assembler.progress(3))
    again = restarted(limits, progress)
    again.send(0, id="A")
    again.send(1, id="A", end=True)
    again.assembler.committed(*again.finished)
    progress = merge(progress, again.assembler.progress(3))
    assert (progress.low_watermark, progress.next_offset) == (2, 3)


def test_the_sample_that_ended_a_sequence_is_read_again_with_it() -> None:
    """The late one came first: without it, the restarted process would not know that A was full."""
    limits = us(end=("marker",), max_samples=1, allowed_lateness=5)
    plant = Plant(limits)
    plant.send(2)
    plant.send(1)
    assert plant.send(9, id="B") == [("A", "max_samples", [1])]
    assert plant.assembler.progress(3).low_watermark == 0


def test_committing_what_is_not_in_flight_is_an_error() -> None:
    plant = Plant(us())
    plant.send(0, end=True)
    (closed,) = plant.finished
    plant.assembler.committed(closed)
    with pytest.raises(ValueError, match="not in flight"):
        plant.assembler.committed(closed)


# --- far ahead, and read again ---------------------------------------------------------------------------------------


def read_again(plant: Plant, limits: SequenceSettings, **how: Any) -> Plant:
    """Commit all that ended but the last sequence; return what the next run begins with."""
    for closed in plant.finished[:-1]:
        plant.assembler.committed(closed)
    progress = merge(None, plant.assembler.progress(plant.offset))
    again = Plant(limits, progress=progress, **how)
    again.offset = progress.low_watermark
    return again


@pytest.mark.parametrize(("time", "is_held"), [(24, False), (25, False), (26, True)])
def test_far_ahead_exactly_at_the_limit(time: int, is_held: bool) -> None:
    plant = Plant(us(max_duration=20, allowed_lateness=5))
    plant.send(0, at=None)
    plant.send(time, at=None)
    assert bool(plant.assembler.jumps.held) == is_held


def test_an_accepted_sample_moves_no_clock_when_read_again_if_its_record_had_its_own_time() -> None:
    limits = us(end=("marker",), max_duration=20)
    plant = Plant(limits, max_clock_skew_us=5)
    plant.send(0, at=0, end=True)
    plant.send(1000, id="B", at=1, end=True)
    assert plant.send(1001, id="C", at=2) == [("B", "marker", [1000])]
    plant.finished.append(plant.finished[-1])  # commit both
    again = read_again(plant, limits, max_clock_skew_us=5)
    assert again.offset == 2
    again.send(1001, id="C", at=2)
    assert (plant.assembler.clock_us, again.assembler.clock_us) == (2, 2)


def test_the_sample_that_ended_a_sequence_is_read_again_though_it_came_before_and_joined_none() -> None:
    """It belongs to a closed sequence; waiting, it was released behind the first sample of the one that it ended."""
    limits = us(end=("marker",), max_duration=20, allowed_lateness=30)
    plant = Plant(limits)
    plant.send(0, id="X", at=0, end=True)
    assert plant.send(50, id="X", at=1) == [("X", "marker", [0])]
    plant.send(25, id="A", at=2)
    assert plant.send(85, id="C", at=3) == [("A", "max_duration", [25])]
    again = read_again(plant, limits)
    assert again.offset == 1
    again.send(50, id="X", at=1)
    again.send(25, id="A", at=2)
    assert again.send(85, id="C", at=3) == [("A", "max_duration", [25])]
