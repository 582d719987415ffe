"""The intake of a partition: dead letters and late records, counters, and nothing emitted twice."""

from __future__ import annotations

import base64
import hashlib
import json

import msgspec
import pytest

from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.messages import DeadLetter, LateRecord, Origin
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import Record, RecordBatch, from_us
from tests.support.runtime.pipeline import START_US, line, records_of, settings_of


def intake_of(
    settings: Settings | None = None, progress: Progress | None = None, counters: Counters | None = None
) -> Intake:
    settings = settings or settings_of()
    decoder = Decoder(settings.decode, settings.channels)
    return Intake("p", settings, decoder, counters or Counters(), progress=progress)


def batch(records: list[Record], after: int | None = None) -> RecordBatch:
    return RecordBatch("p", tuple(records), records[-1].offset + 1 if after is None else after)


def test_records_become_sequences_dead_letters_and_late_records() -> None:
    counters = Counters()
    intake = intake_of(counters=counters)
    messages = [line("a", "1", [0, 1], end=True), b"{", line("a", "1", [2, 3])]
    (closed,) = intake.take(batch(records_of(messages)), START_US)
    assert (closed.sequence.stream, closed.sequence.n_samples, closed.sequence.reason) == ("a", 2, "marker")
    letter, late = (record.message for record in intake.take_aside())
    assert isinstance(letter, DeadLetter)
    assert (letter.origin.partition, letter.origin.offset, letter.value) == ("p", 1, b"{")
    assert isinstance(late, LateRecord)
    assert (late.origin.offset, late.cause, len(late.times)) == (2, "closed", 2)
    assert intake.take_aside() == []
    assert (counters.records, counters.samples, counters.late_samples) == (3, 4, 2)
    assert counters.dead_letters == {"malformed": 1}


def test_an_unreadable_record_still_moves_the_clock_that_ends_silent_streams() -> None:
    settings = settings_of(sequences={"end": ["gap"], "gap": "10s"})
    intake = intake_of(settings)
    assert intake.take(batch(records_of([line("a", None, [0, 1])], timestamps_s=[1])), START_US) == []
    silent = [Record(1, b"{", START_US + 11_000_000), Record(2, b"{", START_US + 11_000_001)]
    assert intake.take(batch(silent[:1]), START_US) == []
    (closed,) = intake.take(batch(silent[1:]), START_US)
    assert closed.sequence.reason == "gap"


@pytest.mark.parametrize("value", [b"{", b"", line("b", None, [0])])
def test_a_record_time_after_2200_ends_no_sequence(value: bytes) -> None:
    settings = settings_of(sequences={"end": ["gap"], "gap": "10s"})
    intake = intake_of(settings)
    assert intake.take(batch(records_of([line("a", None, [0, 1])], timestamps_s=[1])), START_US) == []
    assert intake.take(batch([Record(1, value, 1 << 62)]), START_US) == []
    (closed,) = intake.take(batch([Record(2, b"{", START_US + 11_000_001)]), START_US)[:1]
    assert closed.sequence.reason == "gap"


def test_tombstones_are_counted_and_move_the_clock() -> None:
    counters = Counters()
    intake = intake_of(settings_of(sequences={"end": ["gap"], "gap": "10s"}), counters=counters)
    intake.take(batch(records_of([line("a", None, [0, 1])], timestamps_s=[1])), START_US)
    silent = [Record(1, b"", START_US + 11_000_000), Record(2, b"", START_US + 11_000_001)]
    (closed,) = intake.take(batch(silent), START_US)
    assert closed.sequence.reason == "gap"
    assert intake.take_aside() == []
    assert (counters.records, counters.tombstones, counters.ignored) == (3, 2, 0)


def in_pauses(settings: Settings) -> tuple[list[tuple[str | None, int]], Counters]:
    """Judge batch, pause, batch, pause; return id and length of each sequence."""
    counters = Counters()
    intake = intake_of(settings, counters=counters)
    messages = [
        line("a", "1", [0, 1]),
        line("a", None, [2, 3, 4], end=True),
        line("a", "2", [5, 6]),
        line("b", None, [7]),
    ]
    found = [*intake.take(batch(records_of(messages)), START_US), *intake.end_of_input(START_US)]
    return [(closed.key, closed.sequence.n_samples) for closed in found], counters


def test_samples_without_an_id_are_sequences_unless_they_are_left_out() -> None:
    kept, counters = in_pauses(settings_of())
    assert [n for _, n in kept] == [2, 3, 2, 1]
    assert (counters.samples, counters.without_id) == (8, 0)
    skipped, counters = in_pauses(settings_of(sequences={"without_id": "skip"}))
    assert skipped == [("1", 2), ("2", 2)]
    assert (counters.records, counters.samples, counters.without_id, counters.ignored) == (4, 4, 4, 0)
    assert sum(counters.sequences.values()) == 2


def test_samples_left_out_move_the_record_clock_and_no_other() -> None:
    settings = settings_of(sequences={"end": ["change", "gap"], "gap": "10s", "without_id": "skip"})
    intake = intake_of(settings)
    intake.take(batch(records_of([line("a", "1", [0, 1])], timestamps_s=[1])), START_US)
    pause = [
        Record(n, line("a", None, [9_000]), START_US + time_us) for n, time_us in ((1, 11_000_000), (2, 11_000_001))
    ]
    assert intake.take(batch(pause[:1]), START_US) == []
    (closed,) = intake.take(batch(pause[1:]), START_US)
    assert (closed.key, closed.sequence.reason) == ("1", "gap")


def test_samples_left_out_take_no_place_of_a_stream_and_are_not_counted_again() -> None:
    settings = settings_of(sequences={"without_id": "skip", "max_streams": 1})
    records = records_of([line("a", "1", [0]), line("b", None, [0]), line("a", "1", [1])])
    counters = Counters()
    first = intake_of(settings, counters=counters)
    assert first.take(batch(records), START_US) == []
    assert (counters.without_id, counters.dead_letters) == (1, {})
    progress = merge(None, first.progress())
    assert (progress.next_offset, progress.low_watermark) == (3, 0)
    counters = Counters()
    second = intake_of(settings, progress, counters)
    second.take(batch(records), START_US)
    assert counters.without_id == 0
    (closed,) = second.end_of_input(START_US)
    assert closed.sequence.n_samples == 2


def test_streams_beyond_the_bound_are_dead_letters() -> None:
    counters = Counters()
    intake = intake_of(settings_of(sequences={"max_streams": 2}), counters=counters)
    intake.take(batch(records_of([line(stream, "1", [0]) for stream in "abca"])), START_US)
    assert counters.dead_letters == {"too_many_streams": 1}
    assert counters.samples == 3


def test_records_read_again_are_neither_reported_nor_counted_again() -> None:
    messages = [
        line("a", "open", [0]),
        b"{",
        line("b", "1", [0], end=True),
        line("b", "1", [1]),
        line("a", "open", [1]),
    ]
    records = records_of(messages)
    first = intake_of()
    (done,) = first.take(batch(records), START_US)
    assert len(first.take_aside()) == 2
    first.committed(done)
    progress = merge(None, first.progress())
    assert (progress.next_offset, progress.low_watermark) == (5, 0)

    counters = Counters()
    second = intake_of(progress=progress, counters=counters)
    assert second.is_recovering
    assert second.take(batch(records), START_US) == []
    assert second.take_aside() == []
    assert not second.is_recovering
    assert (counters.records, counters.samples, counters.dead_letters) == (0, 0, {})
    (closed,) = second.take(batch([Record(5, line("a", "open", [2], end=True))]), START_US)
    assert closed.sequence.n_samples == 3
    assert (counters.records, counters.samples) == (1, 1)


def test_while_rereading_no_wall_clock_ends_anything() -> None:
    settings = settings_of(sequences={"end": ["gap"], "gap": "10s"})
    records = records_of([line("a", None, [0]), line("b", None, [1])])
    first = intake_of(settings)
    first.take(batch(records), START_US)
    second = intake_of(settings, merge(None, first.progress()))
    second.take(batch(records[:1]), START_US)
    assert second.expire(3_600_000_000, START_US) == []
    second.take(batch(records[1:]), START_US)
    assert len(second.expire(3_600_000_000, START_US)) == 2


def test_samples_found_late_while_memory_is_freed_are_reported_at_once() -> None:
    counters = Counters()
    intake = intake_of(settings_of(sequences={"allowed_lateness": "10s"}), counters=counters)
    messages = [line("a", "1", [0, 1], end=True), line("a", "1", [2, 3]), line("a", "2", [4])]
    assert intake.take(batch(records_of(messages)), START_US) == []
    finished = intake.evict_largest(START_US)
    finished += intake.evict_largest(START_US)
    assert {closed.sequence.sequence: closed.sequence.reason for closed in finished} == {"1": "marker", "2": "memory"}
    (late,) = intake.take_aside()
    assert isinstance(late.message, LateRecord)
    assert counters.late_samples == 2


@pytest.mark.parametrize("ended", [False, True])
def test_progress_states_whether_a_finite_partition_is_finished(ended: bool) -> None:
    assert intake_of().progress(ended=ended).ended is ended


def test_an_empty_batch_moves_the_offset_and_nothing_else() -> None:
    intake = intake_of()
    assert intake.take(RecordBatch("p", (), 17), START_US) == []
    assert intake.progress().next_offset == 17


def test_while_rereading_the_progress_keeps_the_cursor_of_its_offset() -> None:
    records = records_of([line("a", "open", [0]), line("a", "open", [1])])
    first = intake_of()
    first.take(RecordBatch("p", tuple(records), 2, cursor="behind both"), START_US)
    second = intake_of(progress=merge(None, first.progress()))
    for record, cursor in zip(records, ("between", "behind both, read again"), strict=True):
        second.take(RecordBatch("p", (record,), record.offset + 1, cursor=cursor), START_US)
        update = second.progress()
        told = "behind both" if record.offset == 0 else cursor
        assert (update.next_offset, update.cursor) == (2, told)


# --- dead letters ----------------------------------------------------------------------------------------------------


def letter(value: bytes, limit: int, key: bytes | None = None) -> DeadLetter:
    intake = intake_of(settings_of(decode={"max_dead_letter_bytes": limit}))
    intake.take(batch([Record(42, value, key=key)]), START_US)
    (aside,) = intake.take_aside()
    assert isinstance(aside.message, DeadLetter)
    return aside.message


def test_a_dead_letter_has_origin_reason_and_bytes() -> None:
    result = letter(b"\xffhello", 100, key=b"R1")
    assert result.origin == Origin("p", 42)
    assert result.kind == "malformed"
    assert result.error.startswith("not JSON")
    assert (result.value, result.key, result.truncated) == (b"\xffhello", b"R1", False)
    assert result.created_at == from_us(START_US)
    message = json.loads(msgspec.json.encode(result))
    assert base64.b64decode(message["value"]) == b"\xffhello"


@pytest.mark.parametrize(("size", "truncated"), [(99, False), (100, False), (101, True)])
def test_value_and_key_are_cut_above_the_limit_with_size_and_hash_of_the_whole(size: int, truncated: bool) -> None:
    value = bytes(range(size))
    for result in (letter(value, 100), letter(b"{", 100, key=value)):
        assert result.truncated is truncated
    result = letter(value, 100)
    assert (result.value, result.size_bytes) == (value[:100], size)
    assert result.sha256 == hashlib.sha256(value).hexdigest()
    assert letter(b"{", 100, key=value).key == value[:100]


@pytest.mark.parametrize("n_good", [0, 1])
def test_only_before_the_first_sample_does_a_restart_doubt_the_time_of_change(n_good: int) -> None:
    """Also if the stream was forgotten meanwhile; a line that is unreadable is no sample."""
    settings = settings_of(sequences={"end": ["marker"], "max_duration": "1s", "closed_memory": "0s"})

    def intake(progress: Progress | None) -> Intake:
        return Intake("p", settings, Decoder(settings.decode, settings.channels), Counters(), progress=progress)

    first = intake(None)
    written = ((0, START_US + 1_000_000),)
    records = [Record(0, b"{"), *(Record(1 + i, line("a", "A", [0.0], end=True)) for i in range(n_good))]
    for closed in first.take(RecordBatch("p", tuple(records), len(records), written=written), START_US):
        first.committed(closed)
    first.expire(10_000_000, START_US)
    again = intake(merge(None, first.progress()))
    wrong = Record(again.next_offset, line("a", "B", [9_000.0]))
    again.take(RecordBatch("p", (wrong,), wrong.offset + 1, written=written), START_US)
    assert again.may_commit is bool(n_good)
