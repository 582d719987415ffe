"""Wrong times in single samples: every sequence gets its verdict, and what has none is in a dead letter or an event."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from streamad.ingest.assembly import Assembler
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.sequences import open_sequence, time_jumps
from streamad.ingest.sequences.time_jumps import Jump, TimeJumps
from streamad.ingest.windowing import Unscorable, to_window
from streamad.messages import DeadLetter, LateRecord
from streamad.partition_progress import merge
from streamad.settings.plant_yaml import SequenceSettings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Record, RecordBatch
from tests.support.ingest.decoded import block_in
from tests.support.runtime.pipeline import START_US, line, settings_of

MONTHS_S = 8 * 30 * 86_400.0
HOUR_S = 3_600.0


class Reader:
    """Reads lines without record times, one by one, and remembers what came of them."""

    def __init__(self, *, decode: dict[str, Any] | None = None, **sequences: Any) -> None:
        limits = {"end": ["marker"], "max_duration": "1d", **sequences}
        self.settings = settings_of(sequences=limits, decode=decode or {})
        self.counters = Counters()
        self.intake = self.anew()
        self.found: list[FinishedSequence] = []

    def anew(self, progress: Any = None) -> Intake:
        decoder = Decoder(self.settings.decode, self.settings.channels)
        return Intake("p", self.settings, decoder, self.counters, progress=progress)

    def read(self, *messages: bytes, first: int = 0) -> None:
        for offset, message in enumerate(messages, first):
            batch = RecordBatch("p", (Record(offset, message),), offset + 1)
            for closed in self.intake.take(batch, START_US):
                self.intake.committed(closed)
                self.found.append(closed.sequence)

    def end(self) -> None:
        self.found += [closed.sequence for closed in self.intake.end_of_input(START_US)]

    @property
    def reasons(self) -> Counter[str]:
        return Counter(sequence.reason for sequence in self.found)

    def letters(self) -> list[DeadLetter]:
        return [output.message for output in self.intake.take_aside() if isinstance(output.message, DeadLetter)]


def batches(n: int, samples: int = 5) -> list[list[tuple[str, float, bool]]]:
    """Return n sequences as id, seconds and end mark of each sample; a minute apart."""
    return [[(f"B{i}", 60.0 * i + k, k == samples - 1) for k in range(samples)] for i in range(n)]


def lines(sequences: list[list[tuple[str, float, bool]]]) -> list[bytes]:
    return [line("press", id, [time_s], end=end) for sequence in sequences for id, time_s, end in sequence]


def test_one_sample_eight_months_ahead_costs_one_dead_letter_and_no_verdict() -> None:
    sequences = batches(20)
    id, time_s, end = sequences[5][2]
    sequences[5][2] = (id, time_s + MONTHS_S, end)
    reader = Reader()
    reader.read(*lines(sequences))
    letters = reader.letters()
    reader.end()
    assert reader.reasons == {"marker": 20}
    assert [sequence.n_samples for sequence in reader.found] == [5] * 5 + [4] + [5] * 14
    assert [(letter.kind, letter.origin.offset) for letter in letters] == [("time_jump", 27)]
    assert letters[0].error == (
        "2026-08-29T00:05:02+00:00 is far ahead of the stream's newest time 2026-01-01T00:05:01+00:00, "
        "and the next sample is not"
    )
    assert reader.counters.dead_letters == {"time_jump": 1}


def test_a_clock_that_stays_eight_months_ahead_is_believed_from_its_second_sample_on() -> None:
    sequences = batches(20)
    moved = [[(id, time_s + MONTHS_S, end) for id, time_s, end in sequence] for sequence in sequences[10:]]
    reader = Reader()
    reader.read(*lines(sequences[:10] + moved))
    reader.end()
    assert (reader.reasons, reader.letters()) == ({"marker": 20}, [])


def test_samples_an_hour_back_give_one_verdict_for_each_sequence() -> None:
    sequences = batches(30)
    back = [[(id, time_s - HOUR_S, end) for id, time_s, end in sequence] for sequence in sequences[15:]]
    reader = Reader()
    reader.read(*lines(sequences[:15] + back))
    assert reader.reasons == {"marker": 15, "late": 15}
    late = reader.found[-1]
    assert (late.sequence, late.n_samples, late.end_us - late.start_us) == ("B29", 5, 4_000_000)
    refused = to_window(late, reader.settings.window)
    assert refused == Unscorable("late: all samples came later than sequences.allowed_lateness allows")
    told = [o.message for o in reader.intake.take_aside() if isinstance(o.message, LateRecord)]
    assert sum(len(message.times) for message in told) == reader.counters.late_samples == 75
    assert reader.counters.sequence_samples == 75


def test_late_samples_without_ids_are_told_of_once_they_end() -> None:
    reader = Reader(end=["gap"], gap="10s")
    reader.read(*(line("press", None, [t]) for t in (100.0, 101.0, 50.0, 52.0, 51.0)))
    assert reader.intake.take_notices(START_US) == []
    reader.end()
    (notice,) = reader.intake.take_notices(START_US)
    assert (notice.kind, notice.stream) == ("late_samples", "press")
    assert "so they have no verdict: 3 from 2026-01-01T00:00:50+00:00 to 2026-01-01T00:00:52+00:00" in notice.text
    assert reader.reasons == {"end_of_input": 1}


def test_a_late_sample_before_its_sequence_begins_makes_it_partial_also_after_a_restart() -> None:
    messages = lines([[("A", 10, False)], [("B", 5, False)], [("A", 11, True)], [("B", 12, False)], [("B", 13, True)]])
    for crash in range(6):
        reader = Reader()
        reader.read(*messages[:crash])
        progress = merge(None, reader.intake.progress())
        reader.intake = reader.anew(progress)
        reader.read(*messages[progress.low_watermark :], first=progress.low_watermark)
        reader.end()  # no second verdict for the late sample
        assert [(s.sequence, s.partial, s.n_samples) for s in reader.found] == [("A", False, 2), ("B", True, 2)]


def test_late_entries_of_a_stream_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.ingest.sequences.sequence_ends.MAX_LATE_ENTRIES", 3)
    monkeypatch.setattr("streamad.ingest.sequences.closed_sequences.MAX_LATE_ENTRIES", 3)
    reader = Reader()
    reader.read(*lines([[("now", 100, True)]]), *lines([[(f"L{i}", float(i), False)] for i in range(5)]), first=0)
    assert [s.sequence for s in reader.found] == ["now", "L0", "L1"]
    reader.read(*lines([[("L1", 7.0, False)]]), first=6)
    reader.end()
    assert [s.sequence for s in reader.found[3:]] == ["L2", "L3", "L4"]
    assert open_sequence.MAX_LATE_ENTRIES == 1_000


def test_a_sample_far_ahead_is_accepted_after_a_thousand_records_of_others() -> None:
    messages = [line("alone", "A", [0.0]), line("alone", "A", [MONTHS_S], end=True)]
    messages += [line("other", "O", [float(i)]) for i in range(time_jumps.MAX_RECORDS)]
    reader = Reader()
    reader.read(*messages)
    assert reader.found == []
    assert reader.intake.progress().low_watermark == 0
    reader.read(line("other", "O", [2_000.0]), first=len(messages))
    assert next((s.stream, s.n_samples, s.reason) for s in reader.found) == ("alone", 1, "max_duration")


def test_an_id_that_a_sample_far_ahead_began_again_stays_closed_for_closed_memory() -> None:
    """Others' times decide on A's sample at 75 s, at 81 s; A ends at 91 s, and is closed through 101 s."""
    held = [line("press", "A", [60.0]), line("press", "A", [75.0])]
    clock = [line("other", f"O{time}", [float(time)]) for time in (61, 71, 81, 91, 97)]
    for last_s, verdicts in ((101, 2), (102, 3)):
        reader = Reader(max_duration="10s", closed_memory="10s")
        reader.read(*held, *clock, line("other", "O", [float(last_s)]), line("press", "A", [76.0]))
        reader.end()
        assert [s.sequence for s in reader.found if s.stream == "press"] == ["A"] * verdicts
        late = [output.message for output in reader.intake.take_aside() if isinstance(output.message, LateRecord)]
        assert [(record.stream, record.cause) for record in late] == [("press", "closed")] * (3 - verdicts)


def test_a_sample_far_ahead_is_accepted_if_its_record_agrees_or_at_the_end() -> None:
    reader = Reader()
    reader.read(line("a", "A", [0.0]))
    ahead = Record(1, line("a", "B", [MONTHS_S], end=True), timestamp_us=START_US + round(MONTHS_S * 1e6))
    found = reader.intake.take(RecordBatch("p", (ahead,), 2), START_US)
    assert [closed.sequence.sequence for closed in found] == ["A", "B"]
    reader = Reader()
    reader.read(*lines([[("A", 0.0, False)], [("B", MONTHS_S, True)]]))
    assert reader.found == []
    reader.end()
    assert sorted(s.sequence for s in reader.found) == ["A", "B"]


# --- the hour that comes twice ---------------------------------------------------------------------------------------


def local_lines(*, samples_a_line: int = 1) -> list[bytes]:
    """150 sequences of two minutes through the night of 25 October 2026 in Berlin, local times without an offset."""
    start = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)
    found = []
    for number in range(150):
        times = [start + timedelta(minutes=2 * number, seconds=20 * k) for k in range(6)]
        texts = [time.astimezone(ZoneInfo("Europe/Berlin")).replace(tzinfo=None).isoformat() for time in times]
        for first in range(0, 6, samples_a_line):
            part = texts[first : first + samples_a_line]
            message = {
                "stream": "press",
                "sequence": f"B{number}",
                "times": part,
                "values": [[1.0, 2.0, 3.0]] * len(part),
            }
            found.append(json.dumps({**message, "end": first + samples_a_line >= 6}).encode())
    return found


def night(messages: list[bytes], crash: int | None = None) -> list[tuple[str, str, int, int, tuple[int, int]]]:
    """Return the sequences of ``messages``, read with a restart before the record ``crash``."""
    reader = Reader(decode={"timezone": "Europe/Berlin"})
    if crash is not None:
        reader.read(*messages[:crash])
        progress = merge(None, reader.intake.progress())
        reader.intake = reader.anew(progress)
        reader.read(*messages[progress.low_watermark :], first=progress.low_watermark)
    else:
        reader.read(*messages)
    return [(s.sequence, s.reason, s.n_samples, s.start_us, s.first_position) for s in reader.found]


def test_a_night_in_which_clocks_are_set_back_gives_each_sequence_its_verdict() -> None:
    found = night(local_lines())
    start_us = round(datetime(2026, 10, 24, 22, 0, tzinfo=UTC).timestamp() * 1e6)
    assert [each[:4] for each in found] == [
        (f"B{number}", "marker", 6, start_us + number * 120_000_000) for number in range(150)
    ]


@pytest.mark.parametrize("samples_a_line", [2, 4, 6])
def test_the_hour_that_comes_twice_is_read_the_same_from_chunks(samples_a_line: int) -> None:
    chunked, single = night(local_lines(samples_a_line=samples_a_line)), night(local_lines())
    assert [each[:4] for each in chunked] == [each[:4] for each in single]


def test_the_hour_that_comes_twice_is_read_the_same_after_a_restart_at_every_record() -> None:
    messages = local_lines(samples_a_line=3)[110:230]  # from 23:50 UTC on, one reading after the other
    at_once = night(messages)
    assert len(at_once) == 60
    for crash in range(len(messages)):
        assert night(messages, crash) == at_once


def test_the_hour_that_comes_twice_is_read_in_a_list_that_begins_with_an_unknown_channel() -> None:
    fields = {"stream": "s", "sequence": "b", "time": "t", "channel": "c", "value": "v"}
    settings = settings_of(decode={"timezone": "Europe/Berlin", "fields": fields})
    decoder, assembler = Decoder(settings.decode, settings.channels), Assembler("p", settings.sequences)

    def push(offset: int, minute: int, *channels: str) -> None:
        text = f"2026-10-25T02:{minute}:00"
        sample = [{"s": "press", "b": "B1", "t": text, "c": channel, "v": 1.0} for channel in channels]
        block = block_in(decoder, Record(offset, json.dumps(sample).encode()))
        assert block is not None
        assembler.push(block)

    known = settings.channels[0].field or settings.channels[0].name
    push(0, 50, known)
    push(1, 10, "unknown", known)
    (closed,) = assembler.end_of_input()
    assert closed.sequence.end_us - closed.sequence.start_us == 20 * 60 * 1_000_000


@pytest.mark.parametrize("samples_a_line", [1, 2])
def test_a_pause_within_the_hour_that_comes_twice_costs_no_sample(samples_a_line: int) -> None:
    """The machine stops at 02:30 and goes on at 02:10, 40 minutes later: far ahead, but so is all that follows."""
    reader = Reader(decode={"timezone": "Europe/Berlin"}, max_duration="10m")
    before = [f"2026-10-25T02:{minute}:00" for minute in (28, 29, 30, 30)]
    after = [f"2026-10-25T02:{minute}:00" for minute in (10, 11, 12, 13)]
    for id, texts in (("A", before), ("B", after)):
        for first in range(0, 4, samples_a_line):
            part = texts[first : first + samples_a_line]
            message = {"stream": "press", "sequence": id, "times": part, "values": [[1.0, 2.0, 3.0]] * len(part)}
            reader.read(json.dumps({**message, "end": False}).encode(), first=reader.intake.next_offset)
    reader.end()
    assert reader.letters() == []
    assert [(s.sequence, s.n_samples) for s in reader.found] == [("A", 3), ("B", 4)]
    assert reader.found[1].start_us == round(datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp() * 1e6)


def test_a_chunk_with_one_time_that_comes_twice_moves_the_clock_by_its_other_times() -> None:
    texts = ["2026-10-25T03:30:00", "2026-10-25T02:55:00"]
    for parts in ([texts], [[texts[0]], [texts[1]]]):
        reader = Reader(decode={"timezone": "Europe/Berlin"}, max_duration="5m", allowed_lateness="1h")
        for part in parts:
            message = {"stream": "press", "times": part, "values": [[1.0, 2.0, 3.0]] * len(part)}
            reader.read(json.dumps(message).encode(), first=reader.intake.next_offset)
        assert reader.intake.clock_us == round(datetime(2026, 10, 25, 2, 30, tzinfo=UTC).timestamp() * 1e6)


def test_times_with_an_offset_are_no_question() -> None:
    texts = ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:01+02:00"]
    message = {"stream": "press", "times": texts, "values": [[1.0, 2.0, 3.0]] * 2}
    settings = settings_of(decode={"timezone": "Europe/Berlin"})
    block = block_in(Decoder(settings.decode, settings.channels), Record(0, json.dumps(message).encode()))
    assert block is not None
    assert block.later_us is None


def test_a_sample_far_ahead_of_one_stream_ends_no_sequence_of_others() -> None:
    """It is accepted after a thousand records, and moves the clock of its own stream alone."""
    messages = [line("evil", None, [0.0]), line("evil", None, [MONTHS_S])]
    messages += lines(batches(300))
    reader = Reader()
    reader.read(*messages)
    assert not reader.intake._assembler.jumps.held  # noqa: SLF001
    assert [s.reason for s in reader.found if s.stream == "press"] == ["marker"] * 300


def test_read_again_a_done_record_moves_the_clock_as_its_first_reading_did() -> None:
    """A rejected time moves it nowhere, an accepted one only where it was accepted, and the others at their record."""
    jumps = TimeJumps(SequenceSettings(), 0, [Jump(5, None, 9_000), Jump(7, 8, 9_500)], low_watermark=0)
    assert jumps.moves_of(5, np.array([1, 9_000, 2])) == [1, 2]
    assert jumps.moves_of(7, np.array([3, 9_500])) == [3]
    assert list(jumps.moves_before(8)) == [9_500]
    assert jumps.moves_of(9, np.array([4, 5])) == [4, 5]
