"""Ends from outside at their boundaries: what the progress says of them, where they are repeated, what bounds them."""

from __future__ import annotations

import msgspec
import pytest

from streamad.ingest.assembly import Assembler
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.sequences import closed_sequences
from streamad.ingest.sequences.closed_sequences import Closed, id_hash
from streamad.messages import LateRecord
from streamad.partition_progress import ForcedEnd, Progress, StreamProgress, merge
from streamad.settings.plant_yaml import SequenceSettings
from streamad.telemetry.metrics import Counters
from streamad.types import RecordBatch
from tests.support.ingest.assembly_cases import us
from tests.support.ingest.assembly_model import Record
from tests.support.runtime.pipeline import START_US, line, records_of, settings_of

GAP = us(end=("gap",), gap=10, allowed_lateness=5)


class Plant:
    """Feeds an assembler and remembers what it finished, as stream, reason and event times."""

    def __init__(self, limits: SequenceSettings, progress: Progress | None = None) -> None:
        self.assembler = Assembler("p", limits, progress=progress)
        self.progress = progress
        self.offset = 0 if progress is None else progress.low_watermark
        self.finished: list[Closed] = []

    def send(self, *times: int, at: int | None, stream: str = "r", id: str | None = None, end: bool = False) -> None:
        self.finished += self.assembler.reach(self.offset)
        record = Record(stream, id, times, ((1.0, 2.0),) * len(times), end, at)
        self.finished += self.assembler.push(record.block(self.offset), at)
        self.offset += 1

    def expire(self, now: int) -> None:
        self.finished += self.assembler.expire(now)

    def evict(self) -> None:
        self.finished += self.assembler.evict_largest()

    def saved(self, *, verdicts: int = 0) -> Progress:
        for closed in self.finished[:verdicts]:
            self.assembler.committed(closed)
        del self.finished[:verdicts]
        resume_at = 0 if self.progress is None else self.progress.next_offset
        self.progress = merge(self.progress, self.assembler.progress(max(self.offset, resume_at)))
        return self.progress

    @property
    def told(self) -> list[tuple[str, str, list[int]]]:
        return [(c.sequence.stream, c.sequence.reason, c.sequence.times_us.tolist()) for c in self.finished]


def forced_of(progress: Progress, stream: str = "r") -> list[tuple[int, int | None, str | None]]:
    return [(end.offset, end.clock_us, end.ended) for end in progress.streams[stream].forced]


# --- what the progress says ------------------------------------------------------------------------------------------


def test_the_progress_records_a_clock_reading_only_if_it_changed_something() -> None:
    plant = Plant(GAP)
    plant.send(0, at=100)
    plant.expire(105)  # exactly allowed_lateness of silence
    assert forced_of(plant.saved()) == []
    plant.expire(106)
    plant.expire(107)
    assert forced_of(plant.saved()) == [(1, 106, None)]


def test_of_looks_at_the_clock_at_one_place_only_the_last_one_counts() -> None:
    plant = Plant(GAP)
    plant.send(0, at=100)
    plant.expire(106)
    plant.expire(116)
    assert plant.told == [("r", "gap", [0])]
    assert forced_of(plant.saved()) == [(1, 116, None)]
    plant.send(2, at=100)
    plant.expire(106)
    assert forced_of(plant.saved()) == [(1, 116, None), (2, 106, None)]


@pytest.mark.parametrize(("record_us", "is_told"), [(105, True), (106, False), (107, False), (None, True)])
def test_the_wall_clock_is_not_recorded_if_the_next_record_implies_it(record_us: int | None, is_told: bool) -> None:
    plant = Plant(GAP)
    plant.send(0, at=100)
    plant.expire(106)
    plant.send(3, at=record_us)
    assert forced_of(plant.saved()) == ([(1, 106, None)] if is_told else [])


@pytest.mark.parametrize(("id", "ended"), [(None, ""), ("A", id_hash("A"))])
def test_an_eviction_names_the_sequence_it_ended(id: str | None, ended: str) -> None:
    plant = Plant(us())
    plant.send(0, at=100, id=id)
    plant.send(1, at=100, stream="s", id="longer", end=True)
    plant.evict()
    assert plant.told == [("s", "marker", [1]), ("r", "memory", [0])]
    progress = plant.saved()
    assert (forced_of(progress), forced_of(progress, "s")) == ([(2, None, ended)], [])


def test_an_eviction_that_only_released_waiting_samples_is_marked() -> None:
    plant = Plant(us(end=("marker",), allowed_lateness=5))
    plant.send(0, at=100, id="A", end=True)
    plant.evict()
    assert plant.told == [("r", "marker", [0])]
    assert forced_of(plant.saved()) == [(1, None, None)]


def test_a_finished_end_is_no_longer_recorded() -> None:
    plant = Plant(us())
    plant.send(0, 1, 2, at=100)
    plant.send(1, at=100, stream="slow")
    plant.evict()
    assert forced_of(plant.saved()) == [(2, None, "")]
    progress = plant.saved(verdicts=1)
    assert (progress.low_watermark, progress.streams["r"].done_below, forced_of(progress)) == (1, 2, [])


def test_recorded_ends_are_bounded_and_the_oldest_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_sequences, "MAX_FORCED_ENDS", 3)
    plant = Plant(us(end=("gap",), gap=1000, max_duration=1000, allowed_lateness=5))
    for time in range(0, 50, 10):
        plant.send(time, at=100 + time)
        plant.expire(109 + time)
        plant.send(time + 1, at=100 + time)
    assert [end.offset for end in plant.saved().streams["r"].forced] == [5, 7, 9]


def test_progress_from_before_there_were_forced_ends_is_understood() -> None:
    old = msgspec.json.decode(b'{"done_below": 3, "closed": {"x": 1}}', type=StreamProgress)
    assert (old.done_below, old.forced) == (3, ())


# --- where they are repeated -----------------------------------------------------------------------------------------


def test_of_several_open_sequences_memory_ends_the_same_one_again() -> None:
    plant = Plant(us(end=("marker",)))

    def send(plant: Plant) -> None:
        plant.send(0, at=100, id="A")
        plant.send(1, 2, 3, at=100, id="B")
        plant.send(4, at=100, id="C")

    send(plant)
    plant.evict()
    assert plant.told == [("r", "memory", [1, 2, 3])]
    again = Plant(us(end=("marker",)), plant.saved())
    send(again)
    assert again.assembler.reach(2) == []
    again.finished += again.assembler.reach(3)
    assert again.told == [("r", "memory", [1, 2, 3])]
    assert again.assembler.open_sequences == 2


def test_what_was_ended_behind_the_last_record_is_ended_again_without_waiting_for_the_next_one() -> None:
    settings = settings_of(sequences={"end": ["gap"], "gap": "10s"})
    records = tuple(records_of([line("a", None, [0])], timestamps_s=[0]))
    first = Intake("p", settings, Decoder(settings.decode, settings.channels), Counters())
    first.take(RecordBatch("p", records, 7), START_US)
    assert len(first.expire(10_000_001, START_US)) == 1
    progress = merge(None, first.progress())
    assert progress.streams["a"].forced == (ForcedEnd(offset=7, clock_us=START_US + 10_000_001),)
    again = Intake("p", settings, Decoder(settings.decode, settings.channels), Counters(), progress=progress)
    assert again.take(RecordBatch("p", records, 6), START_US) == []
    assert again.is_recovering
    (closed,) = again.take(RecordBatch("p", (), 7), START_US)
    assert closed.sequence.reason == "gap"
    assert not again.is_recovering


def test_a_stream_forgotten_by_the_wall_clock_may_restart_at_an_earlier_time_after_a_restart() -> None:
    limits = us(end=("marker",), max_duration=20, closed_memory=5)
    plant = Plant(limits)
    plant.send(0, at=100, stream="slow")
    plant.send(50, at=100, id="A", end=True)
    plant.expire(200)
    plant.saved(verdicts=1)
    assert forced_of(plant.saved()) == [(2, 200, None)]
    for process in (plant, Plant(limits, plant.saved())):
        if process is not plant:
            process.send(0, at=100, stream="slow")
            process.send(50, at=100, id="A", end=True)
        process.send(7, at=101, id="A", end=True)
        assert ("r", "marker", [7]) in process.told
        assert process.assembler.take_late() == []


def test_the_record_after_a_silence_decides_on_a_held_sample_as_it_does_after_a_restart() -> None:
    """The wall clock ends B and would have the stream forgotten; the record that implies it then decides on 23."""
    limits = us(end=("marker",), max_duration=4, allowed_lateness=5)

    def send(plant: Plant, first: int = 0) -> None:
        sends: list[tuple[int, int | None, str, str]] = [
            (0, 0, "r", "B"), (8, None, "s", "C"), (23, None, "r", "A"), (29, 29, "s", "C"), (19, 34, "r", "A"),
        ]  # fmt: skip
        for time, at, stream, id in sends[first:]:
            plant.send(time, at=at, stream=stream, id=id)
            if time == 23 and plant.progress is None:
                plant.expire(22)

    plant = Plant(limits)
    send(plant)
    told = plant.told
    progress = plant.saved(verdicts=1)
    assert progress.low_watermark == 1
    again = Plant(limits, progress)
    send(again, first=1)
    assert again.told == told[1:]
    ends = [process.assembler.end_of_input() for process in (plant, again)]
    first, second = ([closed.sequence.times_us.tolist() for closed in found] for found in ends)
    assert first == second
    assert [19, 23] in first  # 23 counts as coming at the decision, so it waits for 19


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ((59, 69), "max_duration"),
        ((59, 59, 69), "max_duration"),
        ((60, 59, 69), "max_duration"),
        ((69, 59), "end_of_input"),
    ],
)
def test_a_done_record_decides_on_a_held_sample_where_it_did_before_the_restart(
    times: tuple[int, ...], reason: str
) -> None:
    """The first time of B's record decides on A's sample at 45; A then ends 20 later, before 81 or after it."""
    limits = us(end=("marker",), max_duration=11, allowed_lateness=9)

    def send(plant: Plant, first: int = 0) -> None:
        for stream, id, each in [("t", "A", (18,)), ("t", "A", (45,)), ("s", "B", times), ("s", "C", (81,))][first:]:
            plant.send(*each, at=None, stream=stream, id=id, end=id == "B")

    plant = Plant(limits)
    send(plant)
    assert [told[0] for told in plant.told[:2]] == ["t", "s"]
    progress = plant.saved(verdicts=2)
    assert (progress.low_watermark, progress.streams["s"].done_below) == (1, 3)
    again = Plant(limits, progress)
    send(again, first=1)
    for process in (plant, again):
        process.finished += process.assembler.end_of_input()
        assert ("t", reason, [45]) in process.told
    assert sorted(again.told) == sorted(plant.told)


def test_the_ends_of_a_streams_second_life_outlast_its_first_one() -> None:
    """All of the first life is committed while records are read again, before the second one has begun."""
    limits = us(end=("marker",), max_duration=20, closed_memory=5)

    def send_first(plant: Plant) -> None:
        plant.send(50, at=100, id="A", end=True)
        plant.send(0, at=200, stream="s", end=True)

    def send_second(plant: Plant) -> None:
        plant.send(7, at=200, id="B")

    first = Plant(limits)
    send_first(first)
    send_second(first)
    first.evict()
    first.send(8, at=200, id="B")
    assert first.told == [("r", "marker", [50]), ("s", "marker", [0]), ("r", "memory", [7])]
    second = Plant(limits, first.saved())
    send_first(second)
    progress = second.saved(verdicts=2)
    assert (progress.low_watermark, forced_of(progress)) == (2, [(3, None, id_hash("B"))])
    third = Plant(limits, progress)
    send_second(third)
    third.send(8, at=200, id="B")
    assert third.told == [("r", "memory", [7])]
    assert [(late.closed, late.times_us.tolist()) for late in third.assembler.take_late()] == [(True, [8])]
    assert third.saved(verdicts=1).low_watermark == 4


@pytest.mark.parametrize("beside", [0, 1])
@pytest.mark.parametrize("crash_at", [None, 1, 2, 3, 4])
def test_the_rest_of_a_sequence_evicted_only_while_rereading_is_reported_as_late_once(
    crash_at: int | None, beside: int
) -> None:
    """Also if the process ends after the verdict is committed, before or amid the rest.

    ``beside``: another sequence of the stream stays open, so that all is read a third time.
    """
    settings = settings_of(sequences={"end": ["marker"]})
    decoder = Decoder(settings.decode, settings.channels)
    messages = [
        *[line("a", "open too", [0])] * beside,
        line("a", "open", [0]),
        line("b", "done", [0], end=True),
        line("b", "done", [1]),
        line("a", "open", [1, 2]),
        line("a", "open", [3]),
    ]
    records = tuple(records_of(messages))
    first = Intake("p", settings, decoder, Counters())
    (done,) = first.take(RecordBatch("p", records, len(records)), START_US)
    first.committed(done)
    (told,) = first.take_aside()
    assert isinstance(told.message, LateRecord)
    progress = merge(None, first.progress())

    again = Intake("p", settings, decoder, Counters(), progress=progress)
    again.take(RecordBatch("p", records[: 1 + beside], 1 + beside), START_US)
    (closed,) = again.evict_largest(START_US)
    assert (closed.sequence.sequence, closed.sequence.n_samples) == ("open", 1)
    committed = []
    if crash_at is not None:
        begin, crash_at = 1 + beside, crash_at + beside
        again.take(RecordBatch("p", records[begin:crash_at], crash_at), START_US)
        again.committed(closed)
        committed = again.take_aside()
        again = Intake("p", settings, decoder, Counters(), progress=merge(progress, again.progress()))
    begin = again.next_offset
    again.take(RecordBatch("p", records[begin:], len(records)), START_US)
    late = [output.message for output in committed + again.take_aside()]
    assert all(isinstance(message, LateRecord) for message in late)
    assert [(m.origin.offset, m.stream, len(m.times)) for m in late if isinstance(m, LateRecord)] == [
        (3 + beside, "a", 2),
        (4 + beside, "a", 1),
    ]
    assert again.progress().untold == ()
